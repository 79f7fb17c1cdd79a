"""Probe results and handlers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.containers import ExecAction, GRPCAction, HTTPGetAction, Probe, TCPSocketAction
from plimsoll.api.core import Container, ContainerPort
from plimsoll.node.pods.command_runner import HostCommandRunner
from plimsoll.node.pods.handlers import HandlerResult, find_port, run_handler
from plimsoll.node.pods.probes import ProbeCounter
from plimsoll.node.runtime.shims import SOURCE, confinement_path
from tests.streams import serving_streams
from tests.unit.node.pods.local_commands import beside_us
from tests.waiting import DEADLINE


@given(st.lists(st.booleans(), max_size=20), st.integers(0, 3), st.integers(0, 4))
def test_the_result_is_the_last_streak_that_met_the_threshold(
    seen: list[bool], success: int, failure: int
) -> None:
    probe = Probe(success_threshold=success, failure_threshold=failure)
    tally = ProbeCounter()
    for outcome in seen:
        tally = tally.count(outcome, probe)
    need = {True: max(1, success), False: failure or 3}
    expected = None
    for place in range(len(seen)):
        tail = seen[: place + 1]
        length = next((i for i, each in enumerate(reversed(tail)) if each != tail[-1]), len(tail))
        if length >= need[tail[-1]]:
            expected = tail[-1]
    assert tally.good == expected


def check(probe: Probe, seconds: float = 2.0, commands: HostCommandRunner | None = None) -> HandlerResult:
    container = Container(name="c", ports=(ContainerPort(name="web", container_port=1),))
    return asyncio.run(run_handler(probe, container, "id", "127.0.0.1", commands, seconds))


def test_ports() -> None:
    container = Container(name="c", ports=(ContainerPort(name="web", container_port=8080),))
    assert [find_port(port, container) for port in (80, "81", "web")] == [80, 81, 8080]
    for wrong in ("other", 0, 70000, None):
        with pytest.raises(ValueError, match="port"):
            find_port(wrong, container)


def test_connection_refused() -> None:
    # No port of these names is there, and nothing listens on the last one.
    for probe in (
        Probe(http_get=HTTPGetAction(port="web")),
        Probe(tcp_socket=TCPSocketAction(port="web")),
        Probe(grpc=GRPCAction(port=1)),
    ):
        outcome = check(probe)
        assert not outcome.ok
        assert outcome.text


def test_malformed_and_missing_responses_are_failures() -> None:
    async def scenario() -> None:
        for text in (b"\xff" * 100_000, b""):
            left = asyncio.Event()

            async def answer(
                reader: asyncio.StreamReader,
                writer: asyncio.StreamWriter,
                text: bytes = text,
                left: asyncio.Event = left,
            ) -> None:
                writer.write(text)
                with suppress(OSError):
                    await reader.read()
                writer.transport.abort()
                left.set()

            async with serving_streams(answer) as server:
                probe = Probe(http_get=HTTPGetAction(port=server.port))
                outcome = await run_handler(probe, Container(name="c"), "id", "127.0.0.1", None, 0.2)
                assert not outcome.ok
                await left.wait()
                await asyncio.sleep(0.01)

    run(scenario())


def test_redirects_are_followed_on_the_same_host() -> None:
    answers = {
        "/ok": (200, ""),
        "/bad": (500, ""),
        "/to?x=1": (302, "/ok"),
        "/to-bad": (307, "bad"),
        "/other": (302, "http://192.0.2.1/ok"),
        "/loop": (302, "/loop"),
        "/odd": (304, ""),
    }

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        status, location = answers[path]
        head = f"HTTP/1.1 {status} X\r\n" + (f"Location: {location}\r\n" if location else "")
        writer.write(f"{head}\r\nbody of {path}".encode())
        await writer.drain()

    async def scenario() -> None:
        async with serving_streams(answer) as server:

            async def ask(path: str) -> HandlerResult:
                probe = Probe(http_get=HTTPGetAction(port=server.port, path=path))
                return await run_handler(probe, Container(name="c"), "id", "127.0.0.1", None, 20.0)

            assert await ask("/to?x=1") == HandlerResult(True)
            assert await ask("/to-bad") == HandlerResult(False, "HTTP probe failed with statuscode: 500")
            assert await ask("/loop") == HandlerResult(False, "stopped after 10 redirects")
            for path in ("/other", "/odd"):
                text = f"Probe terminated redirects, Response body: body of {path}"
                assert await ask(path) == HandlerResult(True, warning=text)

    run(scenario())


def run(work: Awaitable[Any]) -> None:
    async def whole() -> None:
        async with asyncio.timeout(DEADLINE):
            await work

    asyncio.run(whole())


@pytest.mark.parametrize(
    ("command", "outcome"),
    [
        (("true",), HandlerResult(True, "exit code 0")),
        (("sh", "-c", "echo $A; exit 3"), HandlerResult(False, "1")),
        (("sh", "-c", "sleep 60"), HandlerResult(False, "command timed out after 0.3s")),
        ((), HandlerResult(False, "no command specified")),
    ],
)
def test_commands(command: tuple[str, ...], outcome: HandlerResult) -> None:
    probe = Probe(exec=ExecAction(command=command))
    seconds = 0.3 if "timed out" in outcome.text else 20.0
    assert check(probe, seconds, beside_us({"A": "1"})) == outcome


def test_commands_that_cannot_run_are_failures() -> None:
    probe = Probe(exec=ExecAction(command=("no-such-command",)))
    assert not check(probe, commands=beside_us({"A": "1"})).ok
    assert not check(probe, commands=HostCommandRunner(lambda id: None, lambda: confinement_path(SOURCE))).ok
    assert not check(probe).ok
