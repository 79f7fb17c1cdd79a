"""Security of the page: untrusted text, content security policy, no external requests."""

from __future__ import annotations

from urllib.parse import quote

from plimsoll.tools.dashboard import Dashboard
from tests.browser.chromium import Page
from tests.browser.clusters import HOSTILE
from tests.browser.dashboards import PAGES, open_page


def test_names_with_markup_are_shown_as_text(page: Page, hostile_dump: Dashboard) -> None:
    open_page(page, hostile_dump, "?sort=name")
    page.wait("document.querySelector('.node-name a')")
    assert HOSTILE in page.eval("[...document.querySelectorAll('.node-name a')].map(a => a.textContent)")
    assert page.eval("document.querySelectorAll('#app img').length") == 0
    for path in (
        "devices",
        "pools",
        "claims",
        "pending",
        "namespaces",
        "audit",
        f"nodes/{quote(HOSTILE, safe='')}",
    ):
        open_page(page, hostile_dump, path)
        assert page.eval("document.querySelectorAll('#app img, #app script, #app iframe').length") == 0
        assert page.eval(
            "[...document.querySelectorAll('a')].every(a => a.getAttribute('href').startsWith('#'))"
        )
    assert page.text("h1") == HOSTILE
    open_page(page, hostile_dump, "pending")
    assert HOSTILE in page.text()
    page.click(".pending-pod summary")
    page.wait("document.querySelector('.pending-pod .explanation, .pending-pod [role=alert]')")


def test_urls_with_markup_are_shown_as_text(page: Page, dump: Dashboard) -> None:
    page.go(f"{dump.url}#/nodes/{quote(HOSTILE, safe='')}")
    page.wait("document.querySelector('[role=alert]')")
    assert page.text("h1") == HOSTILE
    assert page.eval("document.querySelectorAll('#app img').length") == 0
    page.go(f"{dump.url}#/nodes/..%2F..%2Fapi%2Foverview")
    page.wait_text("../../api/overview", "h1")
    page.wait("document.querySelector('[role=alert]')")
    page.problems.clear()  # the expected 404s


def test_no_external_requests(page: Page, dump: Dashboard) -> None:
    page.record_requests()
    for path in PAGES:
        open_page(page, dump, path)
    assert len(page.requests) > 20
    assert [url for url in page.requests if not url.startswith(dump.url)] == []


def test_content_security_policy_is_enforced(page: Page, dump: Dashboard) -> None:
    open_page(page, dump, "")
    page.eval(
        "const e = document.createElement('script'); e.textContent = 'window.broken = 1';"
        "document.body.append(e);"
        "const i = document.createElement('img'); i.src = 'http://127.0.0.1:9/x.png'; document.body.append(i)"
    )
    page.wait("document.querySelector('body > script')")
    assert page.eval("window.broken") is None
    assert any("Content Security Policy" in problem for problem in page.problems)
    page.problems.clear()


def test_errors_in_a_page_are_reported(page: Page, dump: Dashboard) -> None:
    open_page(page, dump, "")
    # An unexpected response, as of another server version.
    page.eval(
        "const real = window.fetch; window.fetch = async (path, o) => path.startsWith('api/claims')"
        "? new Response(JSON.stringify({revision: 1, total: 1, items: [null]})) : real(path, o)"
    )
    page.go(f"{dump.url}#/claims")
    page.wait_text("This page could not be displayed", "h1")
    page.problems.clear()
    page.go(f"{dump.url}#/pools")
    page.wait("document.querySelector('tbody')")
