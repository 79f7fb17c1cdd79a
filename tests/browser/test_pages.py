"""Pages: content, titles, URLs, filters and links."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from plimsoll.api.quantity import Quantity
from plimsoll.apiserver.tables.row import format_duration
from plimsoll.tools.amounts import format_short, percent
from plimsoll.tools.dashboard import Dashboard
from plimsoll.tools.top.device_reports import format_capacity
from tests.browser.chromium import Page
from tests.browser.clusters import cpu_share, device_class, node, pinned, pod, resource_slice
from tests.browser.dashboards import DashboardRunner, open_page
from tests.dumps import make_cluster_state

#: Path, title and texts of each page.
EVERY_PAGE: list[tuple[str, str, list[str]]] = [
    (
        "",
        "Overview",
        [
            "1 node past its line",
            "3 pods pending",
            "5 audit findings",
            "0 devices free of 4: 4 partly",
            "16 of the free amount is on unschedulable nodes.",
            "1 partly of 1",
            "2.5 past",
            "shop/giant",
            "SchedulingDisabled",
            "NotReady",
        ],
    ),
    ("nodes/past-1", "Node past-1", ["2.5 past the line", "shop/web-1", "ledger-claim"]),
    ("devices", "Devices", ["gpu-0", "3 partitions: 1 taken, 1 free, 1 blocked", "eth1", "partly"]),
    ("pods", "Pods", ["shop/giant", "500", "gpu-0-half-0", "eth1 bandwidth 4G"]),
    ("history", "History", ["A dump has no history"]),
    ("pools", "Pools", ["complete", "gpu-0/memory", "40Gi of 80Gi left"]),
    ("claims", "Claims", ["shop/trading", "CPUs 2-5,34-37", "cpu 8", "pending", "allocated,reserved"]),
    ("pending", "Pending pods", ["shop/nowhere", "3 pods pending", "Insufficient cpu"]),
    ("namespaces", "Namespaces", ["shop", "24 + 28 + 0 = 52"]),
    ("audit", "Audit", ["PLM001", "Node/past-1", "Fix"]),
    ("whatif", "What if", ["Simulated in memory"]),
    (
        "explain/pod/shop/giant",
        "Pod shop/giant",
        ["pending", "Nearest fix", "Reasons by node", "requests 500"],
    ),
    ("explain/claim/shop/trading", "Claim shop/trading", ["allocated", "dra.cpu/numa-1/cpus"]),
]


def test_every_page(page: Page, dump: Dashboard) -> None:
    for path, title, texts in EVERY_PAGE:
        open_page(page, dump, path)
        page.wait(f"document.title === {title + ' - Plimsoll'!r}")
        for text in texts:
            page.wait(f"document.querySelector('main').innerText.replace(/\\s+/g, ' ').includes({text!r})")


def test_claims_that_are_not_counted(page: Page, runner: DashboardRunner) -> None:
    mapped = cpu_share(16)
    plain = {key: value for key, value in mapped.items() if key != "nodeAllocatableResourceMappings"}
    things = [
        node("n1"),
        device_class("cpu", "dra.cpu"),
        resource_slice("dra.cpu", "n1", [plain]),
        pod("web", "n1", cpu="4350m"),
        pod("train", "n1", cpu="1", claims=("train",)),
        pinned("train", "n1", 6),
    ]
    shown = runner.dump(make_cluster_state(things))
    past = "n1: cpu 10.35 of 8 with them, 2.35 past the line"
    open_page(page, shown, "")
    for text in (
        "0 nodes past their line of 1; 1 more with claims that are not counted",
        "1 claim 1 not counted",
        "Not counted: 1 claim of dra.cpu takes cpu 5 of node n1 without a mapping.",
        past,
        "2.65 free, 5 not counted",
    ):
        page.wait(f"document.querySelector('main').innerText.replace(/\\s+/g, ' ').includes({text!r})")
    open_page(page, shown, "nodes/n1")
    for text in (past, "2.35 past the line with claims that are not counted.", "not counted 5"):
        page.wait(f"document.querySelector('main').innerText.replace(/\\s+/g, ' ').includes({text!r})")
    open_page(page, shown, "claims")
    page.wait_text("cpu 5 not counted", "main")
    counted = runner.dump(make_cluster_state(things, assume_mapping=True))
    open_page(page, counted, "")
    page.wait_text("claims for cpu of dra.cpu are counted", "main")
    page.wait_text("2.35 past", "main")


def test_unknown_url(page: Page, dump: Dashboard) -> None:
    open_page(page, dump, "no/such%page")
    assert "Page not found" in page.text()


def test_unknown_node(page: Page, dump: Dashboard) -> None:
    page.go(f"{dump.url}#/nodes/missing")
    page.wait_text("node missing not found", "[role=alert]")
    assert page.text("h1") == "missing"
    page.problems.clear()  # the expected 404


def test_back_button_and_links(page: Page, dump: Dashboard) -> None:
    open_page(page, dump, "")
    page.click(".node-name a")
    page.wait_text("past-1", "h1")
    page.click("#main a[href='#/explain/pod/shop/web-1']")
    page.wait_text("shop/web-1", "h1")
    page.eval("history.back()")
    page.wait_text("past-1", "h1")
    page.eval("history.back()")
    page.wait_text("Cluster ledger", "h1")
    page.eval("history.forward()")
    page.wait_text("past-1", "h1")


def test_nodes_are_searched_filtered_and_sorted(page: Page, dump: Dashboard) -> None:
    names = "[...document.querySelectorAll('.node-name a')].map(a => a.textContent).join(' ')"
    open_page(page, dump, "?sort=name")
    page.wait(f"{names} === 'gpu-1 idle-1 lost-1 numa-1 past-1'")
    open_page(page, dump, "?show=past")
    page.wait(f"{names} === 'past-1'")
    open_page(page, dump, "?show=down&sort=name")
    page.wait(f"{names} === 'idle-1 lost-1'")
    open_page(page, dump, "?sort=free:memory")
    page.wait(f"{names} === 'past-1 idle-1 lost-1 gpu-1 numa-1'")
    open_page(page, dump, "?sort=pods")
    page.wait(f"{names}.startsWith('numa-1 gpu-1')")
    open_page(page, dump, "")
    page.click("[data-search]")
    page.type("1")
    page.type("-")
    page.wait("document.querySelector('.nodes .empty')")
    page.eval("document.querySelector('[data-search]').select()")
    page.type("GPU")
    page.wait(f"{names} === 'gpu-1' && location.hash === '#/?q=GPU'")


def test_resources_are_selected(page: Page, dump: Dashboard) -> None:
    open_page(page, dump, "")
    heads = "[...document.querySelectorAll('[role=columnheader]')].map(e => e.textContent).join(' ')"
    page.wait(f"{heads} === 'Node Devices cpu memory'")
    page.eval("document.querySelectorAll('.checks input')[2].click()")
    page.wait(f"{heads} === 'Node Devices cpu memory ephemeral-storage'")
    page.eval("document.querySelectorAll('.checks input')[1].click()")
    page.wait(f"{heads} === 'Node Devices cpu ephemeral-storage'")
    assert page.eval("location.hash") == "#/?resources=cpu%2Cephemeral-storage"


def test_bars_have_text_labels(page: Page, dump: Dashboard) -> None:
    open_page(page, dump, "")
    page.wait("document.querySelector('.bar')")
    assert page.eval("document.querySelector('.bar').getAttribute('aria-label')") == (
        "cpu: requests 6.5, claims 4; 2.5 PAST THE LINE; line 8"
    )
    # The used amount extends beyond the line, and the part past the line has its own segment.
    spot = "document.querySelector('.bar {}').getBoundingClientRect()"
    assert page.eval(f"{spot.format('.seg-past')}.left >= {spot.format('.line-mark')}.left")
    assert page.eval("document.querySelectorAll('.node-list .seg-past').length") == 1


def test_pods_of_a_node_are_sorted_by_column(page: Page, dump: Dashboard) -> None:
    open_page(page, dump, "nodes/past-1")
    table = "document.querySelector('[aria-label=\"Pods of this node\"]')"
    first = f"{table}.querySelector('tbody tr').innerText.replace(/\\s+/g, ' ')"
    page.wait(f"{first}.startsWith('shop/ledger-claim Running 4 claims 4 1Gi cpus cpu 4')")
    column = "[aria-label='Pods of this node'] th:nth-child(3) .head-button"
    page.click(column)
    page.wait(
        f"{first}.startsWith('shop/web-1 Running 5 1Gi') && document.querySelector('[aria-sort=descending]')"
    )
    page.click(column)
    page.wait(
        f"{first}.startsWith('shop/web-2 Running 1.5') && document.querySelector('[aria-sort=ascending]')"
    )
    page.click(column)
    page.wait(f"{first}.startsWith('shop/ledger-claim') && !document.querySelector('[aria-sort]')")


def test_cpu_map(page: Page, dump: Dashboard) -> None:
    open_page(page, dump, "nodes/numa-1")
    page.wait("document.querySelectorAll('.cpu-map .cpu').length === 66")
    label = "document.querySelector('[data-cpu=\"{}\"]').getAttribute('aria-label')"
    assert page.eval(label.format(35)) == "CPU 35, core 3, NUMA 0, claim shop/trading"
    assert page.eval(label.format(0)) == "CPU 0, core 0, NUMA 0, reserved"
    assert page.eval(label.format(63)) == "CPU 63, core 31, NUMA 3, shared pool"
    assert page.eval(label.format(64)) == "CPU 64, offline"
    # Claims are identified by a letter as well as by color; the legend names them.
    letters = "[...document.querySelectorAll('.cpu-map .cpu')].map(e => e.innerText[0]).join('')"
    assert page.eval(letters).count("C") == 12
    legend = page.text(".cpu-legend")
    assert "12 CPUs: 16-21,48-53" in legend
    assert "shop/video" in legend
    page.click("[data-cpu='8']")
    page.wait("document.querySelectorAll('.cpu-map .cpu:not(.is-dim)').length === 4")
    page.wait_text("CPU 8, core 8, NUMA 1, claim shop/packet", ".cpu-detail")


def test_shares_and_partitions(page: Page, dump: Dashboard) -> None:
    open_page(page, dump, "nodes/gpu-1")
    page.wait("document.querySelectorAll('.strip').length === 1")
    # Devices come first on this node, those in use before the others.
    headings = page.eval("[...document.querySelectorAll('h2')].map(e => e.innerText)")
    assert headings[:3] == ["Devices", "Ledger", "4 pods"]
    strip = "document.querySelector('.strip')"
    assert page.eval(f"{strip}.getAttribute('aria-label')") == "gpu-0: gpu-0-half-0 shop/train"
    assert page.eval(f"[...{strip}.children].map(e => e.style.width)") == ["50%"]
    bar = "document.querySelector('.share:has(.shade-1)')"
    assert page.eval(f"{bar}.getAttribute('aria-label')") == (
        "bandwidth: 7500M of 10G used, shop/backup 3G, shop/chat 500M, shop/stream 4G"
    )
    parts = f"{bar}.querySelector('.share-track').children"
    assert page.eval(f"[...{parts}].map(e => e.style.width)") == ["30%", "5%", "40%"]
    assert "memory 40Gi of 80Gi left" in page.text()
    page.eval("document.querySelectorAll('.rest').forEach(e => { e.open = true; })")
    assert "gpu-0-whole blocked gpu-0/memory: needs 80Gi, 40Gi left" in page.text(".part-list")


def test_devices_are_searched_and_filtered(page: Page, dump: Dashboard) -> None:
    open_page(page, dump, "devices?state=blocked")
    page.wait("document.querySelectorAll('tbody tr').length === 1")
    assert "gpu-0" in page.text("tbody")
    open_page(page, dump, "devices?q=eth")
    page.wait("document.querySelectorAll('tbody tr').length === 1")
    open_page(page, dump, "devices?q=nothing-like-it")
    page.wait_text("No devices match the filter.")


def test_pending_pods_expand_in_place(page: Page, dump: Dashboard) -> None:
    open_page(page, dump, "pending")
    page.click(".pending-pod summary")
    page.wait_text("Nearest fix", ".pending-pod .explanation")
    page.click(".pending-pod .group:not([open]) > summary")
    page.wait("document.querySelectorAll('.pending-pod .group[open]').length === 2")


def test_audit_findings_are_searched(page: Page, dump: Dashboard) -> None:
    open_page(page, dump, "audit?severity=error")
    page.wait("document.querySelectorAll('.check').length === 1")
    assert "requests 6.5, claims 4" in page.text(".evidence")
    assert page.eval("document.querySelector('.subject a').getAttribute('href')") == "#/nodes/past-1"
    open_page(page, dump, "audit?q=no-such-thing")
    page.wait_text("No findings match the filter.")


def test_group_of_the_nearest_fix_is_expanded(page: Page, dump: Dashboard) -> None:
    open_page(page, dump, "explain/pod/shop/whole-gpu")
    # The nearest fix is for gpu-1, although another group is first in the response.
    page.wait("document.querySelectorAll('.group[open]').length === 1")
    assert page.text(".group").startswith("Node gpu-1")
    assert page.eval("document.querySelector('.group').open")
    fixes = page.eval("[...document.querySelectorAll('.fixes li')].map(e => e.innerText)")
    assert fixes[0].startswith("Nearest fix request r: select memory 40Gi instead of 80Gi (on gpu-1)")
    assert [fix for fix in fixes if "remove pod shop/train from node gpu-1" in fix]
    assert all("simulated: the pod fits" in fix for fix in fixes)
    link = page.eval("document.querySelector('.fixes a').getAttribute('href')")
    assert link == "#/whatif?remove=Pod%2Fshop%2Ftrain&pod=shop%2Fwhole-gpu"
    indices = page.eval(
        "import('/assets/app/explanation.js').then(e => ["
        "e.initialGroup([{rule: 'A', nodes: ['x']}, {rule: 'B', nodes: ['y']}], [{}, {node: 'y'}]),"
        "e.initialGroup([{rule: 'A'}, {rule: 'DynamicResources'}], [{node: 'z'}]),"
        "e.initialGroup([{rule: 'A'}, {rule: 'B'}], [])])"
    )
    assert indices == [1, 1, 0]


def test_pools_are_searched_and_link_to_their_devices(page: Page, dump: Dashboard) -> None:
    open_page(page, dump, "pools?q=nic")
    page.wait("document.querySelectorAll('tbody tr').length === 1")
    page.click("tbody th a")
    page.wait(
        "location.hash.startsWith('#/devices?q=') && document.querySelectorAll('tbody tr').length === 1"
    )
    assert "eth1" in page.text("tbody")


def test_number_formats(page: Page, dump: Dashboard) -> None:
    open_page(page, dump, "")
    amounts = [("cpu", 3500), ("cpu", -1), ("cpu", 128000), ("cpu", 5000000), ("memory", 32 * 2**30)]
    amounts += [
        ("memory", 1),
        ("memory", -(2**40 - 1)),
        ("hugepages-2Mi", 20324 * 2**20),
        ("example.com/gpu", 5000),
    ]
    arguments = json.dumps(amounts)
    texts = page.eval(f"import('/assets/app/format.js').then(f => {arguments}.map(a => f.amount(...a)))")
    assert texts == [format_short(*each) for each in amounts]
    shares = [(1, 400), (399, 400), (5, 4), (0, 4), (0, 0), (1, 0), (-1, 4)]
    texts = page.eval(
        f"import('/assets/app/format.js').then(f => {json.dumps(shares)}.map(s => f.percent(...s)))"
    )
    assert texts == [percent(*each) for each in shares]
    texts = page.eval(
        "import('/assets/app/format.js').then(f => [f.ranges([5, 0, 1, 2]), f.ranges([]),"
        "f.plural(1, 'pod'), f.plural(2, 'pod')])"
    )
    assert texts == ["0-2,5", "", "1 pod", "2 pods"]
    seconds = [-2, -1, 0, 59, 119, 120, 599, 601, 10800, 20000, 90000, 172800, 700000, 63072000, 3e8]
    texts = page.eval(f"import('/assets/app/format.js').then(f => {seconds}.map(f.duration))")
    assert texts == [format_duration(timedelta(seconds=each)) for each in seconds]
    short = [["memory", "55360Mi"], ["cpu", "22500m"], ["gpus", "12"], ["memory", "none"]]
    texts = page.eval(f"import('/assets/app/format.js').then(f => {short}.map(a => f.shorten(...a)))")
    assert texts == ["54Gi", "22.5", "12", "none"]
    quantities = ["9850m", "-500m", "4", "10G", "2Gi", "5u"]
    texts = page.eval(f"import('/assets/app/format.js').then(f => {quantities}.map(one => f.quantity(one)))")
    assert texts == [format_capacity("x", Quantity.parse(each)) for each in quantities]
    memory = ["42949672960", "81008Mi", "0", "1500Gi"]
    texts = page.eval(
        f"import('/assets/app/format.js').then(f => {memory}.map(one => f.quantity(one, 'a/memory')))"
    )
    assert texts == [format_capacity("a/memory", Quantity.parse(each)) for each in memory]
    sizes = ["1", "1500m", "7500M", "2Ki", "1e3", "-4G", "500u", "nonsense", ""]
    expected = [1, 1.5, 7.5e9, 2048, 1000, -4e9, 0.0005, 0, 0]
    assert page.eval(f"import('/assets/app/format.js').then(f => {sizes!r}.map(f.sizeOf))") == pytest.approx(
        expected
    )
