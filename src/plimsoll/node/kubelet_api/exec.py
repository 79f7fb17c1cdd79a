"""Execution of commands in running containers for clients (`kubectl exec`, `kubectl cp`).

A command has the container's credentials, environment, mounts and cgroups. It is killed, with its process
group, when its client disconnects or its container ends. Input and output are passed on as fast as both sides
read; nothing is held beyond small buffers.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from plimsoll.common.tasks import at_most, cancel_tasks
from plimsoll.node.kubelet_api.remote_command import (
    RemoteStreams,
    StreamOptions,
    Tree,
    exit_status,
    failure_status,
)
from plimsoll.node.kubelet_api.terminal import Terminal
from plimsoll.node.pods.command_runner import start_command
from plimsoll.node.runtime.exec_spec import TERM

_CHUNK_BYTES = 32 << 10
#: Time to read the rest of the output, which a descendant may keep open (seconds).
_DRAIN_SECONDS = 2.0
_MAX_REPORT = 4096


class ExecRuntime(Protocol):
    """Runtime whose containers are processes: `runtime.process.ProcessRuntime`."""

    def exec_spec(self, id: str) -> Mapping[str, Any] | None: ...

    @property
    def exec_program(self) -> Path: ...

    async def wait_ended(self, id: str) -> None: ...


async def execute(
    runtime: ExecRuntime, id: str, command: Sequence[str], options: StreamOptions, streams: RemoteStreams
) -> Tree:
    """Run a command for a client; return its status for the error channel."""
    spec = runtime.exec_spec(id)
    if spec is None:
        return failure_status(f"container {id} is not running")
    terminal = Terminal() if options.tty else None
    report_r, report_w = os.pipe2(os.O_CLOEXEC)
    try:
        given = {**spec, "argv": list(command), "report": report_w}
        pipe, none = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        wanted = (options.stdin, options.stdout, options.stderr)
        fds = [pipe if each else none for each in wanted]
        if terminal is not None:
            given |= {"tty": True, "env": {"TERM": TERM, **spec["env"]}}
            fds = [terminal.slave] * 3
        try:
            process = await start_command(
                runtime.exec_program,
                given,
                stdin=fds[0],
                stdout=fds[1],
                stderr=fds[2],
                inherited=(report_w,),
            )
        except (OSError, ValueError) as error:
            return failure_status(f"error executing command in container: {error}")
        finally:
            os.close(report_w)
            report_w = -1
            if terminal is not None:
                terminal.close_slave()
        return await _Session(process, terminal, options, streams).run(runtime.wait_ended(id), report_r)
    finally:
        os.close(report_r)
        if terminal is not None:
            terminal.close()


class _Session:
    """A command and its streams."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        terminal: Terminal | None,
        options: StreamOptions,
        streams: RemoteStreams,
    ) -> None:
        self._process = process
        self._terminal = terminal
        self._options = options
        self._streams = streams

    async def run(self, container_end: Coroutine[Any, Any, None], report: int) -> Tree:
        outputs = [asyncio.create_task(work) for work in self._outputs()]
        others = [asyncio.create_task(work) for work in self._inputs()]
        ends = [asyncio.create_task(container_end), asyncio.create_task(self._streams.wait_closed())]
        exited = asyncio.create_task(self._process.wait())
        try:
            done, _ = await asyncio.wait((exited, *ends), return_when=asyncio.FIRST_COMPLETED)
            if exited not in done:
                self._kill()
                async with at_most(_DRAIN_SECONDS):
                    await exited
            async with at_most(_DRAIN_SECONDS):
                await asyncio.gather(*outputs, return_exceptions=True)
            problem = os.read(report, _MAX_REPORT).decode(errors="replace").strip() if exited.done() else ""
            if problem:
                return failure_status(f"error executing command in container: {problem}")
            code = self._process.returncode
            return exit_status(137 if code is None else code if code >= 0 else 128 - code)
        finally:
            self._kill()
            await cancel_tasks([*outputs, *others, *ends, exited])

    def _outputs(self) -> list[Coroutine[Any, Any, None]]:
        if self._terminal is not None:
            return [self._copy_out(self._terminal.read, error=False)]
        found = []
        for stream, error in ((self._process.stdout, False), (self._process.stderr, True)):
            if stream is not None:
                found.append(self._copy_out(_chunk_reader(stream), error=error))
        return found

    def _inputs(self) -> list[Coroutine[Any, Any, None]]:
        found = [self._copy_in()] if self._options.stdin else []
        return [*found, self._resize()] if self._terminal is not None else found

    async def _copy_out(self, read: Callable[[], Awaitable[bytes]], *, error: bool) -> None:
        try:
            while data := await read():
                await self._streams.write(data, error=error)
        except ConnectionError:
            self._kill()

    async def _copy_in(self) -> None:
        target = self._process.stdin
        with suppress(OSError):  # the command has closed its input
            while data := await self._streams.read_input():
                if self._terminal is not None:
                    await self._terminal.write(data)
                elif target is not None:
                    target.write(data)
                    await target.drain()
        if target is not None:
            with suppress(OSError):
                target.close()

    async def _resize(self) -> None:
        assert self._terminal is not None
        while (size := await self._streams.read_size()) is not None:
            self._terminal.resize(size)

    def _kill(self) -> None:
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)


def _chunk_reader(stream: asyncio.StreamReader) -> Callable[[], Awaitable[bytes]]:
    return lambda: stream.read(_CHUNK_BYTES)
