"""Light and dark, wide and narrow, still: legible in all of them."""

from __future__ import annotations

import pytest

from plimsoll.tools.dashboard import Dashboard
from tests.browser.chromium import Page
from tests.browser.served import shown

PAGES = ["", "nodes/numa-1", "nodes/past-1", "devices", "pools", "claims", "pending", "namespaces", "audit", "whatif"]
PAGES += ["explain/pod/shop/whole-gpu"]
#: Every text on the page whose contrast with what is behind it is too low: WCAG 2.2, 1.4.3.
LOW_CONTRAST = """(() => {
  const parse = (text) => { const m = text.match(/[\\d.]+/g).map(Number); return [m[0], m[1], m[2], m[3] ?? 1]; };
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c[3] === 1) return c; }
    return [255, 255, 255, 1]; };
  const low = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    const e = node.parentElement;
    if (!node.data.trim() || !e.checkVisibility() || e.closest('option, dialog, button:disabled')) continue;
    const style = getComputedStyle(e);
    const [a, b] = [light(parse(style.color)), light(behind(e))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (large ? 3 : 4.5)) low.push(`${ratio.toFixed(2)} ${e.className} ${node.data.trim().slice(0, 40)}`);
  }
  return low;
})()"""
#: Contrast of colours that carry meaning without being text, with what they lie on: WCAG 2.2, 1.4.11.
SHAPES = [("requests", "panel"), ("claims", "panel"), ("overhead", "panel"), ("past", "panel"), ("line", "sunk")]
SHAPES += [("focus", "panel"), ("focus", "ground"), ("edge-strong", "panel"), ("requests", "sunk"), ("past", "sunk")]


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_all_text_is_legible(page: Page, dump: Dashboard, theme: str) -> None:
    page.prefer(prefers_color_scheme=theme, prefers_reduced_motion="reduce")
    for path in PAGES:
        shown(page, dump, path)
        assert page.eval(LOW_CONTRAST) == [], path
    shown(page, dump, "")
    token = "getComputedStyle(document.documentElement).getPropertyValue('--{}').trim()"
    for front, back in SHAPES:
        one, other = (luminance(page.eval(token.format(name))) for name in (front, back))
        assert (max(one, other) + 0.05) / (min(one, other) + 0.05) >= 3, (front, back)


def test_the_theme_follows_the_system_until_one_is_chosen(page: Page, dump: Dashboard) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    page.prefer(prefers_color_scheme="light")
    shown(page, dump, "")
    light = page.eval(ground)
    page.prefer(prefers_color_scheme="dark")
    dark = page.eval(ground)
    assert dark != light
    page.click("[aria-label^='Theme:']")  # as the system -> dark
    page.prefer(prefers_color_scheme="light")
    assert page.eval(ground) == dark
    page.go("about:blank")
    shown(page, dump, "")  # kept in this browser
    assert page.eval(ground) == dark
    page.key("t")  # dark -> light
    page.prefer(prefers_color_scheme="dark")
    page.wait(f"{ground} === {light!r}")
    page.key("t")  # light -> as the system
    page.wait(f"{ground} === {dark!r}")
    assert page.eval("localStorage.length") == 0


@pytest.mark.parametrize("width", [400, 900, 1920])
def test_no_page_is_wider_than_the_window(page: Page, dump: Dashboard, width: int) -> None:
    page.resize(width, 800)
    for path in PAGES:
        shown(page, dump, path)
        assert page.eval("document.documentElement.scrollWidth") <= width, path
        assert page.eval("document.querySelector('h1').getBoundingClientRect().right") <= width, path


def test_on_a_phone_rows_do_not_overlap(page: Page, dump: Dashboard) -> None:
    page.resize(400, 800)
    shown(page, dump, "?resources=cpu,memory,ephemeral-storage")
    page.wait("document.querySelectorAll('.windowed-row').length === 5")
    inside = (
        "[...document.querySelectorAll('.windowed-row')].every(r => [...r.querySelectorAll('*')]"
        ".every(e => e.getBoundingClientRect().bottom <= r.getBoundingClientRect().bottom + 1))"
    )
    assert page.eval(inside)


def test_nothing_moves_for_those_who_want_it_still(page: Page, dump: Dashboard) -> None:
    page.prefer(prefers_reduced_motion="reduce")
    shown(page, dump, "")
    moving = "[...document.querySelectorAll('*')].filter(e => getComputedStyle(e).transitionDuration !== '0s' || getComputedStyle(e).animationName !== 'none').length"
    assert page.eval(moving) == 0
