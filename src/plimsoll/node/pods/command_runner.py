"""Commands in containers, for exec probes and hooks: processes of this machine, or run by the runtime.

A command runs like the container's own processes: with its user, groups, capabilities and other credentials,
its environment, working directory, mounts and cgroups, so that it is limited and killed with it.
"""

from __future__ import annotations

import asyncio
import marshal
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from plimsoll.common.tasks import at_most
from plimsoll.errors import RuntimeCallError
from plimsoll.node.pods.handlers import HandlerResult

_MAX_OUTPUT = 10 * 1024


class RuntimeCommandRunner:
    """Runner of commands in containers of a container runtime."""

    def __init__(self, execute: Callable[[str, Sequence[str], float], Awaitable[tuple[int, bytes]]]) -> None:
        """Create a runner; `execute` returns the exit code and the output, or raises."""
        self._execute = execute

    async def execute(self, id: str, command: Sequence[str], seconds: float) -> HandlerResult:
        try:
            code, output = await self._execute(id, command, seconds)
        except TimeoutError:
            return HandlerResult(False, f"command timed out after {seconds:g}s")
        except RuntimeCallError as error:
            return HandlerResult(False, str(error))
        text = output[:_MAX_OUTPUT].decode(errors="replace").strip()
        return HandlerResult(code == 0, text or f"exit code {code}")


class HostCommandRunner:
    """Runner of commands in the context of a container's process."""

    def __init__(self, find: Callable[[str], Mapping[str, Any] | None], program: Callable[[], Path]) -> None:
        """Create a runner; `find` returns the exec specification of a container, `program` its program."""
        self._find = find
        self._program = program

    async def execute(self, id: str, command: Sequence[str], seconds: float) -> HandlerResult:
        spec = self._find(id)
        if spec is None:
            return HandlerResult(False, f"container {id} is not running")
        if not command:
            return HandlerResult(False, "no command specified")
        try:
            process = await start_command(self._program(), {**spec, "argv": list(command)})
        except (OSError, ValueError) as error:
            return HandlerResult(False, str(error))
        return await _finish(process, seconds)


async def start_command(
    program: Path,
    spec: Mapping[str, Any],
    *,
    stdin: int = asyncio.subprocess.DEVNULL,
    stdout: int = asyncio.subprocess.PIPE,
    stderr: int = asyncio.subprocess.STDOUT,
    inherited: Sequence[int] = (),
) -> asyncio.subprocess.Process:
    """Start a command in a running container, by its exec specification; OSError or ValueError."""
    # The specification holds the environment, which must not leak: it is passed in neither arguments nor
    # files.
    spec_fd = os.memfd_create("spec", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(spec_fd), "wb") as file:
            marshal.dump(dict(spec), file)
        os.lseek(spec_fd, 0, os.SEEK_SET)
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *("-I", "-S", "-X", "utf8"),
            str(program),
            str(spec_fd),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env={name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ},
            pass_fds=(spec_fd, *inherited),
            start_new_session=True,
        )
    finally:
        os.close(spec_fd)


async def _finish(process: asyncio.subprocess.Process, seconds: float) -> HandlerResult:
    assert process.stdout is not None
    output = b""
    try:
        async with asyncio.timeout(seconds):
            while chunk := await process.stdout.read(_MAX_OUTPUT):
                output = (output + chunk)[:_MAX_OUTPUT]
            code = await process.wait()
    except TimeoutError:
        return HandlerResult(False, f"command timed out after {seconds:g}s")
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            async with at_most(1.0):  # a descendant that keeps the pipe open is not waited for
                await process.communicate()
    text = output.decode(errors="replace").strip()
    return HandlerResult(code == 0, text or f"exit code {code}")
