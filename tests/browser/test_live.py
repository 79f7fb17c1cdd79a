"""Live clusters: the page updates without a reload and keeps focus and open sections."""

from __future__ import annotations

from plimsoll.tools.dashboard import Dashboard
from plimsoll.up.local_cluster import LocalCluster
from tests.browser.chromium import Page
from tests.browser.dashboards import DashboardRunner, open_page

POD = """
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: default}}
spec:
  containers: [{{name: main, image: app, resources: {{requests: {{cpu: "{cpu}"}}}}}}]
"""
STAMP = "window.stamp === 1"  # set before the change: lost if the page is reloaded


def test_every_page_of_a_live_cluster(page: Page, live: Dashboard, cluster: LocalCluster) -> None:
    for path in (
        "",
        "nodes/node-0",
        "devices",
        "pools",
        "claims",
        "pending",
        "namespaces",
        "audit",
        "whatif",
    ):
        open_page(page, live, path)
        page.wait_text("Live", ".live")
    open_page(page, live, "devices")
    page.wait("document.querySelectorAll('tbody tr').length >= 3")


def test_a_change_appears_without_a_reload(page: Page, live: Dashboard, cluster: LocalCluster) -> None:
    open_page(page, live, "")
    page.wait_text("Live", ".live")
    page.wait("document.querySelectorAll('.node-row .bar').length >= 6")
    page.eval("window.stamp = 1; document.querySelectorAll('.node-name a')[1].focus()")
    focused = page.eval("document.activeElement.textContent")
    before = page.eval("performance.getEntriesByType('resource').length")
    cluster.apply(POD.format(name="fills", cpu="6"))
    page.wait("[...document.querySelectorAll('.node-row .bar')].some(b => b.innerText.startsWith('2 free'))")
    cluster.apply(POD.format(name="waits", cpu="64"))
    page.wait_text("default/waits", ".pending-few")
    assert page.eval(STAMP)
    assert page.eval("document.activeElement.textContent") == focused
    assert page.eval("performance.getEntriesByType('resource').length") > before
    for name in ("fills", "waits"):
        cluster.client.delete("Pod", name, namespace="default")
    page.wait(
        "[...document.querySelectorAll('.node-row .bar')]"
        ".filter(b => b.innerText.startsWith('8 free')).length === 3"
    )
    page.wait("!document.querySelector('.pending-few')")
    assert page.eval(STAMP)


def test_open_sections_and_focus_are_kept(page: Page, live: Dashboard, cluster: LocalCluster) -> None:
    cluster.apply(POD.format(name="first", cpu="64"))
    open_page(page, live, "pending")
    page.click(".pending-pod summary")
    page.wait_text("Insufficient cpu", ".explanation")
    page.eval("window.stamp = 1; document.querySelector('.explanation .group > summary').focus()")
    opened = page.eval("document.querySelectorAll('details[open]').length")
    cluster.apply(POD.format(name="second", cpu="65"))
    page.wait("document.querySelectorAll('.pending-pod').length === 2")
    assert page.eval(STAMP)
    assert page.eval("document.querySelectorAll('details[open]').length") == opened
    assert page.eval("document.activeElement.matches('.explanation .group > summary')")
    for name in ("first", "second"):
        cluster.client.delete("Pod", name, namespace="default")
    page.wait_text("No pods are pending.")
    # The explanation may have been requested once more after its pod was deleted.
    page.problems = [one for one in page.problems if "/api/explain/pod/default/first" not in one]


def test_only_visible_data_is_fetched_again(page: Page, live: Dashboard, cluster: LocalCluster) -> None:
    open_page(page, live, "nodes/node-0")
    page.wait_text("Live", ".live")
    open_page(page, live, "namespaces")
    page.record_requests()
    cluster.apply(POD.format(name="elsewhere", cpu="1"))
    page.wait("document.querySelector('tbody')?.innerText.includes('default')")
    asked = {url.partition("/api/")[2] for url in page.requests}
    assert any(path.startswith("namespaces?") for path in asked)
    assert "nodes/node-0" not in asked
    cluster.client.delete("Pod", "elsewhere", namespace="default")


def test_reconnect_to_a_restarted_server(page: Page, runner: DashboardRunner, cluster: LocalCluster) -> None:
    first = runner.live(cluster.config)
    open_page(page, first, "")
    page.wait_text("Live", ".live")
    page.eval("window.stamp = 1")
    port = int(first.url.rstrip("/").rpartition(":")[2])
    runner.stop(first)
    page.wait_text("Reconnecting", ".live")
    assert "Cluster ledger" in page.text()  # the last data stays
    second = runner.live(cluster.config, port)
    page.wait_text("Live", ".live")
    assert page.eval(STAMP)
    runner.stop(second)
    page.wait_text("Reconnecting", ".live")
    page.problems.clear()  # the closed connection


def test_a_dump_opens_no_event_stream(page: Page, dump: Dashboard) -> None:
    page.record_requests()
    open_page(page, dump, "")
    page.wait_text("Static dump", ".live")
    assert page.requests
    assert not [url for url in page.requests if url.endswith("/api/events")]
    assert page.eval("document.querySelector('.live').getAttribute('aria-live')") == "polite"
