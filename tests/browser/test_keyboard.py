"""Keyboard navigation."""

from __future__ import annotations

from plimsoll.tools.dashboard import Dashboard
from tests.browser.chromium import Page
from tests.browser.dashboards import open_page

FOCUS = "document.activeElement"


def tab_to(page: Page, test: str, most: int = 60) -> None:
    """Press Tab until the focused element passes a test."""
    for _ in range(most):
        page.key("Tab")
        if page.eval(f"((e) => {test})({FOCUS})"):
            return
    raise AssertionError(f"Tab does not reach {test}")


def test_skip_link_is_first_in_tab_order(page: Page, dump: Dashboard) -> None:
    open_page(page, dump, "")
    page.key("Tab")
    assert page.eval(f"{FOCUS}.className") == "skip"
    assert page.eval(f"{FOCUS}.getBoundingClientRect().top") >= 0
    page.key("Enter")
    assert page.eval(f"{FOCUS}.id") == "main"
    assert page.eval("location.hash") in ("", "#/")
    page.key("Tab")
    assert page.eval(f"{FOCUS}.matches('main *')")


def test_navigation_with_keys_only(page: Page, dump: Dashboard) -> None:
    open_page(page, dump, "")
    tab_to(page, "e.matches('.frame-nav a') && e.textContent.includes('Pending')")
    page.key("Enter")
    page.wait(f"document.querySelector('.pending-pod') && {FOCUS}.id === 'page-title'")
    tab_to(page, "e.matches('.pending-pod summary')")
    page.key("ArrowDown")
    page.key("ArrowDown")
    assert "whole-gpu" in page.eval(f"{FOCUS}.textContent")
    page.key("Enter")
    page.wait("document.querySelector('.explanation .group')")
    tab_to(page, "e.matches('.group > summary')")
    opened = page.eval(f"{FOCUS}.parentElement.open")
    page.key(" ")
    assert page.eval(f"{FOCUS}.parentElement.open") is not opened
    page.key("g")
    page.key("o")
    page.wait("document.querySelector('.node-name a')")
    tab_to(page, "e.matches('.node-name a')")
    page.key("ArrowDown")
    page.wait(f"{FOCUS}.textContent === 'gpu-1'")
    page.key("Enter")
    page.wait(f"{FOCUS}.id === 'page-title' && {FOCUS}.textContent === 'gpu-1'")


def test_slash_focuses_the_search_field(page: Page, dump: Dashboard) -> None:
    open_page(page, dump, "claims")
    page.key("/")
    assert page.eval(f"{FOCUS}.matches('[data-search]')")
    page.type("vid")
    page.wait("document.querySelectorAll('tbody tr').length === 1")
    # Text typed just before leaving the page does not reach the next page.
    page.type("x")
    open_page(page, dump, "pools")
    page.wait("document.querySelector('tbody')")
    open_page(page, dump, "claims?q=vid")
    page.wait("document.querySelector('[data-search]')?.value === 'vid'")
    page.wait(f"{FOCUS}.id === 'page-title' && {FOCUS}.textContent === 'Claims'")  # the last step of a change
    page.key("/")
    page.key("End")
    # In a text field, shortcut keys are ordinary characters.
    page.key("/")
    page.key("?")
    assert page.eval(f"{FOCUS}.value") == "vid/?"
    assert not page.eval("document.querySelector('dialog').open")
    open_page(page, dump, "nodes/gpu-1")
    page.eval(f"{FOCUS}.blur()")
    page.key("/")
    page.wait(f"{FOCUS}.matches('[data-search]') && location.hash === '#/'")


def test_shortcuts_dialog(page: Page, dump: Dashboard) -> None:
    open_page(page, dump, "audit")
    page.key("?")
    page.wait("document.querySelector('dialog').open")
    assert "search this page" in page.text("dialog")
    page.key("Escape")
    page.wait("!document.querySelector('dialog').open")
    page.key("?")
    page.wait("document.querySelector('dialog').open")
    page.key("Escape")


def test_arrow_keys_move_between_rows_and_cpus(page: Page, dump: Dashboard) -> None:
    open_page(page, dump, "claims")
    tab_to(page, "e.matches('tbody th a')")
    page.key("ArrowDown")
    assert page.eval(f"{FOCUS}.textContent") == "shop/chat"
    page.key("End")
    assert page.eval(f"{FOCUS}.textContent") == "shop/whole-gpu"
    page.key("Home")
    assert page.eval(f"{FOCUS}.textContent") == "shop/backup"
    open_page(page, dump, "nodes/numa-1")
    page.wait("document.querySelector('.cpu-map')")
    page.eval("document.querySelector('.cpu[tabindex=\"0\"]').focus()")
    page.key("ArrowRight")
    page.key("ArrowRight")
    assert page.eval(f"{FOCUS}.getAttribute('aria-label')").startswith("CPU 1,")
    page.key("End")
    assert page.eval(f"{FOCUS}.dataset.cpu") == "65"
    assert page.eval("document.querySelectorAll('.cpu-map .cpu[tabindex=\"0\"]').length") == 1


def test_focused_element_is_not_covered_by_the_header(page: Page, dump: Dashboard) -> None:
    page.resize(1280, 500)
    open_page(page, dump, "nodes/numa-1")
    page.wait("document.querySelector('tbody a')")
    page.eval("scrollTo(0, 600)")
    page.eval("document.querySelector('tbody a').focus()")
    page.wait(f"{FOCUS}.getBoundingClientRect().top >= 48")
