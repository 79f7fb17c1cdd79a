"""Every page shows what the server tells, has a title and an address of its own."""

from __future__ import annotations

import json

import pytest

from plimsoll.tools.dashboard import Dashboard
from tests.browser.chromium import Page
from tests.browser.served import shown


@pytest.mark.parametrize(
    ("path", "title", "texts"),
    [
        (
            "",
            "Overview",
            [
                "1 node past its line",
                "3 pods pending",
                "5 audit findings",
                "1 device free of 6: 3 partly, 1 taken, 1 unavailable",
                "Of the free, 16 is on nodes that take no pods.",
                "1 free, 1 partly",
                "1 partly of 1",
                "2.5 past",
                "shop/giant",
                "cordoned",
                "not ready",
            ],
        ),
        ("nodes/past-1", "Node past-1", ["2.5 past the line", "shop/web-1", "ledger-claim"]),
        ("devices", "Devices", ["gpu-0-whole", "blocked", "eth1", "partly"]),
        ("pools", "Pools", ["complete", "gpu-0/memory", "40Gi of 80Gi left"]),
        ("claims", "Claims", ["shop/trading", "CPUs 2-5,34-37", "cpu 8", "free"]),
        ("pending", "Pending pods", ["shop/nowhere", "3 pods pending", "Insufficient cpu"]),
        ("namespaces", "Namespaces", ["shop", "24 + 28 + 0 = 52"]),
        ("audit", "Audit", ["PLM001", "Node/past-1", "Fix"]),
        ("whatif", "What if", ["Scheduled in memory only"]),
        (
            "explain/pod/shop/giant",
            "Pod shop/giant",
            ["pending", "Nearest fix", "Why, by node", "requests 500"],
        ),
        ("explain/claim/shop/trading", "Claim shop/trading", ["allocated", "dra.cpu/numa-1/cpus"]),
    ],
)
def test_every_page(page: Page, dump: Dashboard, path: str, title: str, texts: list[str]) -> None:
    shown(page, dump, path)
    page.wait(f"document.title === {title + ' - Plimsoll'!r}")
    for text in texts:
        page.wait(f"document.querySelector('main').innerText.replace(/\\s+/g, ' ').includes({text!r})")


def test_an_address_without_a_page(page: Page, dump: Dashboard) -> None:
    shown(page, dump, "no/such%page")
    assert "No such page" in page.text()


def test_a_node_that_is_not_there(page: Page, dump: Dashboard) -> None:
    page.go(f"{dump.url}#/nodes/nobody")
    page.wait_text("node nobody not found", "[role=alert]")
    assert page.text("h1") == "nobody"
    page.problems.clear()  # the 404 that was asked for


def test_the_back_button_and_links(page: Page, dump: Dashboard) -> None:
    shown(page, dump, "")
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


def test_nodes_are_found_filtered_and_ordered(page: Page, dump: Dashboard) -> None:
    names = "[...document.querySelectorAll('.node-name a')].map(a => a.textContent).join(' ')"
    shown(page, dump, "?sort=name")
    page.wait(f"{names} === 'gpu-1 idle-1 lost-1 numa-1 past-1'")
    shown(page, dump, "?show=past")
    page.wait(f"{names} === 'past-1'")
    shown(page, dump, "?show=down&sort=name")
    page.wait(f"{names} === 'idle-1 lost-1'")
    shown(page, dump, "?sort=free:memory")
    page.wait(f"{names} === 'past-1 idle-1 lost-1 gpu-1 numa-1'")
    shown(page, dump, "?sort=pods")
    page.wait(f"{names}.startsWith('numa-1 gpu-1')")
    shown(page, dump, "")
    page.click("[data-search]")
    page.type("1")
    page.type("-")
    page.wait("document.querySelector('.nodes .empty')")
    page.eval("document.querySelector('[data-search]').select()")
    page.type("GPU")
    page.wait(f"{names} === 'gpu-1' && location.hash === '#/?q=GPU'")


def test_resources_are_chosen(page: Page, dump: Dashboard) -> None:
    shown(page, dump, "")
    heads = "[...document.querySelectorAll('[role=columnheader]')].map(e => e.textContent).join(' ')"
    page.wait(f"{heads} === 'Node Devices cpu memory'")
    page.eval("document.querySelectorAll('.checks input')[2].click()")
    page.wait(f"{heads} === 'Node Devices cpu memory ephemeral-storage'")
    page.eval("document.querySelectorAll('.checks input')[1].click()")
    page.wait(f"{heads} === 'Node Devices cpu ephemeral-storage'")
    assert page.eval("location.hash") == "#/?resources=cpu%2Cephemeral-storage"


def test_a_bar_says_in_words_what_it_shows(page: Page, dump: Dashboard) -> None:
    shown(page, dump, "")
    page.wait("document.querySelector('.bar')")
    assert page.eval("document.querySelector('.bar').getAttribute('aria-label')") == (
        "cpu: requests 6.5, claims 4; 2.5 PAST THE LINE; line 8"
    )
    # What is taken fills the bar beyond the mark of the line, and what is past it has a part of its own.
    spot = "document.querySelector('.bar {}').getBoundingClientRect()"
    assert page.eval(f"{spot.format('.seg-past')}.left >= {spot.format('.line-mark')}.left")
    assert page.eval("document.querySelectorAll('.node-list .seg-past').length") == 1


def test_holders_are_sorted_by_their_heads(page: Page, dump: Dashboard) -> None:
    shown(page, dump, "nodes/past-1")
    first = "document.querySelector('#main tbody tr').innerText.replace(/\\s+/g, ' ')"
    page.wait(f"{first}.startsWith('shop/web-1 cpu 5')")
    page.click("th:nth-child(3) .head-button")
    page.wait(f"{first}.includes('Gi') && document.querySelector('[aria-sort=descending]')")
    page.click("th:nth-child(3) .head-button")
    page.wait(f"{first}.includes('1.5') && document.querySelector('[aria-sort=ascending]')")
    page.click("th:nth-child(3) .head-button")
    page.wait(f"{first}.startsWith('shop/web-1 cpu 5') && !document.querySelector('[aria-sort]')")


def test_the_map_of_cpus(page: Page, dump: Dashboard) -> None:
    shown(page, dump, "nodes/numa-1")
    page.wait("document.querySelectorAll('.cpu-map .cpu').length === 66")
    label = "document.querySelector('[data-cpu=\"{}\"]').getAttribute('aria-label')"
    assert page.eval(label.format(35)) == "CPU 35, core 3, NUMA 0, claim shop/trading"
    assert page.eval(label.format(0)) == "CPU 0, core 0, NUMA 0, reserved"
    assert page.eval(label.format(63)) == "CPU 63, core 31, NUMA 3, shared pool"
    assert page.eval(label.format(64)) == "CPU 64, offline"
    # The letter is a sign besides the colour, and the legend says whose it is.
    letters = "[...document.querySelectorAll('.cpu-map .cpu')].map(e => e.innerText[0]).join('')"
    assert page.eval(letters).count("C") == 12
    legend = page.text(".cpu-legend")
    assert "12 CPUs: 16-21,48-53" in legend
    assert "shop/video" in legend
    page.click("[data-cpu='8']")
    page.wait("document.querySelectorAll('.cpu-map .cpu:not(.is-dim)').length === 4")
    page.wait_text("CPU 8, core 8, NUMA 1, claim shop/packet", ".cpu-told")


def test_shares_and_partitions(page: Page, dump: Dashboard) -> None:
    shown(page, dump, "nodes/gpu-1")
    words = "[...document.querySelectorAll('.share')].map(e => e.getAttribute('aria-label'))"
    page.wait(f"{words}.length === 2")
    told = page.eval(words)
    assert "bandwidth: 7500M of 10G used, shop/backup 3G, shop/chat 500M, shop/stream 4G" in told
    parts = "[...document.querySelectorAll('.share-track')].at(-1).children"
    assert page.eval(f"[...{parts}].map(e => e.style.width)") == ["30%", "5%", "40%"]
    assert "partition, draws memory 80Gi" in page.text()
    assert "gpu-0/memory: needs 80Gi, 40Gi left" in page.text()
    assert "1 taken, 1 free, 1 blocked, 1 partly" in page.text()
    # What is free and whole needs no bar.
    sizes = "[...document.querySelectorAll('.sizes')].map(e => e.innerText)"
    assert page.eval(sizes) == ["memory 80Gi", "memory 40Gi"]


def test_devices_are_searched_and_filtered(page: Page, dump: Dashboard) -> None:
    shown(page, dump, "devices?state=blocked")
    page.wait("document.querySelectorAll('tbody tr').length === 1")
    assert "gpu-0-whole" in page.text("tbody")
    shown(page, dump, "devices?q=eth")
    page.wait("document.querySelectorAll('tbody tr').length === 1")
    shown(page, dump, "devices?q=nothing-like-it")
    page.wait_text("No device is like that.")


def test_why_a_pod_is_pending_opens_in_its_place(page: Page, dump: Dashboard) -> None:
    shown(page, dump, "pending")
    page.click(".pending-pod summary")
    page.wait_text("Nearest fix", ".pending-pod .explanation")
    page.click(".pending-pod .group:not([open]) > summary")
    page.wait("document.querySelectorAll('.pending-pod .group[open]').length === 2")


def test_an_audit_is_searched(page: Page, dump: Dashboard) -> None:
    shown(page, dump, "audit?severity=error")
    page.wait("document.querySelectorAll('.check').length === 1")
    assert "requests 6500m, claims 4" in page.text(".evidence")
    assert page.eval("document.querySelector('.subject a').getAttribute('href')") == "#/nodes/past-1"
    shown(page, dump, "audit?q=no-such-thing")
    page.wait_text("No finding is like that.")


def test_what_tells_most_is_opened_and_fixes_say_whether_they_were_tried(page: Page, dump: Dashboard) -> None:
    shown(page, dump, "explain/pod/shop/whole-gpu")
    # The nearest fix is for gpu-1, although another group comes first in the answer.
    page.wait("document.querySelectorAll('.group[open]').length === 1")
    assert page.text(".group").startswith("Node gpu-1")
    assert page.eval("document.querySelector('.group').open")
    fixes = page.eval("[...document.querySelectorAll('.fixes li')].map(e => e.innerText)")
    assert fixes[0].startswith("Nearest fix 1 device short on gpu-1; without pod shop/train it fits")
    assert "tried: it fits then" in fixes[0]
    assert not any("tried" in fix for fix in fixes[1:])
    link = page.eval("document.querySelector('.fixes a').getAttribute('href')")
    assert link == "#/whatif?remove=Pod%2Fshop%2Ftrain&pod=shop%2Fwhole-gpu"
    told = page.eval(
        "import('/assets/app/explanation.js').then(e => ["
        "e.mostTelling([{rule: 'A', nodes: ['x']}, {rule: 'B', nodes: ['y']}], [{}, {node: 'y'}]),"
        "e.mostTelling([{rule: 'A'}, {rule: 'DynamicResources'}], [{node: 'z'}]),"
        "e.mostTelling([{rule: 'A'}, {rule: 'B'}], [])])"
    )
    assert told == [1, 1, 0]


def test_pools_are_searched_and_lead_to_their_devices(page: Page, dump: Dashboard) -> None:
    shown(page, dump, "pools?q=nic")
    page.wait("document.querySelectorAll('tbody tr').length === 1")
    page.click("tbody th a")
    page.wait(
        "location.hash.startsWith('#/devices?q=') && document.querySelectorAll('tbody tr').length === 1"
    )
    assert "eth1" in page.text("tbody")


def test_numbers_as_people_read_them(page: Page, dump: Dashboard) -> None:
    shown(page, dump, "")
    amounts = [("cpu", 3500), ("cpu", -1), ("cpu", 128000), ("cpu", 5000000), ("memory", 32 * 2**30)]
    amounts += [("memory", 1), ("memory", 2**40 - 1), ("gpus", 5000)]
    asked = json.dumps(amounts)
    told = page.eval(f"import('/assets/app/format.js').then(f => {asked}.map(a => f.amount(...a)))")
    assert told == ["3.5", "-0.001", "128", "5,000", "32Gi", "1", "1Ti", "5,000"]
    told = page.eval(
        "import('/assets/app/format.js').then(f => [f.ranges([5, 0, 1, 2]), f.ranges([]),"
        "f.percent(1, 400), f.percent(1, 0), f.plural(1, 'pod'), f.plural(2, 'pod')])"
    )
    assert told == ["0-2,5", "", "<1%", "over", "1 pod", "2 pods"]
    short = [["memory", "55360Mi"], ["cpu", "22500m"], ["gpus", "12"], ["memory", "none"]]
    told = page.eval(f"import('/assets/app/format.js').then(f => {short}.map(a => f.shorten(...a)))")
    assert told == ["54.1Gi", "22.5", "12", "none"]
    sizes = ["1", "1500m", "7500M", "2Ki", "1e3", "-4G", "500u", "nonsense", ""]
    expected = [1, 1.5, 7.5e9, 2048, 1000, -4e9, 0.0005, 0, 0]
    assert page.eval(f"import('/assets/app/format.js').then(f => {sizes!r}.map(f.sizeOf))") == pytest.approx(
        expected
    )
