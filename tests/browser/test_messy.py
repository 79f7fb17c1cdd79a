"""The messy cluster: pages of bounded length, headings in one line, and nothing off screen on a phone."""

from __future__ import annotations

import pytest

from plimsoll.tools.dashboard import Dashboard
from tests.browser.chromium import Page
from tests.browser.dashboards import DashboardRunner, open_page
from tests.dumps import make_cluster_state
from tests.messy_cluster import CLAIMS, DEVICES, NODES, PODS, messy_cluster

#: Height of a page of 1400 pixels width, at most.
TALLEST = {"nodes/gpu-05": 2600, "nodes/numa-04": 2600, "devices": 2600, "pools": 2600, "pods": 2000}
#: Elements that reach beyond the window.
OUTSIDE = (
    "[...document.querySelectorAll('main *, header *')].filter(e => e.getClientRects().length"
    " && e.getBoundingClientRect().right > innerWidth + 1 && !e.closest('.unseen, pre'))"
    ".map(e => e.tagName + '.' + e.className)"
)


@pytest.fixture(scope="module")
def messy(runner: DashboardRunner) -> Dashboard:
    return runner.dump(make_cluster_state(messy_cluster()))


def test_pages_are_of_bounded_length(page: Page, messy: Dashboard) -> None:
    page.resize(1400, 900)
    for path, height in TALLEST.items():
        open_page(page, messy, path)
        assert page.eval("document.documentElement.scrollHeight") <= height, path


def test_overview(page: Page, messy: Dashboard) -> None:
    page.resize(1400, 900)
    open_page(page, messy, "")
    text = "document.querySelector('main').innerText.replace(/\\s+/g, ' ')"
    for words in (
        f"of {NODES}; 2 more with claims that are not counted",
        f"of {PODS}",
        f"{CLAIMS} claims 23 not counted",
        f"of {DEVICES:,}:",
        "gpu 11 of 96 free",
        "nic 1260G of 2400G bandwidth left",
        "exclusive-cpu 54 of 192 free",
        "gpu.example.com 396 free of 960",
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


def test_nothing_is_off_screen_on_a_phone(page: Page, messy: Dashboard) -> None:
    page.resize(420, 800)
    for path in ("", "nodes/gpu-05", "devices", "pools", "pods", "claims", "namespaces", "whatif"):
        open_page(page, messy, path)
        page.wait("document.querySelector('main').children.length > 1")
        assert page.eval(OUTSIDE) == [], path
