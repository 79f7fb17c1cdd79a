"""Themes, contrast, window sizes and reduced motion."""

from __future__ import annotations

from pathlib import Path

import pytest

from plimsoll.tools.dashboard import Dashboard
from tests.browser.chromium import Page
from tests.browser.dashboards import PAGES, open_page

PAGES += ["explain/pod/shop/whole-gpu"]
#: Returns every text on the page with insufficient contrast.
LOW_CONTRAST = (Path(__file__).parent / "contrast.js").read_text()
#: Pairs of foreground and background colors of graphics (WCAG 2.2, 1.4.11).
SHAPES = [
    ("requests", "panel"),
    ("claims", "panel"),
    ("overhead", "panel"),
    ("past", "panel"),
    ("line", "sunk"),
]
SHAPES += [
    ("focus", "panel"),
    ("focus", "ground"),
    ("edge-strong", "panel"),
    ("requests", "sunk"),
    ("past", "sunk"),
]


def luminance(color: str) -> float:
    parts = [int(color[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_contrast_of_all_text(page: Page, dump: Dashboard, theme: str) -> None:
    page.prefer(prefers_color_scheme=theme, prefers_reduced_motion="reduce")
    for path in PAGES:
        open_page(page, dump, path)
        assert page.eval(LOW_CONTRAST) == [], path
    open_page(page, dump, "")
    token = "getComputedStyle(document.documentElement).getPropertyValue('--{}').trim()"
    for front, back in SHAPES:
        one, other = (luminance(page.eval(token.format(name))) for name in (front, back))
        assert (max(one, other) + 0.05) / (min(one, other) + 0.05) >= 3, (front, back)


def test_theme_follows_the_system_until_one_is_selected(page: Page, dump: Dashboard) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    page.prefer(prefers_color_scheme="light")
    open_page(page, dump, "")
    light = page.eval(ground)
    page.prefer(prefers_color_scheme="dark")
    dark = page.eval(ground)
    assert dark != light
    page.click("[aria-label^='Theme:']")  # system -> dark
    page.prefer(prefers_color_scheme="light")
    assert page.eval(ground) == dark
    page.go("about:blank")
    open_page(page, dump, "")  # stored in the browser
    assert page.eval(ground) == dark
    page.key("t")  # dark -> light
    page.prefer(prefers_color_scheme="dark")
    page.wait(f"{ground} === {light!r}")
    page.key("t")  # light -> system
    page.wait(f"{ground} === {dark!r}")
    assert page.eval("localStorage.length") == 0


@pytest.mark.parametrize("width", [400, 900, 1920])
def test_no_page_is_wider_than_the_window(page: Page, dump: Dashboard, width: int) -> None:
    page.resize(width, 800)
    for path in PAGES:
        open_page(page, dump, path)
        assert page.eval("document.documentElement.scrollWidth") <= width, path
        assert page.eval("document.querySelector('h1').getBoundingClientRect().right") <= width, path


def test_tables_fit_on_a_common_screen(page: Page, dump: Dashboard) -> None:
    for path in PAGES:
        open_page(page, dump, path)
        wide = "[...document.querySelectorAll('.scroller')].filter(e => e.scrollWidth > e.clientWidth).length"
        assert page.eval(wide) == 0, path


def test_rows_do_not_overlap_on_a_phone(page: Page, dump: Dashboard) -> None:
    page.resize(400, 800)
    open_page(page, dump, "?resources=cpu,memory,ephemeral-storage")
    page.wait("document.querySelectorAll('.windowed-row').length === 5")
    inside = (
        "[...document.querySelectorAll('.windowed-row')].every(r => [...r.querySelectorAll('*')]"
        ".every(e => e.getBoundingClientRect().bottom <= r.getBoundingClientRect().bottom + 1))"
    )
    assert page.eval(inside)


def test_reduced_motion_disables_animations(page: Page, dump: Dashboard) -> None:
    page.prefer(prefers_reduced_motion="reduce")
    open_page(page, dump, "")
    moves = "s => s.transitionDuration !== '0s' || s.animationName !== 'none'"
    moving = f"[...document.querySelectorAll('*')].map(e => getComputedStyle(e)).filter({moves}).length"
    assert page.eval(moving) == 0
