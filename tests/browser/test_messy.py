"""The messy cluster: pages of bounded length, headings in one line, and nothing off screen on a phone."""

from __future__ import annotations

import pytest

from plimsoll.tools.dashboard import Dashboard
from tests.browser.chromium import Page
from tests.browser.dashboards import DashboardRunner, open_page
from tests.dumps import make_cluster_state
from tests.messy_cluster import CLAIMS, NODES, PODS, messy_cluster

#: Height of a page of 1400 pixels width, at most.
TALLEST = {"nodes/gpu-05": 2600, "nodes/numa-04": 2600, "devices": 2600, "pools": 2600, "pods": 2000}
#: First section of a node: devices of its own, if it has GPUs; those of a rack do not count.
FIRST = {"nodes/gpu-05": "Devices", "nodes/numa-04": "Ledger"}
#: Height of a page of 420 pixels width, at most. The overview and the audit have tests of their own.
TALLEST_ON_A_PHONE = {
    "nodes/gpu-05": 4200,
    "nodes/numa-04": 4200,
    "nodes/pinned-02": 4200,
    "devices": 2600,
    "pools": 2600,
    "pods": 2600,
    "claims": 2600,
    "pending": 2800,
    "namespaces": 2600,
    "history": 2600,
    "whatif": 2600,
}
HEIGHT = "document.documentElement.scrollHeight"
#: Elements that reach beyond the window.
OUTSIDE = (
    "[...document.querySelectorAll('main *, header *')].filter(e => e.getClientRects().length"
    " && e.getBoundingClientRect().right > innerWidth + 1 && !e.closest('.unseen, pre'))"
    ".map(e => e.tagName + '.' + e.className)"
)
#: Labels of cells that are too long for one line on a phone.
LONG_LABELS = (
    "[...document.querySelectorAll('td[data-label]:not(.stacked)')].map(e => e.dataset.label)"
    ".filter(text => text.length > 12)"
)
PAGER = "nav.pager span"


@pytest.fixture(scope="module")
def messy(runner: DashboardRunner) -> Dashboard:
    return runner.dump(make_cluster_state(messy_cluster()))


def texts(page: Page, selector: str) -> list[str]:
    """Return the visible texts of all matching elements."""
    found = page.eval(f"[...document.querySelectorAll({selector!r})].map(e => e.innerText)")
    assert isinstance(found, list)
    return found


def test_pages_are_of_bounded_length(page: Page, messy: Dashboard) -> None:
    page.resize(1400, 900)
    for path, height in TALLEST.items():
        open_page(page, messy, path)
        assert page.eval(HEIGHT) <= height, path
        if path in FIRST:
            assert page.text("h2") == FIRST[path], path


def test_overview(page: Page, messy: Dashboard) -> None:
    page.resize(1400, 900)
    open_page(page, messy, "")
    text = "document.querySelector('main').innerText.replace(/\\s+/g, ' ')"
    for words in (
        f"of {NODES}; 2 more with claims that are not counted",
        f"of {PODS}",
        f"{CLAIMS} claims 23 not counted",
        "of 504: 100 partly, 243 taken, 14 unavailable",
        "gpu 11 of 96 free",
        "nic 1155G of 2400G bandwidth left",
        "exclusive-cpu 54 of 192 free",
        "gpu.example.com 11 free, 44 partly of 96",
    ):
        page.wait(f"{text}.includes({words!r})")
    assert page.eval("document.querySelectorAll('.class-card').length") == 9
    assert page.eval("document.querySelectorAll('.not-counted.is-error').length") == 1
    lines = (
        "[...document.querySelectorAll('h2, h3, thead th, .class-card header, .ledger-card header')]"
        ".filter(e => e.getBoundingClientRect().height > 40).map(e => e.innerText)"
    )
    assert page.eval(lines) == []
    cut = "[...document.querySelectorAll('h3')].filter(e => e.scrollWidth > e.clientWidth + 1).length"
    assert page.eval(cut) == 0


def test_pages_on_a_phone(page: Page, messy: Dashboard) -> None:
    page.resize(420, 800)
    for path, height in TALLEST_ON_A_PHONE.items():
        open_page(page, messy, path)
        page.wait("document.querySelector('main').children.length > 1")
        assert page.eval(OUTSIDE) == [], path
        assert page.eval(LONG_LABELS) == [], path
        assert page.eval(HEIGHT) <= height, path
        if path == "namespaces":  # sums of a resource stay on one line
            tall = "[...document.querySelectorAll('.sums-list dd')].filter(e => e.clientHeight > 30).length"
            assert page.eval(tall) == 0


def test_overview_on_a_phone(page: Page, messy: Dashboard) -> None:
    page.resize(420, 800)
    open_page(page, messy, "")
    page.wait("document.querySelector('.windowed-row') && !document.querySelector('[aria-busy=true]')")
    assert page.eval(OUTSIDE) == []
    assert page.eval(HEIGHT) <= 4200
    # Nodes have pages, those past their line first.
    page.eval("document.querySelector('.node-list').scrollIntoView()")
    page.wait("document.querySelectorAll('.node-name a').length === 8")
    first = texts(page, ".node-name a")
    assert first[:3] == ["numa-04", "pinned-03", "pinned-05"]
    page.click(".nodes .pager button:last-child")
    page.wait_text(f"9-16 of {NODES}", PAGER)
    assert not set(texts(page, ".node-name a")) & set(first)
    # Classes are folded, but not one whose claims are not counted.
    shown = texts(page, ".class-card h3")
    assert len(shown) < 9
    assert "exclusive-cpu" in shown
    page.click(".availability .more button")
    page.wait("document.querySelectorAll('.class-card').length === 9")


def test_audit(page: Page, messy: Dashboard) -> None:
    page.resize(1400, 900)
    open_page(page, messy, "audit")
    page.wait("document.querySelector('.check')")
    # In the order of the command line, with the title of each check.
    warnings = texts(page, ".check-warning header code")
    assert warnings == sorted(warnings)
    assert "the kubelet and a CPU driver disagree on the number of CPUs of a node" in page.text(
        "[aria-label^=PLM051]"
    )
    # A fix is listed once, after the findings that have it.
    assert page.eval("document.querySelectorAll('[aria-label^=PLM051] .finding').length") == 4
    fixes = texts(page, "[aria-label^=PLM051] .fix")
    assert len(fixes) == 1
    assert fixes[0].startswith("Hint for 8 of 14: reserve the same CPUs on both sides")
    page.click("[aria-label^=PLM051] .more button")
    page.wait("document.querySelectorAll('[aria-label^=PLM051] .finding').length === 14")
    assert [text.partition(":")[0] for text in texts(page, "[aria-label^=PLM051] .fix")] == [
        "Hint for 8 of 14",
        "Hint for 6 of 14",
    ]
    # Many findings have pages.
    page.click("[aria-label^=PLM005] .more button")
    page.wait_text("1-20 of 48", PAGER)
    assert page.eval("document.querySelectorAll('[aria-label^=PLM005] .finding').length") == 20
    page.click("[aria-label^=PLM005] .pager button:last-child")
    page.wait_text("21-40 of 48", PAGER)
    assert len(texts(page, "[aria-label^=PLM005] .fix")) == 1
    for check in ("PLM005", "PLM051"):
        page.click(f"[aria-label^={check}] .more button")
    page.wait(f"!document.querySelector('{PAGER}')")
    page.resize(420, 800)
    page.wait("document.querySelectorAll('[aria-label^=PLM051] .finding').length === 2")
    assert page.eval(HEIGHT) <= 4800
    assert page.eval(OUTSIDE) == []


def test_lists_of_a_what_if_have_pages(page: Page, messy: Dashboard) -> None:
    page.resize(1400, 900)
    open_page(page, messy, "whatif?drain=numa-01,numa-04,web-01")
    evicted = '[aria-label="Pods that would be evicted"]'
    rows = f"document.querySelectorAll('{evicted} tbody tr').length"
    page.wait(f"{rows} === 15")
    answer = page.text(".verdict-notice")
    assert "All 31 evicted pods are scheduled." in answer
    # Workloads instead of single pods, as on the command line.
    assert "25 pods pending before and after (batch/crunch-* (" in answer
    assert page.text(".whatif-result .not-counted").startswith(
        "Not counted: 23 claims of dra.cpu take cpu 115"
    )
    first = texts(page, f"{evicted} tbody tr")[0].split()
    assert " ".join(first) == "batch/simulate-4gckn numa-01 drained yes, by its controller numa-02"
    # All rows of all pages, each once.
    pager = f"{evicted} + nav.pager"
    total = int(page.text(f"{pager} span").rpartition(" ")[2])
    names = texts(page, f"{evicted} tbody th")
    while len(names) < total:
        page.click(f"{pager} button:last-child")
        page.wait_text(f"{len(names) + 1}-", f"{pager} span")
        names += texts(page, f"{evicted} tbody th")
    assert len(set(names)) == total == 31
    long = "[...document.querySelectorAll('.whatif-result tbody')].filter(e => e.children.length > 20).length"
    assert page.eval(long) == 0
    assert page.eval(HEIGHT) <= 4200
    page.resize(420, 800)
    page.wait("document.querySelectorAll('details.folded').length === 3")
    assert page.eval(OUTSIDE) == []
    assert page.eval(LONG_LABELS) == []
    assert page.eval(HEIGHT) <= 4200
    page.click("details.folded summary")
    page.wait(f"document.querySelector('details.folded').open && {rows} === 8")
