"""Nothing to show, no answer yet, none any more: the page says which, and what is long stays in its place."""

from __future__ import annotations

import pytest

from plimsoll.tools.dashboard import Dashboard
from tests.browser.chromium import Page
from tests.browser.served import Served, shown
from tests.browser.world import CPU, cpu_share, device_class, node, pinned, pod, resource_slice
from tests.dumps import big_cluster, make_cluster_state
from tests.unit.tools.cluster_state.world import World

#: As long as names may be.
LONG = "ip-10-23-145-201.eu-central-1.compute.internal." + "very-long-name-" * 13 + "x"
WORKER = "checkout-payment-reconciliation-worker-canary-deployment-7d9f8b6c5d-" + "x2x4z" * 10


@pytest.fixture(scope="module")
def quiet(served: Served) -> Dashboard:
    """Two nodes, one of them without a size of huge pages that it knows of, and nothing on them."""
    trees = [node("n1"), node("n2")]
    for key in ("allocatable", "capacity"):
        trees[0]["status"][key] = {**trees[0]["status"][key], "hugepages-1Gi": "0"}
    return served.dump(make_cluster_state(trees))


@pytest.fixture(scope="module")
def long_names(served: Served) -> Dashboard:
    trees = [node(LONG, "96"), device_class("cpu", CPU), resource_slice(CPU, LONG, [cpu_share(96)])]
    trees += [
        pinned(WORKER, LONG, 4, "0-3"),
        pod(WORKER, LONG, cpu="0", claims=(WORKER,)),
        pod("w" * 250, cpu="500"),
    ]
    return served.dump(make_cluster_state(trees))


def test_where_there_is_nothing(page: Page, quiet: Dashboard) -> None:
    for path, text in (
        ("", "0 nodes past their line"),
        ("", "0 devices free no driver has published any"),
        ("?q=nobody", "No node is like that."),
        ("nodes/n1", "Nothing is held."),
        ("nodes/n1", "No driver has published devices here."),
        ("devices", "No driver has published devices."),
        ("devices?q=x", "No device is like that."),
        ("pools", "No driver has published devices."),
        ("claims", "No claims found."),
        ("claims?state=free", "No claim is like that."),
        ("pending", "No pods are pending: all is well."),
        ("pending?q=x", "No pending pod is like that."),
        ("namespaces", "No namespace has pods or claims."),
        ("audit", "Nothing was found, but not every check could be made."),
    ):
        shown(page, quiet, path)
        page.wait(f"document.querySelector('main').innerText.replace(/\\s+/g, ' ').includes({text!r})")


def test_nothing_jumps_when_the_reasons_come(page: Page, dump: Dashboard) -> None:
    shown(page, dump, "claims")
    page.eval(
        "const real = fetch; window.fetch = (path, o) => path.startsWith('api/pods')"
        "? new Promise((go) => { window.go_on = () => go(real(path, o)); }) : real(path, o)"
    )
    page.go(f"{dump.url}#/")
    page.wait("document.querySelector('.node-name a') && Boolean(window.go_on)")
    top = "document.querySelector('.node-list').getBoundingClientRect().top"
    before = page.eval(top)
    assert page.eval("document.querySelector('.pending-few ul').getAttribute('aria-busy')") == "true"
    page.eval("go_on()")
    page.wait_text("shop/giant", ".pending-few")
    assert page.eval(top) == before


def test_a_resource_that_nobody_has_is_not_shown(page: Page, quiet: Dashboard) -> None:
    for path in ("", "nodes/n1", "whatif"):
        shown(page, quiet, path)
        if path == "whatif":
            page.click("button.primary")
            page.wait("document.querySelector('.whatif-result')")
        assert "hugepages" not in page.text()


@pytest.mark.parametrize("width", [400, 1280])
def test_long_names_stay_in_their_place(page: Page, long_names: Dashboard, width: int) -> None:
    page.resize(width, 800)
    for path in (
        "",
        f"nodes/{LONG}",
        "devices",
        "pools",
        "claims",
        "pending",
        "namespaces",
        f"whatif?drain={LONG}",
    ):
        shown(page, long_names, path)
        page.wait("document.querySelector('main a, main button, main summary')")
        assert page.eval("document.documentElement.scrollWidth") <= width, path
    shown(page, long_names, "")
    page.wait(f"document.querySelector('.node-name a').title === {LONG!r}")
    # One row, whatever the name.
    assert page.eval("document.querySelector('.node-name a').getBoundingClientRect().height") < 40


def test_a_cluster_that_is_lost_and_found(page: Page, served: Served) -> None:
    world = World(big_cluster(2, pending=0))
    dashboard = served.following(world.client())

    async def set_dead(dead: bool) -> None:
        world.dead = dead
        world.cut()

    shown(page, dashboard, "")
    page.wait_text("Live", ".live")
    served.run(set_dead(True))
    page.wait_text("Cluster lost", ".live")
    page.wait_text("what is shown is what was last known", ".notice.is-error")
    assert page.eval("document.querySelectorAll('.notice li').length") <= 2  # kinds are told together
    shown(page, dashboard, "claims")  # and on every page
    page.wait_text("Cluster lost", ".live")
    served.run(set_dead(False))
    page.wait_text("Live", ".live")
    shown(page, dashboard, "")
    page.wait("!document.querySelector('.notice')")


def test_a_server_that_does_not_answer(page: Page, served: Served) -> None:
    cluster_state = make_cluster_state([node("n1")])
    first = served.dump(cluster_state)
    shown(page, first, "")
    port = int(first.url.rstrip("/").rpartition(":")[2])
    served.stop(first)
    page.eval("location.hash = '#/claims'")
    page.wait_text("The dashboard's server does not answer.", "[role=alert]")
    assert page.text("h1") == "Claims"
    again = served.dump(cluster_state, port)
    page.click("[role=alert] button")
    page.wait_text("No claims found.")
    served.stop(again)
    page.problems.clear()  # connections that were refused


def test_while_an_answer_is_on_its_way(page: Page, dump: Dashboard) -> None:
    shown(page, dump, "")
    page.eval(
        "const real = fetch; window.fetch = (path, o) => path.startsWith('api/claims')"
        "? new Promise((go) => { window.go_on = () => go(real(path, o)); }) : real(path, o)"
    )
    page.go(f"{dump.url}#/claims")
    page.wait_text("The list of claims is being read", "[role=status]")
    page.wait("Boolean(window.go_on)")
    page.eval("go_on()")
    page.wait("document.querySelector('tbody') && !document.querySelector('.waiting')")


def test_a_slow_server_is_left_alone_for_a_while(page: Page, dump: Dashboard) -> None:
    shown(page, dump, "claims")
    page.wait("document.querySelector('tbody')")
    page.eval(
        "window.asked = []; const real = fetch; window.fetch = async (path, o) => {"
        "if (path.startsWith('api/claims')) { asked.push(performance.now());"
        "await new Promise((go) => setTimeout(go, 400)); } return real(path, o); };"
    )
    page.eval(
        "import('/assets/app/store.js').then(s => { s.changed(); s.changed(); setTimeout(s.changed, 450) })"
    )
    page.wait("asked.length === 2")
    # The second time after the answer, which took 400 ms, and a rest as long.
    assert page.eval("asked[1] - asked[0]") >= 780
    page.eval("import('/assets/app/store.js').then(s => s.retry())")  # somebody presses a button: at once
    page.wait("asked.length >= 3")
