"""Empty, loading and error states, and long names."""

from __future__ import annotations

import json
from typing import Any

import pytest

from plimsoll.tools.dashboard import Dashboard, event_stream
from tests.browser.chromium import Page
from tests.browser.clusters import CPU, cpu_share, device_class, node, pinned, pod, resource_slice
from tests.browser.dashboards import DashboardRunner, open_page
from tests.dumps import big_cluster, make_cluster_state
from tests.unit.tools.cluster_state.fake_api_server import FakeApiServer
from tests.waiting import until, wait_until

#: Names of maximum length.
LONG = "ip-10-23-145-201.eu-central-1.compute.internal." + "very-long-name-" * 13 + "x"
WORKER = "checkout-payment-reconciliation-worker-canary-deployment-7d9f8b6c5d-" + "x2x4z" * 10


@pytest.fixture(scope="module")
def empty_nodes(runner: DashboardRunner) -> Dashboard:
    """Two nodes without pods; one reports a huge page size with amount 0."""
    trees = [node("n1"), node("n2")]
    for key in ("allocatable", "capacity"):
        trees[0]["status"][key] = {**trees[0]["status"][key], "hugepages-1Gi": "0"}
    return runner.dump(make_cluster_state(trees))


@pytest.fixture(scope="module")
def long_names(runner: DashboardRunner) -> Dashboard:
    trees = [node(LONG, "96"), device_class("cpu", CPU), resource_slice(CPU, LONG, [cpu_share(96)])]
    trees += [
        pinned(WORKER, LONG, 4, "0-3"),
        pod(WORKER, LONG, cpu="0", claims=(WORKER,)),
        pod("w" * 250, cpu="500"),
    ]
    return runner.dump(make_cluster_state(trees))


def test_empty_lists(page: Page, empty_nodes: Dashboard) -> None:
    for path, text in (
        ("", "0 nodes past their line"),
        ("", "0 devices free no ResourceSlice publishes any"),
        ("?q=missing", "No nodes match the filter."),
        ("nodes/n1", "Nothing is charged to this node."),
        ("nodes/n1", "No devices found: no ResourceSlice of this node publishes any."),
        ("devices", "No devices found: no ResourceSlice publishes any."),
        ("devices?q=x", "No devices match the filter."),
        ("pools", "No pools found: there are no ResourceSlices."),
        ("claims", "No claims found."),
        ("claims?state=free", "No claims match the filter."),
        ("pending", "No pods are pending."),
        ("pending?q=x", "No pending pods match the filter."),
        ("namespaces", "No pods or claims found."),
        ("audit", "No findings, but some checks were skipped."),
    ):
        open_page(page, empty_nodes, path)
        page.wait(f"document.querySelector('main').innerText.replace(/\\s+/g, ' ').includes({text!r})")


def test_layout_is_stable_while_reasons_load(page: Page, dump: Dashboard) -> None:
    open_page(page, dump, "claims")
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


def test_absent_resources_are_hidden(page: Page, empty_nodes: Dashboard) -> None:
    for path in ("", "nodes/n1", "whatif"):
        open_page(page, empty_nodes, path)
        if path == "whatif":
            page.click("button.primary")
            page.wait("document.querySelector('.whatif-result')")
        assert "hugepages" not in page.text()


@pytest.mark.parametrize("width", [400, 1280])
def test_long_names_fit(page: Page, long_names: Dashboard, width: int) -> None:
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
        open_page(page, long_names, path)
        page.wait("document.querySelector('main a, main button, main summary')")
        assert page.eval("document.documentElement.scrollWidth") <= width, path
    open_page(page, long_names, "")
    page.wait(f"document.querySelector('.node-name a').title === {LONG!r}")
    # The name takes one line.
    assert page.eval("document.querySelector('.node-name a').getBoundingClientRect().height") < 40


def test_unreachable_cluster(page: Page, runner: DashboardRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    api_server = FakeApiServer(big_cluster(2, pending=0))
    dashboard = runner.following(api_server.client())
    service = dashboard.service

    async def set_dead(dead: bool) -> None:
        api_server.dead = dead
        api_server.cut()

    async def close_streams() -> None:
        service.events.end()
        await until(lambda: not len(service.events))

    async def read_errors() -> list[str]:
        result: list[str] = json.loads((await service.overview()).body)["troubles"]
        return result

    open_page(page, dashboard, "")
    page.wait_text("Live", ".live")
    runner.run(set_dead(True))
    page.wait_text("Cluster unreachable", ".live")
    page.wait_text("The page shows the last known state.", ".notice.is-error")
    assert page.eval("document.querySelectorAll('.notice li').length") <= 2  # one message for several kinds
    open_page(page, dashboard, "claims")  # shown on every page
    page.wait_text("Cluster unreachable", ".live")
    # The cluster is back while the page has no event stream.
    monkeypatch.setattr(event_stream, "MOST_LISTENERS", 0)
    runner.run(close_streams())
    runner.run(set_dead(False))
    wait_until(lambda: runner.run(read_errors()), lambda found: not found)
    monkeypatch.undo()
    page.wait_text("Live", ".live")
    open_page(page, dashboard, "")
    page.wait("!document.querySelector('.notice')")


def test_a_hidden_page_misses_nothing(
    page: Page, runner: DashboardRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change while it has no event stream, then one of another kind, both while it is hidden."""
    api_server = FakeApiServer(big_cluster(2, pending=0))
    dashboard = runner.following(api_server.client())
    service = dashboard.service

    async def close_streams() -> None:
        service.events.end()
        await until(lambda: not len(service.events))

    async def emit(tree: dict[str, Any]) -> None:
        revision = service.revision
        api_server.emit("ADDED", tree)
        await until(lambda: service.revision > revision)

    open_page(page, dashboard, "namespaces")
    page.wait_text("Live", ".live")
    page.eval(
        "window.away = true; window.kinds = [];"
        "Object.defineProperty(document, 'hidden', { configurable: true, get: () => window.away })"
    )
    monkeypatch.setattr(event_stream, "MOST_LISTENERS", 0)
    runner.run(close_streams())
    page.wait_text("Reconnecting", ".live")
    elsewhere = pod("new")
    elsewhere["metadata"]["namespace"] = "elsewhere"
    runner.run(emit(elsewhere))
    monkeypatch.undo()
    page.wait_text("Live", ".live")
    page.eval(
        "new EventSource('api/events').addEventListener("
        "'change', (event) => kinds.push(...JSON.parse(event.data).kinds)); null"
    )
    runner.run(until(lambda: len(service.events) == 2))
    runner.run(emit(node("another")))
    page.wait("kinds.includes('Node')")
    assert "elsewhere" not in page.text()
    page.eval("away = false; document.dispatchEvent(new Event('visibilitychange')); null")
    page.wait_text("elsewhere", "main")


def test_unreachable_server(page: Page, runner: DashboardRunner) -> None:
    cluster_state = make_cluster_state([node("n1")])
    first = runner.dump(cluster_state)
    open_page(page, first, "")
    port = int(first.url.rstrip("/").rpartition(":")[2])
    runner.stop(first)
    page.eval("location.hash = '#/claims'")
    page.wait_text("The dashboard server is not reachable.", "[role=alert]")
    assert page.text("h1") == "Claims"
    again = runner.dump(cluster_state, port)
    page.click("[role=alert] button")
    page.wait_text("No claims found.")
    runner.stop(again)
    page.problems.clear()  # refused connections


def test_loading_state(page: Page, dump: Dashboard) -> None:
    open_page(page, dump, "")
    page.eval(
        "const real = fetch; window.fetch = (path, o) => path.startsWith('api/claims')"
        "? new Promise((go) => { window.go_on = () => go(real(path, o)); }) : real(path, o)"
    )
    page.go(f"{dump.url}#/claims")
    page.wait_text("Loading claims", "[role=status]")
    page.wait("Boolean(window.go_on)")
    page.eval("go_on()")
    page.wait("document.querySelector('tbody') && !document.querySelector('.loading')")


def test_slow_responses_are_requested_less_often(page: Page, dump: Dashboard) -> None:
    open_page(page, dump, "claims")
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
    # The second request follows the response, which took 400 ms, and a pause of the same length.
    assert page.eval("asked[1] - asked[0]") >= 780
    page.eval("import('/assets/app/store.js').then(s => s.retry())")  # the button retries at once
    page.wait("asked.length >= 3")


@pytest.mark.parametrize(("cuts", "shown"), [(1, "tbody tr"), (2, "[role=alert]")])
def test_an_interrupted_response_is_requested_again_once(
    page: Page, dump: Dashboard, cuts: int, shown: str
) -> None:
    open_page(page, dump, "")
    page.eval(
        "const real = window.fetch; let cut = 0; window.fetch = async (...given) => {"
        "  const response = await real(...given);"
        f"  if (String(given[0]).includes('api/claims') && cut++ < {cuts})"
        "    response.text = () => Promise.reject(new TypeError('network error'));"
        "  return response; }; null"
    )
    page.eval("location.hash = '#/claims'; null")
    page.wait(f"document.querySelector('h1')?.innerText === 'Claims' && document.querySelector({shown!r})")
    assert ("was interrupted" in page.text()) == (cuts > 1)
