"""Connection limits: sizes, timeouts and numbers, without effect on regular clients."""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from pathlib import Path
from unittest.mock import patch

import pytest

from plimsoll.apiserver.auth.certificates import CertificateAuthority
from plimsoll.apiserver.auth.users import ADMIN
from plimsoll.apiserver.request import ApiRequest, ApiResponse
from tests.coroutines import run_by
from tests.fuzz.raw_http import CLOSED, RawConnection, trusting
from tests.unit.apiserver.server_harness import MAPS, REQUEST, ServerHarness, ends, run_scenario, serving
from tests.waiting import until

FIELD = 40_000


def fields(count: int, size: int = FIELD) -> bytes:
    return b"".join(b"h%d: %b\r\n" % (number, b"a" * size) for number in range(count))


def receive(client: socket.socket) -> bytes:
    """Return what a client receives next; nothing if it was disconnected."""
    try:
        return client.recv(1)
    except ConnectionError:
        return b""


# -- sizes


@pytest.mark.parametrize("first", [True, False], ids=["first request", "second request"])
@run_by(run_scenario)
async def test_too_many_bytes_of_headers_are_answered_with_431(*, first: bool) -> None:
    async with serving(header_bytes=100_000) as served:
        connection = await served.open()
        if not first:
            assert await served.version(connection) == 200
        await connection.send(REQUEST, *(fields(1) for _ in range(3)))
        reply = await ends(connection)
        assert (reply.status, reply.body) == (431, b"431 Request Header Fields Too Large")


@run_by(run_scenario)
async def test_headers_below_the_limit_are_read() -> None:
    async with serving(header_bytes=100_000) as served:
        connection = await served.open()
        for _ in range(5):
            await connection.send(REQUEST + served.credentials, fields(2), b"\r\n")
            assert (await connection.reply()).status == 200
        await connection.close()


@run_by(run_scenario)
async def test_a_body_does_not_count_as_headers() -> None:
    async with serving(header_bytes=50_000) as served:
        connection = await served.open()
        for name in ("one", "two"):
            body = json.dumps({"metadata": {"name": name}, "data": {"x": "x" * 400_000}}).encode()
            head = f"POST {MAPS} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n".encode()
            await connection.send(head + served.credentials + b"\r\n" + body)
            assert (await connection.reply()).status == 201
        await connection.close()


@pytest.mark.parametrize("anonymous", [False, True])
@run_by(run_scenario)
async def test_encoded_bodies_are_refused(*, anonymous: bool) -> None:
    """Nothing is inflated, for whomever: a few bytes would cost the others the time of gigabytes."""
    body = gzip.compress(json.dumps({"metadata": {"name": "one"}, "data": {"x": "x" * 400_000}}).encode())
    head = f"POST {MAPS} HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: {len(body)}\r\n"
    async with serving() as served:
        connection = await served.open()
        credentials = b"" if anonymous else served.credentials
        with patch("aiohttp.compression_utils.ZLibDecompressor.decompress_sync") as inflate:
            await connection.send(head.encode() + credentials + b"\r\n" + body)
            assert (await connection.reply()).status == (403 if anonymous else 415)
        assert not inflate.called
        await connection.close()


@run_by(run_scenario)
async def test_a_tls_connection_has_a_read_buffer_of_one_record() -> None:
    async with serving() as served:
        connection = await served.enter()
        buffers = [
            len(vars(each)["_ssl_buffer"]) for each in gc.get_objects() if isinstance(each, SSLProtocol)
        ]
        assert buffers
        assert max(buffers) <= 16 << 10
        await connection.close()


@run_by(run_scenario)
async def test_a_body_that_arrives_before_its_headers_are_handled_is_answered() -> None:
    """On a busy machine several reads reach the connection before the request handler has run once."""
    async with serving(body=64 * 1024) as served:
        connection = await served.open()
        await until(lambda: bool(served.connections))
        (accepted,) = served.connections
        head = f"POST {MAPS} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n".encode()
        accepted.data_received(head + served.credentials + b"\r\n")
        for _ in range(3):
            accepted.data_received(b"8000\r\n%s\r\n" % (b"x" * 0x8000))
        assert (await connection.reply()).status == 413
        await connection.abort()


@run_by(run_scenario)
async def test_the_headers_of_all_unauthenticated_connections_have_a_budget() -> None:
    async with serving(unauthenticated_bytes=300_000) as served:
        known = await served.open()
        assert await served.version(known) == 200
        clients = [await served.open() for _ in range(12)]
        for connection in clients:
            await connection.send(REQUEST)
        highest = 0
        for _ in range(3):
            for connection in clients:
                await connection.send(fields(1))
                await asyncio.sleep(0.01)
                highest = max(highest, served.acceptor.peers.buffered)
                assert sum(other.buffered for other in served.connections) <= 300_000 + 2 * FIELD
        assert 200_000 < highest <= 300_000
        assert served.acceptor.peers.dropped > 0
        assert await served.version(known) == 200
        new = await served.enter()
        for connection in (known, new, *clients):
            await connection.abort()


@pytest.mark.parametrize("anonymous", [True, False])
@run_by(run_scenario)
async def test_trailers_are_bounded(*, anonymous: bool) -> None:
    async with serving(header_bytes=100_000) as served:
        connection = await served.open()
        head = f"POST {MAPS} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n".encode()
        credentials = b"" if anonymous else served.credentials
        await connection.send(
            head + credentials + b"\r\n", b"2\r\n{}\r\n0\r\n", *(fields(1) for _ in range(50))
        )
        await ends(connection)
        await until(lambda: not served.connections)


@run_by(run_scenario)
async def test_small_chunks_and_trailers_are_read() -> None:
    async with serving(header_bytes=20_000) as served:
        connection = await served.open()
        assert await served.version(connection) == 200
        body = json.dumps({"metadata": {"name": "chunks"}, "data": {"x": "x" * 50_000}}).encode()
        chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\nTrailer: yes\r\n\r\n"
        head = f"POST {MAPS} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n".encode()
        await connection.send(head + served.credentials + b"\r\n", chunks)
        assert (await connection.reply()).status == 201
        await connection.close()


@run_by(run_scenario)
async def test_requests_behind_a_watch_are_bounded() -> None:
    async with serving(header_bytes=100_000) as served:
        connection = await served.open()
        head = f"GET {MAPS}?watch=1 HTTP/1.1\r\nHost: x\r\n".encode()
        await connection.send(head + served.credentials + b"\r\n")
        assert (await connection.reply(whole=False)).status == 200
        for _ in range(10):
            await connection.send(REQUEST + fields(1) + b"\r\n")
        await until(lambda: not served.connections)
        await connection.abort()


@run_by(run_scenario)
async def test_the_body_of_an_unauthenticated_request_is_not_waited_for() -> None:
    async with serving() as served:
        for credentials, status in ((b"", 403), (b"Authorization: Bearer wrong\r\n", 401)):
            connection = await served.open()
            head = f"POST {MAPS} HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\n".encode()
            await connection.send(head + credentials + b"\r\n")
            assert (await connection.reply()).status == status
            await connection.send(b"x" * 1_999_999)
            assert served.acceptor.peers.buffered < 600_000  # what is discarded does not count
            await connection.abort()


@run_by(run_scenario)
async def test_an_unauthenticated_client_that_does_not_read_is_closed() -> None:
    async with serving() as served:
        anonymous, known = await served.open(), await served.open()
        assert await served.version(anonymous, anonymous=True) == 200
        assert await served.version(known) == 200
        for connection in served.connections:
            connection.pause_writing()
        await until(lambda: len(served.connections) == 1)
        assert served.connections[0].authenticated
        for connection in served.connections:
            connection.resume_writing()
        assert await served.version(known) == 200
        assert await ends(anonymous) is CLOSED
        await known.close()


@run_by(run_scenario)
async def test_unread_responses_of_any_size_are_aborted() -> None:
    async with serving(slow_watch_timeout=1) as served:
        connection = await served.open()
        body = json.dumps({"metadata": {"name": "large"}, "data": {"x": "x" * 500_000}}).encode()
        head = f"POST {MAPS} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n".encode()
        await connection.send(head + served.credentials + b"\r\n" + body)
        assert (await connection.reply()).status == 201
        connection.stop_reading()
        question = f"GET {MAPS}/large HTTP/1.1\r\nHost: x\r\n".encode() + served.credentials + b"\r\n"
        for _ in range(60):  # 30 MB, more than the kernel keeps for a connection
            await connection.send(question)
        await until(lambda: not served.connections)
        await connection.abort()


@run_by(run_scenario)
async def test_responses_of_any_size_are_complete() -> None:
    """Events of a watch are chunks, whichever way they are written; gets have their length."""
    async with serving() as served:
        watching, client = await served.open(), await served.open()
        head = f"GET {MAPS}?watch=1 HTTP/1.1\r\nHost: x\r\n".encode()
        await watching.send(head + served.credentials + b"\r\n")
        assert (await watching.reply(whole=False)).status == 200
        sizes = (1, 30_000, 32_768, 40_000, 2, 1_040_000)
        for number, size in enumerate(sizes):
            body = json.dumps({"metadata": {"name": f"m{number}"}, "data": {"x": "x" * size}}).encode()
            head = f"POST {MAPS} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n".encode()
            await client.send(head + served.credentials + b"\r\n" + body)
            assert (await client.reply()).status == 201
        for number, size in enumerate(sizes):
            length = int(await watching.reader.readline(), 16)
            event = json.loads(await watching.reader.readexactly(length))
            assert await watching.reader.readexactly(2) == b"\r\n"
            assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", f"m{number}")
            assert len(event["object"]["data"]["x"]) == size
            head = f"GET {MAPS}/m{number} HTTP/1.1\r\nHost: x\r\n".encode()
            await client.send(head + served.credentials + b"\r\n")
            assert json.loads((await client.reply()).body) == event["object"]
        for connection in (watching, client):
            await connection.abort()


# -- time-outs


@pytest.mark.parametrize("size", [10, 100_000])
def test_a_client_that_disconnects_before_its_response_is_not_an_error(
    size: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with serving() as server:

            async def respond(request: ApiRequest) -> ApiResponse:
                for connection in server.connections:
                    assert connection.raw_transport is not None
                    connection.raw_transport.abort()
                return ApiResponse(200, b" " * size)

            connection = await server.open()
            monkeypatch.setattr(server.running.api, "handle", respond)
            await connection.send(REQUEST + server.credentials + b"\r\n")
            assert await connection.reply() == CLOSED
            await connection.close()
            monkeypatch.undo()
            await (await server.enter()).close()

    run_scenario(scenario)
    assert [record.message for record in caplog.records if record.exc_info] == []


@run_by(run_scenario)
async def test_headers_have_to_arrive_in_time() -> None:
    async with serving(header_timeout=3) as served:
        known = await served.enter()
        silent = await served.open()
        dripping = await served.open()
        await known.send(b"GET /version HT")  # a second request that never ends
        raw = socket.create_connection(("127.0.0.1", served.port))
        half = socket.create_connection(("127.0.0.1", served.port))
        half.sendall(b"\x16\x03\x01\x02\x00\x01")  # the beginning of a TLS handshake

        async def drip() -> None:
            await dripping.send(REQUEST + b"h: ")
            while True:
                await dripping.send(b"a")
                await asyncio.sleep(0.1)

        dripped = asyncio.create_task(drip())
        for connection in (silent, dripping, known):
            assert await ends(connection) is CLOSED
        dripped.cancel()
        loop = asyncio.get_running_loop()
        for client in (raw, half):
            assert await loop.run_in_executor(None, client.recv, 1) == b""
            client.close()
        assert served.acceptor.peers.served == served.acceptor.peers.quiet == 0


@run_by(run_scenario)
async def test_authenticated_clients_may_be_idle_and_watch() -> None:
    async with serving(header_timeout=2, unauthenticated=2) as served:
        idle, watching = await served.enter(), await served.enter()
        head = f"GET {MAPS}?watch=1 HTTP/1.1\r\nHost: x\r\n".encode()
        await watching.send(head + served.credentials + b"\r\n")
        assert (await watching.reply(whole=False)).status == 200
        crowd = [socket.create_connection(("127.0.0.1", served.port)) for _ in range(6)]
        for client in crowd:
            client.sendall(b"\x16\x03\x01\x02\x00\x01")
        loop = asyncio.get_running_loop()
        for client in crowd:  # the time for headers is over
            assert await loop.run_in_executor(None, receive, client) == b""
        assert await served.version(idle) == 200
        body = json.dumps({"metadata": {"name": "seen"}}).encode()
        post = f"POST {MAPS} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n".encode()
        await idle.send(post + served.credentials + b"\r\n" + body)
        assert (await idle.reply()).status == 201
        await watching.reader.readuntil(b'"name":"seen"')
        for connection in (idle, watching):
            await connection.abort()
        for client in crowd:
            client.close()


# -- numbers


@run_by(run_scenario)
async def test_unauthenticated_connections_are_limited() -> None:
    async with serving(unauthenticated=3) as served:
        known = []
        for _ in range(8):
            known.append(await served.enter())
        assert served.acceptor.peers.served == 0
        hostile = [asyncio.create_task(served.open()) for _ in range(12)]
        for _ in range(25):
            await asyncio.sleep(0.01)
            assert served.acceptor.peers.served <= 3
            assert len(served.connections) <= 8 + 3
        peers = served.acceptor.peers
        with patch.object(peers, "tick", wraps=peers.tick) as tick:
            new = await served.enter()
        # About one for each connection that arrives, ends or is evicted: the server sleeps meanwhile.
        assert tick.call_count < 100
        for connection in known:
            assert await served.version(connection) == 200
        for attempt in hostile:
            attempt.cancel()
        opened = await asyncio.gather(*hostile, return_exceptions=True)
        for connection in (new, *known, *(found for found in opened if isinstance(found, RawConnection))):
            await connection.abort()


@run_by(run_scenario)
async def test_connections_that_send_nothing_cost_no_tls() -> None:
    async with serving(unauthenticated_per_address=20) as served:
        clients = [socket.create_connection(("127.0.0.1", served.port)) for _ in range(50)]
        await until(lambda: served.acceptor.peers.dropped == 30)
        assert (served.acceptor.peers.quiet, served.acceptor.peers.served) == (20, 0)
        assert not served.connections
        new = await served.enter()
        for client in clients:
            client.close()
        await until(lambda: not served.acceptor.peers.quiet)
        await new.close()


@run_by(run_scenario)
async def test_a_client_certificate_is_enough(*, tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        pair = CertificateAuthority.load_or_create(tmp_path).issue_client(ADMIN)
        (tmp_path / "client.pem").write_bytes(pair.certificate + pair.key)
        context = trusting()
        context.load_cert_chain(tmp_path / "client.pem")
        connection = await RawConnection.open(served.port, context)
        await until(lambda: len(served.connections) == 1)
        await until(lambda: served.connections[0].authenticated)
        assert served.acceptor.peers.served == 0
        assert await served.version(connection, anonymous=True) == 200
        await connection.close()


@run_by(run_scenario)
async def test_requests_with_wrong_credentials_are_unauthenticated() -> None:
    async with serving() as served:
        connection = await served.open()
        await connection.send(REQUEST + b"Authorization: Bearer wrong\r\n\r\n")
        assert (await connection.reply()).status == 401
        assert served.acceptor.peers.served == 1
        assert await served.version(connection) == 200
        assert served.acceptor.peers.served == 0
        await connection.close()


@run_by(run_scenario)
async def test_failed_handshakes_leave_nothing_behind() -> None:
    """asyncio keeps 256 KiB for each; they must be freed without a garbage collection."""
    async with serving() as served:
        gc.collect()
        gc.disable()
        try:
            for sent in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"\x16") * 5:
                client = socket.create_connection(("127.0.0.1", served.port))
                client.sendall(sent)
                await asyncio.sleep(0.02)
                client.close()
            await until(lambda: not served.acceptor.peers.served)
            await asyncio.sleep(0.1)
            left = [found for found in gc.get_objects() if isinstance(found, SSLProtocol)]
            assert not left
        finally:
            gc.enable()


@run_by(run_scenario)
async def test_a_server_stops_with_connections_in_every_state() -> None:
    async with serving(unauthenticated=2) as served:
        quiet = socket.create_connection(("127.0.0.1", served.port))
        half = [socket.create_connection(("127.0.0.1", served.port)) for _ in range(4)]
        for client in half:
            client.sendall(b"\x16\x03\x01\x02\x00\x01")
        await until(lambda: served.acceptor.peers.served == 2)
        await until(lambda: served.acceptor.peers.waiting == 2)
    for client in (quiet, *half):
        client.close()


def test_a_stopped_server_leaves_no_open_socket_behind() -> None:
    """A client that does not read takes no part in the TLS shutdown."""

    def connect(served: ServerHarness) -> ssl.SSLSocket:
        client = trusting().wrap_socket(socket.create_connection(("127.0.0.1", served.port)))
        client.sendall(REQUEST + served.credentials + b"\r\n")
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 200")
        return client

    async def scenario() -> None:
        async with serving() as served:
            client = await asyncio.to_thread(connect, served)
            connections = served.connections
            assert [bool(each.raw_transport) for each in connections] == [True]
        assert [bool(each.raw_transport) for each in connections] == [False]
        client.close()

    run_scenario(scenario)
