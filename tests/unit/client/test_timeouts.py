"""Response timeouts: silent servers time out, slow responses do not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from typing import Any

import pytest

from plimsoll.client import Client, ClientConfig
from plimsoll.client.config import REQUEST_TIMEOUT
from plimsoll.client.endpoints import PODS
from plimsoll.client.http import HttpTransport
from plimsoll.client.transport import Request
from plimsoll.errors import ApiError, UnreachableError
from tests.streams import Handle, serving_streams

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 30\r\n\r\n"
#: Long after every test has ended.
NEVER = 600.0
#: Timeout of calls that get no response: on a busy machine a connection takes a part of a second.
SHORT = 3.0


async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(NEVER)


def send(*pieces: bytes, every: float = 0.0, then: float = NEVER) -> Handle:
    """Answer a request with some bytes, with pauses between them."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(every)
        await asyncio.sleep(then)

    return talk


SILENT: dict[str, Handle] = {
    "nothing": say_nothing,
    "half a head": send(HEAD[:40]),
    "no body": send(HEAD),
    "half a body": send(HEAD + b'{"kind":'),
    "half a chunk": send(HEAD.replace(b"Content-Length: 30", b"Transfer-Encoding: chunked") + b"5\r\nab"),
}


async def all_at_once(check: Callable[[str, bool], Coroutine[Any, Any, None]]) -> None:
    """Check every silent server with both ways to send a request: the short one, and aiohttp, which reads
    compressed answers.
    """
    async with asyncio.TaskGroup() as tasks:
        for name in SILENT:
            for compression in (False, True):
                tasks.create_task(check(name, compression), name=f"{name}, {compression=}")


def test_a_silent_server_times_out() -> None:
    async def check(name: str, compression: bool) -> None:
        async with serving_streams(SILENT[name]) as server:
            transport = HttpTransport(ClientConfig(server.url, compression=compression))
            try:
                with pytest.raises(UnreachableError, match=r"no response within 3 s") as error:
                    await transport.send(Request("GET", "/api", timeout=NEVER, idle_timeout=SHORT))
            finally:
                await transport.close()
            assert error.value.reason == "Timeout", name
            assert error.value.sent, name
            assert server.url in str(error.value), name

    asyncio.run(all_at_once(check))


@pytest.mark.parametrize("compression", [False, True])
async def test_a_stalled_tls_handshake_times_out(compression: bool) -> None:
    async with serving_streams(say_nothing) as server:
        server.scheme = "https"
        transport = HttpTransport(ClientConfig(server.url, compression=compression, insecure=True))
        try:
            with pytest.raises(UnreachableError, match=r"no connection within 0\.3 s") as error:
                await transport.send(Request("GET", "/api", timeout=NEVER, idle_timeout=0.4))
        finally:
            await transport.close()
        assert error.value.reason == "Timeout"
        assert not error.value.sent


@pytest.mark.parametrize("compression", [False, True])
def test_a_slow_response_does_not_time_out(compression: bool) -> None:
    body = b'{"kind":"Status","code":200}  '
    assert len(body) == 30
    pieces = [HEAD[:10], HEAD[10:], *(body[at : at + 5] for at in range(0, 30, 5))]

    async def scenario() -> None:
        async with serving_streams(send(*pieces, every=0.4)) as server:
            transport = HttpTransport(ClientConfig(server.url, compression=compression))
            try:
                reply = await transport.send(Request("GET", "/api", timeout=NEVER, idle_timeout=3.0))
            finally:
                await transport.close()
            assert reply.body == body

    asyncio.run(scenario())


async def test_the_complete_response_has_a_timeout() -> None:
    """Single bytes now and then do not extend the timeout."""
    async with serving_streams(send(HEAD, *[b" "] * 29, every=0.1)) as server:
        transport = HttpTransport(ClientConfig(server.url, compression=False))
        try:
            with pytest.raises(UnreachableError, match=r"within 1.5 s"):
                await transport.send(Request("GET", "/api", timeout=1.5, idle_timeout=60.0))
        finally:
            await transport.close()


async def test_a_watch_does_not_time_out() -> None:
    """Nothing may happen in a cluster for long; the idle_timeout of calls is none of a watch's business."""
    event = b'{"type":"ADDED","object":{"kind":"Pod","metadata":{"name":"a"}}}\n'
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"%x\r\n%b\r\n" % (len(event), event)
    async with serving_streams(send(head, b"", chunk, every=0.5)) as server:
        config = ClientConfig(server.url).interactive(0.2)
        async with Client.connect(config) as client, aclosing(client.watch(PODS)) as events:
            assert (await anext(events)).type == "ADDED"


# -- retries


def test_an_interactive_call_without_response_is_not_retried() -> None:
    async def check(name: str, compression: bool) -> None:
        async with serving_streams(SILENT[name]) as server:
            config = ClientConfig(server.url, compression=compression).interactive(SHORT)
            async with Client.connect(config) as client:
                with pytest.raises(UnreachableError):
                    await client.call("GET", "/api")
            assert server.connections == 1, name

    asyncio.run(all_at_once(check))


async def test_background_calls_are_retried() -> None:
    async with serving_streams(say_nothing) as server:
        async with Client.connect(ClientConfig(server.url, timeout=SHORT, attempts=3)) as client:
            with pytest.raises(UnreachableError):
                await client.call("GET", "/api")
        assert server.connections == 3


async def test_immediate_failures_are_retried() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")

    async with serving_streams(hang_up) as server:
        async with Client.connect(ClientConfig(server.url).interactive(60.0)) as client:
            with pytest.raises(UnreachableError, match="broke"):
                await client.call("GET", "/api")
        assert server.connections == 3


async def test_a_long_retry_after_is_not_waited_for() -> None:
    body = b'{"kind":"Status","code":503,"reason":"ServiceUnavailable","message":"come later"}'
    head = (
        b"HTTP/1.1 503 No\r\nRetry-After: 60\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    )
    async with serving_streams(send(head % len(body) + body)) as server:
        async with Client.connect(ClientConfig(server.url).interactive(30.0)) as client:
            with pytest.raises(ApiError, match="come later"):
                await client.call("GET", "/api")
        assert server.connections == 1


# -- settings


def test_the_default_timeout_is_seconds() -> None:
    config = ClientConfig("http://127.0.0.1:1").interactive()
    assert config.idle_timeout == config.retry_timeout == REQUEST_TIMEOUT
    assert 5 <= REQUEST_TIMEOUT <= 15
    assert config.timeout >= 30
    assert config.attempts == 3
    assert ClientConfig("http://127.0.0.1:1", timeout=2.0, attempts=1).interactive() == ClientConfig(
        "http://127.0.0.1:1", timeout=2.0, attempts=1, idle_timeout=2.0, retry_timeout=2.0
    )


def test_a_longer_timeout_can_be_set() -> None:
    config = ClientConfig("http://127.0.0.1:1").interactive(120.0)
    assert (config.idle_timeout, config.retry_timeout, config.timeout) == (120.0, 120.0, 480.0)
    config = ClientConfig("http://127.0.0.1:1").interactive(0)
    assert (config.idle_timeout, config.retry_timeout) == (0.0, 0.0)
    assert config.timeout > 86_400
