"""HTTP and TLS fuzzing: every connection gets a response or is closed, and the server keeps running."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import os
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, TypeVar

import pytest

from plimsoll.apiserver.http import HttpServer
from plimsoll.apiserver.limits import ServerLimits
from plimsoll.apiserver.process import RunningServer, ServerSettings, start_server
from tests.fuzz.raw_http import CLOSED, RawConnection, Reply, exchange, trusting
from tests.waiting import DEADLINE, wait_until

T = TypeVar("T")
#: Limits that are reached by size only, and those that a request without an end reaches soon.
LIMITS = ServerLimits(
    body=64 * 1024, body_timeout=3600, idle_timeout=3600, slow_watch_timeout=3600, header_timeout=3600
)
SHORT = replace(LIMITS, body_timeout=1, idle_timeout=1, slow_watch_timeout=1, header_timeout=3)
MAPS = "/api/v1/namespaces/default/configmaps"


class Target:
    """Server in its own thread, over TLS and plain HTTP."""

    def __init__(self, limits: ServerLimits = LIMITS) -> None:
        self.limits = limits
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, name="server")
        self.thread.start()
        self.server, self.plain, self.token = self.run(self._start())
        self.port = self.plain.port

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(DEADLINE)

    async def _start(self) -> tuple[RunningServer, HttpServer, str]:
        server = await start_server(ServerSettings(controllers=False, limits=self.limits))
        plain = HttpServer(server.api, limits=self.limits)
        await plain.start()
        return server, plain, server.token

    def stop(self) -> None:
        self.run(self.plain.stop())
        self.run(self.server.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    def request(self, method: str, path: str, *headers: str, body: bytes = b"") -> bytes:
        """Return a valid request as bytes."""
        lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {self.token}", *headers]
        if body and not any(header.lower().startswith("transfer-encoding") for header in headers):
            lines.append(f"Content-Length: {len(body)}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + body

    def create(self, name: str, *headers: str) -> bytes:
        body = json.dumps({"metadata": {"name": name}}).encode()
        return self.request("POST", MAPS, "Content-Type: application/json", *headers, body=body)


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    found = Target()
    yield found
    found.stop()


@pytest.fixture(scope="module")
def impatient() -> Iterator[Target]:
    """Server that closes the connections of requests without an end."""
    found = Target(SHORT)
    yield found
    found.stop()


@pytest.fixture(autouse=True)
def _unharmed(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Check after each test that the server answers and has logged no error."""
    caplog.set_level(logging.WARNING)
    used = [request.getfixturevalue(name) for name in ("target", "impatient") if name in request.fixturenames]
    yield
    for each in used:
        asking = each.request("GET", "/readyz")
        wait_until(partial(send, each, asking), lambda reply: (reply.status, reply.body) == (200, b"ok"))
    records = [*caplog.get_records("call"), *caplog.records]
    faults = [record for record in records if record.levelno >= logging.ERROR]
    assert not faults, faults[0].getMessage()


def send(target: Target, *pieces: bytes, tls: ssl.SSLContext | None = None) -> Reply:
    port = target.server.port if tls else target.port
    return asyncio.run(exchange(port, pieces, tls=tls))


HEAD = b"GET /api HTTP/1.1\r\nHost: x\r\n"
BAD = {
    "nothing": b"",
    "garbage": bytes(range(256)) * 4,
    "newlines": b"\r\n" * 2000,
    "tls to plain": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 200,
    "http/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "old": b"GET /\r\n\r\n",
    "version": b"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
    "no colon": HEAD + b"Bad header\r\n\r\n",
    "space before colon": HEAD + b"Name : x\r\n\r\n",
    "nul in header": HEAD + b"X: a\x00b\r\n\r\n",
    "folded": HEAD + b"X: a\r\n b\r\n\r\n",
    "long header": HEAD + b"X: " + b"a" * 300_000 + b"\r\n\r\n",
    "long name": HEAD + b"X" * 300_000 + b": a\r\n\r\n",
    "many headers": HEAD + b"".join(b"X%d: a\r\n" % i for i in range(20_000)) + b"\r\n",
    "long url": b"GET /" + b"a" * 300_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "long method": b"G" * 100_000 + b" / HTTP/1.1\r\nHost: x\r\n\r\n",
    "two lengths": HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "negative length": HEAD + b"Content-Length: -1\r\n\r\n",
    "length of words": HEAD + b"Content-Length: many\r\n\r\n",
    "huge length": HEAD + b"Content-Length: 99999999999999999999999\r\n\r\n",
    "length and chunks": HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "unknown encoding": HEAD + b"Transfer-Encoding: rot13\r\n\r\n",
    "chunk without size": HEAD + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
    "negative chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\n",
    "endless size": HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 10_000,
    "chunk extensions": HEAD + b"Transfer-Encoding: chunked\r\n\r\n5;" + b"a" * 100_000,
    "endless trailers": HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + b"X: y\r\n" * 50_000,
    "half a request": b"GET /api HTTP/1.1\r\nHost",
}


@pytest.mark.parametrize("tls", [None, trusting()], ids=["plain", "tls"])
def test_bad_bytes_are_refused_or_cut_off(impatient: Target, tls: ssl.SSLContext | None) -> None:
    port = impatient.server.port if tls else impatient.port

    async def scenario() -> list[Reply]:
        return await asyncio.gather(*(exchange(port, [data], tls=tls) for data in BAD.values()))

    for name, reply in zip(BAD, asyncio.run(scenario()), strict=True):
        assert reply is CLOSED or 400 <= reply.status < 500, (name, reply)


def read_from_tls_port(target: Target, sent: bytes) -> bytes:
    """Send bytes to the TLS port without a handshake; return what comes back until the connection closes."""

    async def scenario() -> bytes:
        wire = await RawConnection.open(target.server.port)
        await wire.send(sent)
        async with asyncio.timeout(DEADLINE):
            received = await wire.reader.read()
        await wire.close()
        return received

    return asyncio.run(scenario())


def test_plain_http_to_the_tls_port_gets_a_reason(target: Target) -> None:
    assert send(target, target.request("GET", "/readyz"), tls=trusting()).status == 200
    received = read_from_tls_port(target, b"GET / HTTP/1.1\r\n\r\n")
    assert received.startswith(b"HTTP/1.0 400 Bad Request\r\n\r\n")
    assert b"Client sent an HTTP request to an HTTPS server." in received


def test_other_bytes_without_tls_get_at_most_an_alert(target: Target) -> None:
    received = read_from_tls_port(target, b"\x00\x01\x02 no handshake \r\n\r\n")
    assert received[:1] in (b"", b"\x15")


def test_a_request_byte_by_byte(target: Target) -> None:
    whole = target.create("split")
    assert send(target, *(whole[i : i + 1] for i in range(len(whole)))).status == 201


async def test_pipelined_requests_are_answered_in_order(target: Target) -> None:
    wire = await RawConnection.open(target.port)
    paths = ["/version", "/readyz", "/api/v1/nodes/none", MAPS, "/nowhere"] * 40
    await wire.send(b"".join(target.request("GET", path) for path in paths))
    async with asyncio.timeout(DEADLINE):
        found = [(await wire.reply()).status for _ in paths]
    assert found == [200, 200, 404, 200, 404] * 40
    await wire.close()


@pytest.mark.parametrize("length", [64 * 1024 + 1, 10**9])
def test_too_long_bodies_are_refused(target: Target, length: int) -> None:
    head = target.request("POST", MAPS, f"Content-Length: {length}")
    reply = send(target, head + b"x" * 1000)
    assert reply.status == 413
    chunk = b"8000\r\n%s\r\n" % (b"x" * 0x8000)
    request = target.request("POST", MAPS, "Transfer-Encoding: chunked")
    assert send(target, request, chunk, chunk, chunk).status == 413


def test_encoded_bodies_are_refused(target: Target) -> None:
    body = gzip.compress(json.dumps({"metadata": {"name": "zipped"}}).encode())
    for name in ("gzip", "br", "deflate", "zstd", "rot13", "gzip, gzip"):
        request = target.request("POST", MAPS, f"Content-Encoding: {name}", body=body)
        assert send(target, request).status == 415, name


@asynccontextmanager
async def missing_bodies(target: Target) -> AsyncIterator[list[RawConnection]]:
    """Send requests whose bodies do not arrive, or not completely."""
    wires = [await RawConnection.open(target.port) for _ in range(30)]
    for number, wire in enumerate(wires):
        await wire.send(target.request("POST", MAPS, "Content-Length: 1000"), b"{" * (number % 3))
    yield wires
    for wire in wires:
        await wire.close()


async def test_missing_bodies_time_out(impatient: Target) -> None:
    """The request fails after a second or the connection is closed."""
    async with missing_bodies(impatient) as slow, asyncio.timeout(DEADLINE):
        replies = await asyncio.gather(*(wire.reply() for wire in slow))
        assert {reply.status for reply in replies} <= {408, 0}


async def test_missing_bodies_do_not_delay_other_requests(target: Target) -> None:
    async with missing_bodies(target) as slow:
        assert (await exchange(target.port, [target.request("GET", "/readyz")])).status == 200
        assert not any(wire.reader.at_eof() for wire in slow)


async def test_clients_that_disconnect_early(target: Target) -> None:
    whole = target.create("left")
    for end in range(0, len(whole), 7):
        wire = await RawConnection.open(target.port)
        await wire.send(whole[:end])
        if end % 2:
            wire.writer.write_eof()
            async with asyncio.timeout(DEADLINE):
                await wire.reader.read()
        else:
            wire.writer.transport.abort()
        await wire.close()


def test_unusual_paths(target: Target) -> None:
    for path in (
        *(
            "/%00",
            "/%ff%fe",
            "/api/v1/namespaces/%2e%2e/pods",
            "/api/v1/namespaces/default/pods/a%2fb",
            "/%",
            "/%zz",
        ),
        *(
            "/api/v1/../../etc/passwd",
            "//api",
            "/api?%ff=%fe",
            "/api/v1/pods?watch=%00&limit=%",
            "http://x/api",
            "*",
        ),
        *(
            "/api/v1/pods?" + "a=b&" * 4000,
            "/api/v1/pods?labelSelector=%E2%80%A8",
            "/\u00e9",
            "/a b",
            "/api#x",
            "",
        ),
        *(
            "/api/v1/pods?fieldSelector=" + "%5c" * 5000,
            "/api/v1/pods?continue=" + "A" * 20000,
            "x:y",
            "/;a=b",
            "?",
        ),
    ):
        reply = send(target, target.request("GET", path))
        assert reply is CLOSED or reply.status < 500, path


def test_unusual_credentials(target: Target) -> None:
    for value in (
        *(
            "Bearer",
            "Bearer ",
            "Bearer  x",
            "bearer " + target.token,
            "Basic YTpi",
            "Basic ?",
            "Negotiate",
            "\xff",
            "",
        ),
        *(
            "Bearer a.b.c",
            "Bearer eyJhbGciOiJub25lIn0.e30.",
            "Bearer " + "a." * 2000,
            "Bearer " + "a" * 60000,
        ),
        *(
            "Bearer eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOjF9.AAAA",
            "Bearer " + "eyJ" * 5000 + ".e30.x",
            "Bearer \xe9",
        ),
    ):
        head = b"GET /api/v1/pods HTTP/1.1\r\nHost: x\r\nAuthorization: %s\r\n\r\n" % value.encode("latin-1")
        assert send(target, head).status in (200, 400, 401, 403), value


@pytest.mark.parametrize(
    "headers",
    [
        ["Impersonate-User: a"],
        ["Impersonate-User: "],
        ["Impersonate-User: a", "Impersonate-User: b"],
        ["Impersonate-Group: a"],
        ["Impersonate-User: system:serviceaccount:a:b:c:d"],
        ["Impersonate-User: a", "Impersonate-Extra-%ff%00: x", "Impersonate-Extra-: y"],
        ["Impersonate-User: \xff\xfe", "Impersonate-Uid: \xff"],
        ["Impersonate-User: a"] + [f"Impersonate-Group: g{i}" for i in range(200)],
    ],
)
def test_unusual_impersonation_headers(target: Target, headers: list[str]) -> None:
    assert send(target, target.request("GET", "/api/v1/pods", *headers)).status in (200, 400, 403)


def test_upgrades_and_expectations(target: Target) -> None:
    upgrade = [
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Key: x",
        "Sec-WebSocket-Version: 13",
    ]
    assert send(target, target.request("GET", "/api", *upgrade)).status == 200
    assert send(target, target.create("expected", "Expect: 100-continue")).status in (201, 409)
    assert send(target, target.create("unexpected", "Expect: miracles")).status < 500


def test_head_and_options_responses(target: Target) -> None:
    for method in ("HEAD", "OPTIONS", "TRACE", "CONNECT", "PURGE"):
        reply = send(target, target.request(method, MAPS, "Connection: close"))
        assert reply is CLOSED or reply.status < 500, method


# -- random bytes


def mutate(dice: Random, whole: bytes) -> list[bytes]:
    """Return a damaged request, in pieces."""
    data = bytearray(whole)
    for _ in range(dice.choice((1, 1, 2, 4))):
        place = dice.randrange(len(data) + 1)
        what = dice.randrange(6)
        if what == 0:
            data[place : place + 1] = bytes([dice.randrange(256)])
        elif what == 1:
            data[place:place] = dice.choice(
                (b"\r\n", b"\x00", b":", b" ", b"%", b"\xff", b"0\r\n\r\n", b"{" * 50)
            )
        elif what == 2:
            del data[place : place + dice.randrange(30)]
        elif what == 3:
            start = dice.randrange(len(data) + 1)
            data[place:place] = data[start : start + dice.randrange(60)]
        elif what == 4:
            del data[place:]
        else:
            data[place:place] = dice.randbytes(dice.randrange(40))
    cuts = sorted(dice.randrange(len(data) + 1) for _ in range(dice.choice((0, 0, 1, 3))))
    return [bytes(data[a:b]) for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def shoot(target: Target, seed: int, count: int) -> dict[int, int]:
    """Send random requests, a hundred at a time, and count the response codes."""
    dice = Random(seed)
    good: list[Callable[[], bytes]] = [
        lambda: target.request("GET", MAPS),
        lambda: target.create(f"r{dice.randrange(50)}"),
        lambda: target.request("GET", f"{MAPS}?watch=1&timeoutSeconds=1"),
        lambda: target.request("DELETE", f"{MAPS}/r{dice.randrange(50)}", body=b"{}"),
        lambda: target.request(
            "PATCH",
            f"{MAPS}/r{dice.randrange(50)}",
            "Content-Type: application/merge-patch+json",
            "Transfer-Encoding: chunked",
            body=b'f\r\n{"data":{"a":1}\r\n1\r\n}\r\n0\r\n\r\n',
        ),
    ]

    async def one(gate: asyncio.Semaphore) -> int:
        pieces = mutate(dice, dice.choice(good)())
        async with gate:
            try:
                reply = await exchange(target.port, pieces, whole=False)
            except TimeoutError:
                raise AssertionError(f"no answer and no end: {pieces}") from None
        assert reply.status < 500 or reply.status in (503, 504), (pieces, reply)
        return reply.status

    async def run() -> list[int]:
        gate = asyncio.Semaphore(100)
        return await asyncio.gather(*(one(gate) for _ in range(count)))

    found = asyncio.run(run())
    return {status: found.count(status) for status in set(found)}


def test_random_bytes(impatient: Target) -> None:
    found = shoot(impatient, 1, 600)
    assert len(found) > 3, found


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 100 + int(os.environ.get("PLIMSOLL_FUZZ_SEEDS", "6"))))
def test_many_random_bytes(impatient: Target, seed: int) -> None:
    shoot(impatient, seed, 8000)


# -- watches


@asynccontextmanager
async def watching(target: Target) -> AsyncIterator[RawConnection]:
    wire = await RawConnection.open(target.port)
    await wire.send(target.request("GET", f"{MAPS}?watch=1"))
    await wire.reader.readuntil(b"\r\n\r\n")
    yield wire
    await wire.close()


def test_watches_that_disconnect_early(target: Target) -> None:
    async def scenario() -> None:
        async def follow(number: int) -> None:
            async with watching(target) as wire:
                if number % 3:
                    await wire.reader.read(100)
                if number % 2:
                    wire.writer.transport.abort()

        async with asyncio.timeout(DEADLINE):
            await asyncio.gather(*(follow(number) for number in range(150)))
            await exchange(target.port, [target.create("seen")])

    asyncio.run(scenario())
    wait_until(lambda: target.plain.watch_limiter.open, lambda count: count == 0)
