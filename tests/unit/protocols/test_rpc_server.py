"""Conversations of gRPC clients with our server: statuses, limits, slow and vanishing clients."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, ResponseReceived, TrailersReceived
from h2.settings import SettingCodes

from plimsoll.protocols import rpc
from plimsoll.protocols.messages import dra_v1, health_v1alpha1, registration
from tests.waiting import DEADLINE, until

PREPARE = rpc.find_method(dra_v1.DESCRIPTOR, "DRAPlugin", "NodePrepareResources")
WATCH = rpc.find_method(health_v1alpha1.DESCRIPTOR, "DRAResourceHealth", "NodeWatchResources")
REQUEST = dra_v1.NodePrepareResourcesRequest
RESPONSE = dra_v1.NodePrepareResourcesResponse
BIG = 3_000_000
_GOAWAY = 7  #: type of the frame
HEADERS = [
    (":method", "POST"),
    (":scheme", "http"),
    (":authority", "x"),
    (":path", rpc.method_path(PREPARE)),
    ("content-type", "application/grpc+proto"),
]


class Plugin:
    """Methods that do what a test wants of them, and count."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.sent = 0

    async def prepare(self, request: Any, context: Any) -> Any:
        uid = request.claims[0].uid if request.claims else ""
        self.begun.set()
        if uid == "wait":
            try:
                await self.go_on.wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
        if uid == "fail":
            raise LookupError("no such thing")
        if uid == "time out":
            raise TimeoutError("of the method itself")
        if uid == "refuse":
            await context.abort(rpc.StatusCode.RESOURCE_EXHAUSTED, "100 % – full\nindeed")
        answer = RESPONSE()
        answer.claims["echo"].error = "x" * BIG if uid == "big" else uid
        return answer

    async def watch(self, request: Any, context: Any) -> AsyncIterator[Any]:
        try:
            while True:
                yield health_v1alpha1.NodeWatchResourcesResponse(devices=[{"message": "y" * 10_000}])
                self.sent += 1
        finally:
            self.cancelled.set()

    def handlers(self) -> list[Any]:
        return [
            rpc.handle(dra_v1.DESCRIPTOR, "DRAPlugin", {"NodePrepareResources": self.prepare}),
            rpc.handle(health_v1alpha1.DESCRIPTOR, "DRAResourceHealth", {"NodeWatchResources": self.watch}),
        ]


@asynccontextmanager
async def serving(path: Path, **options: Any) -> AsyncIterator[tuple[Plugin, rpc.RpcServer, Any]]:
    plugin = Plugin()
    server = await rpc.serve(path, plugin.handlers(), **options)
    channel = rpc.dial(path)
    try:
        yield plugin, server, channel
    finally:
        await rpc.close(channel)
        await server.stop(None)


async def call(channel: Any, uid: str, timeout: float = 20.0) -> str:
    """Return what the method echoes, or the status of the failure."""
    try:
        answer = await rpc.call(channel, PREPARE, REQUEST(claims=[{"uid": uid}]), timeout=timeout)
    except grpc.aio.AioRpcError as error:
        return f"{error.code().name}: {error.details()}"
    return str(answer.claims["echo"].error)


def test_statuses_reach_the_client(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with serving(tmp_path / "s") as (_, _server, channel):
            assert await call(channel, "é") == "é"
            assert await call(channel, "refuse") == "RESOURCE_EXHAUSTED: 100 % – full\nindeed"
            assert await call(channel, "fail") == "UNKNOWN: Unexpected <class 'LookupError'>: no such thing"
            assert (await call(channel, "time out")).startswith("UNKNOWN: Unexpected <class 'TimeoutError'>")
            assert await call(channel, "still works") == "still works"

    asyncio.run(scenario())
    assert "NodePrepareResources failed" in caplog.text


async def test_messages_larger_than_the_windows_of_flow_control(tmp_path: Path) -> None:
    async with serving(tmp_path / "s") as (_, _server, channel):
        assert await call(channel, "z" * BIG) == "z" * BIG
        results = await asyncio.gather(*(call(channel, "big") for _ in range(4)))
        assert [len(each) for each in results] == [BIG] * 4


async def test_messages_larger_than_the_limit_are_refused_in_both_directions(tmp_path: Path) -> None:
    async with serving(tmp_path / "s", max_size=100_000) as (_, _server, channel):
        assert (await call(channel, "z" * BIG)).startswith("RESOURCE_EXHAUSTED")
        assert "the maximum is 100000" in await call(channel, "big")
        assert await call(channel, "small") == "small"


async def test_a_call_past_its_deadline_is_cancelled(tmp_path: Path) -> None:
    async with serving(tmp_path / "s") as (plugin, _, channel):
        assert (await call(channel, "wait", timeout=0.2)).startswith("DEADLINE_EXCEEDED")
        await asyncio.wait_for(plugin.cancelled.wait(), 10)


async def test_a_stream_ends_with_its_client_and_waits_for_a_slow_one(tmp_path: Path) -> None:
    async with serving(tmp_path / "s") as (plugin, _, channel):
        messages = rpc.watch(channel, WATCH, health_v1alpha1.NodeWatchResourcesRequest())
        async for message in messages:
            assert len(message.devices[0].message) == 10_000
            break
        assert await call(channel, "meanwhile") == "meanwhile"
        assert plugin.sent < 10_000
        messages.cancel()  # type: ignore[attr-defined]
        await asyncio.wait_for(plugin.cancelled.wait(), 10)


async def test_a_call_of_a_client_that_vanishes_is_cancelled(tmp_path: Path) -> None:
    async with serving(tmp_path / "s") as (plugin, server, _):
        connection = H2Connection(H2Configuration(header_encoding="utf-8"))
        connection.initiate_connection()
        connection.send_headers(1, HEADERS)
        message = REQUEST(claims=[{"uid": "wait"}]).SerializeToString()
        connection.send_data(1, b"\0" + len(message).to_bytes(4, "big") + message, end_stream=True)
        _, writer = await asyncio.open_unix_connection(str(tmp_path / "s"))
        writer.write(connection.data_to_send())
        await asyncio.wait_for(plugin.begun.wait(), 10)
        writer.transport.abort()
        await asyncio.wait_for(plugin.cancelled.wait(), 10)
        assert not server.connections


@pytest.mark.parametrize("grace", [10.0, None])
async def test_calls_in_progress_finish_within_the_grace(tmp_path: Path, grace: float | None) -> None:
    async with serving(tmp_path / "s") as (plugin, server, channel):
        waiting = asyncio.create_task(call(channel, "wait"))
        await asyncio.wait_for(plugin.begun.wait(), 10)
        stopping = asyncio.create_task(server.stop(grace))
        await asyncio.sleep(0)
        assert not (tmp_path / "s").exists()
        plugin.go_on.set()
        await stopping
        result = await waiting
        assert result == "wait" if grace else result.startswith(("CANCELLED", "UNAVAILABLE"))


@pytest.mark.parametrize("leaves", [True, False])
async def test_responses_can_be_read_before_the_connection_is_closed(tmp_path: Path, leaves: bool) -> None:
    """A client whose next write fails would not read the response; one that stays is not waited for."""
    async with serving(tmp_path / "s") as (plugin, server, _):
        client = H2Connection(H2Configuration(header_encoding="utf-8"))
        client.initiate_connection()
        client.send_headers(1, HEADERS)
        body = REQUEST(claims=[{"uid": "wait"}]).SerializeToString()
        client.send_data(1, b"\0" + len(body).to_bytes(4, "big") + body, end_stream=True)
        reader, writer = await asyncio.open_unix_connection(tmp_path / "s")
        writer.write(client.data_to_send())
        await asyncio.wait_for(plugin.begun.wait(), DEADLINE)
        stopping = asyncio.create_task(server.stop(DEADLINE))
        await asyncio.sleep(0)
        plugin.go_on.set()
        await until(lambda: not any(each.tasks() for each in server.connections))
        await asyncio.sleep(0.01)
        assert not stopping.done()
        client.ping(b"12345678")
        writer.write(client.data_to_send())
        trailers: list[TrailersReceived] = []
        while not trailers:
            head = await reader.readexactly(9)
            frame = head + await reader.readexactly(int.from_bytes(head[:3], "big"))
            if head[3] != _GOAWAY:  # h2 would end the connection at once
                trailers += [e for e in client.receive_data(frame) if isinstance(e, TrailersReceived)]
        assert ("grpc-status", "0") in (trailers[0].headers or ())
        if leaves:
            writer.close()
        await stopping
        writer.close()
        await writer.wait_closed()


def test_a_client_that_does_not_read_does_not_outlive_the_server(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path / "s") as (plugin, server, _):
            client = H2Connection(H2Configuration(header_encoding="utf-8"))
            client.initiate_connection()
            client.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 1 << 30})
            client.increment_flow_control_window(1 << 30)
            watch = [
                (":path", rpc.method_path(WATCH)) if name == ":path" else (name, value)
                for name, value in HEADERS
            ]
            client.send_headers(1, watch)
            client.send_data(1, bytes(5), end_stream=True)
            with socket.socket(socket.AF_UNIX) as reader:
                reader.connect(str(tmp_path / "s"))
                reader.sendall(client.data_to_send())
                await until(lambda: plugin.sent)
                sent = -1
                while sent < (sent := plugin.sent):  # until the server waits for the client
                    await asyncio.sleep(0.01)
                await server.stop(None)
                assert not server.connections

    asyncio.run(scenario())


def exchange(path: Path, headers: list[tuple[str, str]], body: bytes) -> dict[str, str]:
    """Send a request with h2 as it is, and return the headers and trailers of the response."""
    connection = H2Connection(H2Configuration(header_encoding="utf-8"))
    connection.initiate_connection()
    connection.send_headers(1, headers)
    connection.send_data(1, body, end_stream=True)
    found: dict[str, str] = {}
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(DEADLINE)
        client.connect(str(path))
        client.sendall(connection.data_to_send())
        while "grpc-status" not in found and found.get(":status", "200") == "200":
            data = client.recv(65536)
            if not data:
                break
            for event in connection.receive_data(data):
                if isinstance(event, ResponseReceived | TrailersReceived):
                    found |= {str(name): str(value) for name, value in event.headers or ()}
                if isinstance(event, DataReceived):
                    found["data"] = (event.data or b"").hex()
            client.sendall(connection.data_to_send())
    return found


async def test_odd_requests_get_a_status(tmp_path: Path) -> None:
    *base, path, grpc_type = HEADERS
    cases = [
        ([(":path", "/no.Such/Method"), grpc_type], b"\0\0\0\0\0", "12"),
        ([path, grpc_type], b"", "13"),
        ([path, grpc_type], b"\1\0\0\0\0", "12"),
        ([path, grpc_type], b"\0\0\0\0\5abc", "13"),
        ([path, grpc_type], b"\0\0\0\0\3\xff\xff\xff", "13"),
        ([path, grpc_type, ("grpc-timeout", "10S")], b"\0\0\0\0\0", "0"),
        ([path, grpc_type, ("grpc-timeout", "nonsense")], b"\0\0\0\0\0", "0"),
    ]
    async with serving(tmp_path / "s"):
        for headers, body, status in cases:
            got = await asyncio.to_thread(exchange, tmp_path / "s", base + headers, body)
            assert (got[":status"], got["grpc-status"]) == ("200", status), (headers, body)
        html = [path, ("content-type", "text/html")]
        assert (await asyncio.to_thread(exchange, tmp_path / "s", base + html, b""))[":status"] == "415"


def test_what_is_not_http_2_ends_the_connection_only(tmp_path: Path) -> None:
    def send_garbage() -> None:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(DEADLINE)
            client.connect(str(tmp_path / "s"))
            client.sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(range(256)))
            while client.recv(65536):
                pass

    async def scenario() -> None:
        async with serving(tmp_path / "s") as (_, _server, channel):
            await asyncio.to_thread(send_garbage)
            assert await call(channel, "works") == "works"

    asyncio.run(scenario())


async def test_a_method_without_a_function_is_unimplemented(tmp_path: Path) -> None:
    async with serving(tmp_path / "s") as (_, _server, channel):
        method = rpc.find_method(registration.DESCRIPTOR, "Registration", "GetInfo")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await rpc.call(channel, method, registration.InfoRequest(), timeout=DEADLINE)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("steps", range(5))
def test_a_connection_that_is_accepted_while_the_server_stops_is_closed(tmp_path: Path, steps: int) -> None:
    async def scenario() -> None:
        server = await rpc.serve(tmp_path / "s", Plugin().handlers())
        client = socket.socket(socket.AF_UNIX)
        client.connect(str(tmp_path / "s"))
        for _ in range(steps):
            await asyncio.sleep(0)
        await server.stop()
        client.setblocking(False)
        async with asyncio.timeout(DEADLINE):
            with suppress(ConnectionError):
                while await asyncio.get_running_loop().sock_recv(client, 1000):
                    pass
        client.close()

    asyncio.run(scenario())
    gc.collect()  # a connection that is still open is reported by its destructor
