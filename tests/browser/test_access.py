"""Accessibility tree: names and roles for screen readers."""

from __future__ import annotations

from itertools import pairwise

from plimsoll.tools.dashboard import Dashboard
from tests.browser.chromium import Page
from tests.browser.dashboards import PAGES, open_page

CONTROLS = {
    "button",
    "link",
    "textbox",
    "searchbox",
    "combobox",
    "checkbox",
    "DisclosureTriangle",
    "image",
    "region",
}


def test_every_control_has_a_name(page: Page, dump: Dashboard) -> None:
    for path in PAGES:
        open_page(page, dump, path)
        tree = page.tree()
        controls = [one for one in tree if one["role"] in CONTROLS]
        assert len(controls) >= 10, path
        assert [one for one in controls if not one["name"].strip()] == [], path
        roles = [one["role"] for one in tree]
        assert roles.count("main") == 1, path
        assert roles.count("banner") == 1, path
        assert roles.count("contentinfo") == 1, path
        levels = [one["level"] for one in tree if one["role"] == "heading"]
        assert levels.count(1) == 1, path
        assert all(after <= before + 1 for before, after in pairwise(levels)), (path, levels)


def test_tables_have_headers(page: Page, dump: Dashboard) -> None:
    for path in ("nodes/numa-1", "devices", "claims", "namespaces", "pools"):
        open_page(page, dump, path)
        page.wait("document.querySelector('tbody')")
        assert page.eval(
            "[...document.querySelectorAll('table')].every(t => t.caption"
            " && [...t.tHead.rows[0].cells].every(c => c.scope === 'col')"
            " && [...t.tBodies[0].rows].every(r => r.cells[0].scope === 'row'))"
        )
    open_page(page, dump, "")
    roles = [one["role"] for one in page.tree()]
    assert roles.count("columnheader") == 4
    assert roles.count("row") == 6


def test_graphics_have_text_labels(page: Page, dump: Dashboard) -> None:
    open_page(page, dump, "nodes/numa-1")
    names = {one["name"] for one in page.tree()}
    assert "CPU 35, core 3, NUMA 0, claim shop/trading" in names
    assert "cpu: requests 8, claims 24; 32 free; line 64" in names
    assert "dra.cpu/cpu: 24 of 62 used, shop/packet 4, shop/trading 8, shop/video 12" in names


def test_current_page_and_language_are_set(page: Page, dump: Dashboard) -> None:
    open_page(page, dump, "nodes/numa-1")
    assert page.eval("document.querySelector('[aria-current=page]').textContent.trim()") == "Overview"
    assert page.eval("document.documentElement.lang") == "en"
    identities = page.eval("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(identities) == len(set(identities))
