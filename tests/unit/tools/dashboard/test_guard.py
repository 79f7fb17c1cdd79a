"""Access control of the dashboard, and its security headers."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.common.addresses import read_address
from plimsoll.errors import ConfigError
from plimsoll.tools.cluster_state import ClusterObjects, ClusterState
from plimsoll.tools.dashboard import guard, nodes
from plimsoll.tools.dashboard.process import DashboardSettings, read_token, serve_dashboard
from tests.unit.tools.dashboard.pages import DashboardClient, small, visit
from tests.waiting import DEADLINE

EMPTY = ClusterState(ClusterObjects())


@pytest.mark.parametrize(
    ("header", "host"),
    [
        ("localhost:6480", "localhost"),
        ("127.0.0.1", "127.0.0.1"),
        ("[::1]:6480", "::1"),
        ("[::1]", "::1"),
        ("EXAMPLE.com.:80", "example.com"),
        ("", ""),
        ("a:b", ""),
        ("a:1:2", ""),
        ("[::1", ""),
        ("[::1]x", ""),
        ("a:999999", ""),
    ],
)
def test_host_headers_are_parsed(header: str, host: str) -> None:
    assert guard.host_of(header) == host


@pytest.mark.parametrize(
    "host", ["localhost", "a.localhost:1", "10.0.0.3:6480", "[fe80::1]", "board.example"]
)
def test_allowed_hosts(host: str) -> None:
    assert guard.refuse_host(host, frozenset({"board.example"})) == ""


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "",
        "board.example.evil",
        "a b",
        "0x7f.1",
    ],
)
def test_foreign_host_names_are_refused(host: str) -> None:
    assert "--allow-host" in guard.refuse_host(host, frozenset({"board.example"}))


@given(st.text(max_size=60))
def test_registrable_host_names_are_refused(host: str) -> None:
    if not guard.refuse_host(host, frozenset()):
        name = guard.host_of(host)
        assert name == "localhost" or name.endswith(".localhost") or guard.is_address(name)


@pytest.mark.parametrize(
    ("headers", "answered"),
    [
        ({"Content-Type": "application/json"}, True),
        ({"Content-Type": "application/json; charset=utf-8"}, True),
        ({"Content-Type": "APPLICATION/JSON", "Origin": "http://localhost:1", "Host": "localhost:1"}, True),
        ({"Content-Type": "application/json", "Sec-Fetch-Site": "same-origin"}, True),
        ({"Content-Type": "application/json", "Sec-Fetch-Site": "none"}, True),
        ({}, False),
        ({"Content-Type": "text/plain"}, False),
        ({"Content-Type": "application/x-www-form-urlencoded"}, False),
        ({"Content-Type": "application/json", "Sec-Fetch-Site": "cross-site"}, False),
        ({"Content-Type": "application/json", "Sec-Fetch-Site": "same-site"}, False),
        ({"Content-Type": "application/json", "Origin": "null", "Host": "localhost:1"}, False),
        ({"Content-Type": "application/json", "Origin": "http://evil", "Host": "localhost:1"}, False),
        ({"Content-Type": "application/json", "Origin": "http://localhost:2", "Host": "localhost:1"}, False),
    ],
)
def test_cross_origin_requests_are_refused(headers: dict[str, str], answered: bool) -> None:
    assert (guard.refuse_post(headers) == "") is answered


def test_hostile_requests() -> None:
    async def scenario(visitor: DashboardClient) -> None:
        async def refused(status: int, path: str, method: str = "GET", **options: Any) -> str:
            found, text = await visitor.ask(path, method, **options)
            assert found == status, text
            error = json.loads(text)["error"]
            assert "\n" not in error
            return str(error)

        assert "evil.example" in await refused(403, "/api/nodes", headers={"Host": "evil.example"})
        await refused(403, "/", headers={"Host": "evil.example:6480"})
        await refused(415, "/api/whatif", "POST", data="add=x")
        await refused(403, "/api/whatif", "POST", json={}, headers={"Origin": "http://evil.example"})
        await refused(400, "/api/whatif", "POST", data="{", headers={"Content-Type": "application/json"})
        await refused(400, "/api/whatif", "POST", data=b"\xff", headers={"Content-Type": "application/json"})
        await refused(
            400, "/api/whatif", "POST", data="[" * 100_000, headers={"Content-Type": "application/json"}
        )
        big = io.BytesIO(b" " * (guard.MOST_BODY + 1))
        kind = {"Content-Type": "application/json"}
        assert "1024 KiB" in await refused(413, "/api/whatif", "POST", data=big, headers=kind)
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            headers = {"Content-Type": "application/json"}
            await refused(405, "/api/nodes", method, headers=headers)
        await refused(405, "/api/whatif")
        await refused(404, "/api/nodes/" + "x" * 3000)
        await refused(404, "/api/nodes/%00")
        await refused(404, "/api/explain/pod/%3Cscript%3E/%2e%2e")
        await refused(400, "/api/devices?limit=" + "9" * 4000)

    visit(small(), scenario)


def test_security_headers() -> None:
    async def scenario(visitor: DashboardClient) -> None:
        for path in ("/", "/api/overview", "/nope", "/metrics", "/assets/favicon.svg"):
            async with visitor.session.get(visitor.at(path)) as response:
                assert "default-src 'self'" in response.headers["Content-Security-Policy"]
                assert "frame-ancestors 'none'" in response.headers["Content-Security-Policy"]
                assert response.headers["X-Content-Type-Options"] == "nosniff"
                assert response.headers["Referrer-Policy"] == "no-referrer"
                assert "Access-Control-Allow-Origin" not in response.headers
        async with visitor.session.get(visitor.at("/api/events")) as response:
            assert response.headers["Content-Type"] == "text/event-stream"
            assert "default-src 'self'" in response.headers["Content-Security-Policy"]
        for path in ("/livez", "/readyz", "/healthz"):
            assert await visitor.ask(path) == (200, "ok")

    visit(EMPTY, scenario)


def test_the_page_loads_nothing_external() -> None:
    """Neither inline scripts nor styles, nor files of other hosts."""

    async def scenario(visitor: DashboardClient) -> None:
        _, page = await visitor.ask("/")
        assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=", page)
        addresses = re.findall(r'(?:src|href)="([^"]+)"', page)
        assert addresses
        for address in addresses:
            assert "//" not in address
            assert (await visitor.ask(address))[0] == 200, address

    visit(EMPTY, scenario)


def test_requests_need_the_token() -> None:
    async def scenario(visitor: DashboardClient) -> None:
        assert (await visitor.ask("/api/nodes"))[0] == 401
        assert (await visitor.ask("/"))[0] == 401
        assert (await visitor.ask("/?token=wrong"))[0] == 401
        assert (await visitor.ask("/livez"))[0] == 200
        wrong = {"Authorization": "Bearer secrets"}
        assert (await visitor.ask("/api/nodes", headers=wrong))[0] == 401
        right = {"Authorization": "Bearer secret"}
        assert (await visitor.ask("/api/nodes", headers=right))[0] == 200
        async with visitor.session.get(visitor.at("/?token=secret"), allow_redirects=False) as response:
            assert response.status == 303
            assert response.headers["Location"] == "/"
            cookie = response.cookies[guard.COOKIE]
            assert cookie["httponly"]
            assert cookie["samesite"] == "Strict"
        mine = {"Cookie": f"{guard.COOKIE}=secret"}
        assert (await visitor.ask("/api/nodes", headers=mine))[0] == 200

    visit(EMPTY, scenario, token="secret")


METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND")
OPEN = {(method, path) for method in ("GET", "HEAD") for path in ("/healthz", "/livez", "/readyz")}


def test_health_pages_need_no_token() -> None:
    """Every route with every method, and paths that look like health pages."""

    async def scenario(visitor: DashboardClient) -> None:
        app = visitor.dashboard.application()
        routes = {(route.method, route.resource.canonical) for route in app.router.routes() if route.resource}
        assert len(routes) > 30
        assert routes >= OPEN
        paths = {re.sub(r"\{\w+\}", "z", path) for _, path in routes}
        paths |= {path + "z" for path in paths} | {path + "/healthz" for path in paths}
        paths |= {"/healthz/", "//healthz", "/healthz/x", "/HEALTHZ", "/api/healthz", "/healthz%2f"}
        paths |= {"/x/../healthz", "/api/nodes?x=/healthz", "/?token=", "/?token=z", "/api/nodes?z"}
        for path in sorted(paths):
            for method in METHODS:
                status, text = await visitor.raw(path, method, {"Content-Type": "application/json"})
                wanted = 200 if (method, path) in OPEN else 401
                assert status == wanted, (method, path, text)
        assert (await visitor.raw("/api/whatif", "POST", {}))[0] == 401  # before what is wrong with it

    visit(small(), scenario, token="secret")


@pytest.mark.parametrize(
    "wrong", [b"\xff", b"\xc3\x28", b"secre\x80t", b"secret\xff", "secret\u00e9".encode(), b""]
)
def test_a_non_text_token_is_refused(wrong: bytes) -> None:
    async def scenario(visitor: DashboardClient) -> None:
        for name, value in (
            (b"Authorization", b"Bearer " + wrong),
            (b"Authorization", wrong),
            (b"Cookie", guard.COOKIE.encode() + b"=" + wrong),
        ):
            status, text = await visitor.raw("/api/nodes", "GET", {name: value})
            assert status == 401, text
            assert json.loads(text)["error"].startswith("a token is required")
        encoded = "".join(f"%{octet:02x}" for octet in wrong)
        assert (await visitor.raw(f"/?token={encoded}", "GET", {}))[0] == 401

    visit(EMPTY, scenario, token="secret")


@pytest.mark.parametrize("octets", [b"\xff", b"%ff", b"%ed%a0%80", b"\xc3\xa9"])
def test_non_utf8_bytes_are_refused(octets: bytes) -> None:
    async def scenario(visitor: DashboardClient) -> None:
        for path in (b"/", b"/api/nodes/", b"/api/explain/pod/a/", b"/assets/", b"/api/pods?namespace="):
            status, text = await visitor.raw((path + octets).decode("latin-1"), "GET", {})
            assert status in (200, 400, 404), (path, status, text)
        for name in (
            b"Host",
            b"Origin",
            b"If-None-Match",
            b"Accept-Encoding",
            b"Content-Type",
            b"Sec-Fetch-Site",
        ):
            for method in ("GET", "POST"):
                headers = {b"Content-Type": b"application/json", name: octets}
                status, text = await visitor.raw("/api/whatif", method, headers)
                assert status in (400, 403, 405, 415), (name, status, text)

    visit(small(), scenario)


def test_internal_errors_are_not_disclosed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("password in /etc/secret.py, line 3")

    monkeypatch.setattr(nodes, "one_node", broken)

    async def scenario(visitor: DashboardClient) -> None:
        with caplog.at_level(logging.ERROR):
            status, text = await visitor.ask("/api/nodes/node-0000")
        assert status == 500
        assert "secret" not in text
        assert "Traceback" not in text
        assert (await visitor.ask("/api/nodes"))[0] == 200

    visit(small(), scenario)
    assert "/api/nodes/node-0000" in caplog.text


# -- process


@pytest.mark.parametrize("text", ["6480", "host", "127.0.0.1:", "127.0.0.1:99999", "a:b", ""])
def test_invalid_addresses_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--listen"):
        read_address(text)


def test_addresses() -> None:
    assert read_address("127.0.0.1:6480") == ("127.0.0.1", 6480)
    assert read_address("[::1]:1") == ("::1", 1)
    assert read_address(":1") == ("127.0.0.1", 1)


def test_tokens_are_read_from_files(tmp_path: Path) -> None:
    file = tmp_path / "token"
    with pytest.raises(ConfigError, match="No such file"):
        read_token(file)
    file.write_text("\n")
    with pytest.raises(ConfigError, match="file is empty"):
        read_token(file)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not valid UTF-8"):
        read_token(file)
    file.write_text("secret\n")
    assert read_token(file) == "secret"
    assert read_token(None) == ""


@pytest.mark.parametrize(("listen", "warned"), [("127.0.0.1:0", False), ("0.0.0.0:0", True)])
def test_the_process(listen: str, warned: bool) -> None:
    opened: list[str] = []
    warnings: list[str] = []

    async def scenario() -> None:
        stopped = asyncio.Event()

        def ready(url: str) -> None:
            opened.append(url)
            stopped.set()

        settings = DashboardSettings(listen=listen, cluster_state=EMPTY)
        async with asyncio.timeout(DEADLINE):
            await serve_dashboard(settings, ready, warnings.append, stopped)

    asyncio.run(scenario())
    assert opened[0].startswith("http://")
    assert ["no login" in text for text in warnings] == [True] * warned


def test_an_address_in_use_is_reported() -> None:
    async def scenario(visitor: DashboardClient) -> None:
        port = visitor.dashboard.url.rpartition(":")[2].strip("/")
        settings = DashboardSettings(listen=f"127.0.0.1:{port}", cluster_state=EMPTY)
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}"):
            await serve_dashboard(settings, print, print, asyncio.Event())

    visit(EMPTY, scenario)


MALFORMED = (
    b"GET / HTTP/1.1\r\nHost: a\x00b\r\n\r\n",
    b"\x16\x03\x01\x00\xa5\x01\x00\r\n\r\n",
    b"GET http://[::1 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n",
    b"GET /api/nodes/\xff\xfe HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"POST /api/whatif HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"POST /api/whatif HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    b"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nabcde",
)


@pytest.mark.parametrize("request_bytes", MALFORMED)
def test_malformed_requests_are_refused_and_not_logged(
    request_bytes: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(visitor: DashboardClient) -> None:
        where = urlsplit(visitor.dashboard.url)
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
        writer.write(request_bytes)
        async with asyncio.timeout(DEADLINE):
            status = (await reader.readline()).split()[1]
        writer.close()
        assert status == b"400"
        # A body that ends early.
        _, writer = await asyncio.open_connection(where.hostname, where.port)
        head = b"POST /api/whatif HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        writer.write(head + b"Content-Length: 100\r\n\r\n{")
        await writer.drain()
        await asyncio.sleep(0.1)
        writer.close()
        assert (await visitor.ask("/api/overview"))[0] == 200

    visit(EMPTY, scenario)
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("host", "token", "status"),
    [("127.0.0.1", "", 200), ("0.0.0.0", "", 403), ("0.0.0.0", "secret", 200)],
)
def test_simulations_need_a_token_unless_on_this_machine_only(host: str, token: str, status: int) -> None:
    async def scenario(visitor: DashboardClient) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        found, text = await visitor.ask("/api/whatif", "POST", json={}, headers=headers)
        assert found == status, text
        assert ("--token-file" in text) is (status == 403)

    visit(EMPTY, scenario, host=host, token=token)
