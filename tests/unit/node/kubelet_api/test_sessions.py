"""Commands in containers and attached clients, on real processes."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from typing import Any

import pytest

from plimsoll.common.byte_buffer import ByteBuffer
from plimsoll.node.kubelet_api.attach import attach
from plimsoll.node.kubelet_api.exec import execute
from plimsoll.node.kubelet_api.remote_command import StreamOptions, TerminalSize, Tree
from plimsoll.node.runtime import ProcessRuntime
from plimsoll.node.runtime.console import HEAD, SOCKET, STDOUT
from tests.directories import short_directory
from tests.unit.node.runtime.runtime_harness import a_container, ended, run, runtime_harness, shell
from tests.waiting import until

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux with pidfd")


class FakeClient:
    """Streams of a client that gives some input and collects output."""

    def __init__(self, *given: bytes, ends: bool = True, size: TerminalSize | None = None) -> None:
        self.out = self.err = b""
        self.input = ByteBuffer(1000)
        self.given = list(given)
        self.ends = ends
        self.size = size
        self.gone = asyncio.Event()

    async def read_input(self) -> bytes:
        if self.given:
            return self.given.pop(0)
        if not self.ends:
            await self.gone.wait()
        return b""

    async def write(self, data: bytes, *, error: bool = False) -> None:
        if error:
            self.err += data
        else:
            self.out += data

    async def read_size(self) -> TerminalSize | None:
        size, self.size = self.size, None
        if size is None:
            await self.gone.wait()
        return size

    async def wait_closed(self) -> None:
        await self.gone.wait()

    async def finish(self, status: Tree) -> None:
        self.gone.set()


ALL = StreamOptions(stdin=True, stdout=True, stderr=True)
TTY = StreamOptions(stdin=True, stdout=True, tty=True)


async def attach_to(runtime: ProcessRuntime, options: StreamOptions, client: FakeClient) -> Tree:
    directory = runtime.container_directory("c1")
    assert directory is not None
    assert (directory / "attach.sock").exists()  # as soon as a container runs
    return await attach(directory, options, client)


async def test_a_command_gets_input_and_returns_output_and_code() -> None:
    async with runtime_harness() as harness, harness.runtime() as runtime:
        await run(runtime, a_container("sleep", "1000", env={"A": "from the container"}))
        client = FakeClient(b"one ", b"two")
        status = await execute(runtime, "c1", ["sh", "-c", "cat; echo $A >&2; exit 7"], ALL, client)
        assert (client.out, client.err) == (b"one two", b"from the container\n")
        assert status["details"]["causes"] == [{"reason": "ExitCode", "message": "7"}]
        missing = await execute(runtime, "c1", ["no-such-command"], ALL, FakeClient())
        assert missing["reason"] == "InternalError"
        assert 'exec: "no-such-command": executable file not found' in missing["message"]
        absent = await execute(runtime, "c2", ["true"], ALL, FakeClient())
        assert "not running" in absent["message"]


async def test_a_command_with_a_terminal() -> None:
    async with runtime_harness() as harness, harness.runtime() as runtime:
        await run(runtime, a_container("sleep", "1000"))
        client = FakeClient(b"go\n", ends=False, size=TerminalSize(100, 30))
        script = "read x; until [ \"$(stty size)\" = '30 100' ]; do sleep 0.01; done; echo $x $TERM $(tty)"
        status = await execute(runtime, "c1", ["sh", "-c", script], TTY, client)
        assert status["status"] == "Success"
        assert b"go xterm /dev/pts/" in client.out


async def kill_with(runtime: ProcessRuntime, end: str) -> None:
    client = FakeClient(ends=False)
    work = execute(runtime, "c1", ["sh", "-c", "echo $$; sleep 1000"], ALL, client)
    task = asyncio.create_task(work)
    await until(lambda: client.out.endswith(b"\n"))
    pid = int(client.out)
    if end == "client":
        client.gone.set()
    else:
        await runtime.stop_container("c1", 0)
    await task
    await until(lambda: not os.path.exists(f"/proc/{pid}/cmdline"))


async def test_a_command_is_killed_with_its_client_and_with_its_container() -> None:
    async with runtime_harness() as harness, harness.runtime() as runtime:
        await run(runtime, a_container("sleep", "1000"))
        for end in ("client", "container"):
            await kill_with(runtime, end)


async def test_input_of_an_attached_client_ends_with_it() -> None:
    async with runtime_harness() as harness, harness.runtime() as runtime:
        script = "echo ready >&2; cat; echo end"
        await run(runtime, shell(script, stdin=True, stdin_once=True))
        client = FakeClient(b"abc", b"def\n")
        assert (await attach_to(runtime, ALL, client))["status"] == "Success"
        assert client.out == b"abcdef\nend\n"
        assert (await ended(runtime)).exit_code == 0


async def test_input_stays_open_for_the_next_client() -> None:
    async with runtime_harness() as harness, harness.runtime() as runtime:
        await run(runtime, shell("read a; echo $a; read b; echo $b", stdin=True))
        first = FakeClient(b"one\n")
        task = asyncio.create_task(attach_to(runtime, ALL, first))
        await until(lambda: first.out == b"one\n")
        first.gone.set()
        await task
        second = FakeClient(b"two\n", ends=False)
        await attach_to(runtime, ALL, second)
        assert second.out == b"two\n"


def test_output_is_read_although_input_ends_after_the_container() -> None:
    class LateClient(FakeClient):
        """Client whose input ends when the container is gone, before the agent has read its output."""

        async def read_input(self) -> bytes:
            if not self.given:
                shim.join()
            return await super().read_input()

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            while b"typed" not in connection.recv(1000):
                pass
            connection.sendall(HEAD.pack(STDOUT, 5) + b"typed")

    async def scenario() -> None:
        client = LateClient(b"typed")
        assert (await attach(directory, ALL, client))["status"] == "Success"
        assert client.out == b"typed"

    with short_directory() as directory, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(directory / SOCKET))
        listener.listen()
        shim = threading.Thread(target=serve)
        shim.start()
        asyncio.run(scenario())


async def test_an_attached_terminal() -> None:
    async with runtime_harness() as harness, harness.runtime() as runtime:
        script = "read x; until [ \"$(stty size)\" = '30 100' ]; do sleep 0.01; done; echo got $x"
        await run(runtime, shell(script, stdin=True, tty=True))
        client = FakeClient(b"it\n", ends=False, size=TerminalSize(100, 30))
        await attach_to(runtime, TTY, client)
        assert b"got it" in client.out
        found = await ended(runtime)
        assert found.exit_code == 0
        with open(found.log) as log:
            assert "stdout F got it" in log.read()


async def test_a_client_that_does_not_read_does_not_delay_the_container() -> None:
    async with runtime_harness() as harness, harness.runtime() as runtime:
        await run(runtime, shell("read x; head -c 5000000 /dev/zero; echo; exit 4", stdin=True))

        class Stuck(FakeClient):
            async def write(self, data: bytes, *, error: bool = False) -> None:
                await self.gone.wait()

        stuck: Any = Stuck(b"go\n", ends=False)
        task = asyncio.create_task(attach_to(runtime, ALL, stuck))
        assert (await ended(runtime)).exit_code == 4
        stuck.gone.set()
        await task


async def test_input_is_bounded() -> None:
    buffer = ByteBuffer(10)
    await buffer.put(b"x" * 10)
    waiting = asyncio.create_task(buffer.put(b"y"))
    await asyncio.sleep(0)
    assert not waiting.done()
    assert await buffer.get() == b"x" * 10
    await waiting
    buffer.end()
    assert [await buffer.get(), await buffer.get()] == [b"y", b""]
