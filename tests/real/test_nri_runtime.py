"""CPU driver plugin with a runtime built on NRI's Go library.

The program serves on the socket it is given with the number of pods it is given, each with one container, and
makes, stops and removes containers by lines on its input.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from plimsoll.drivers.cpu.pinning.nri import NriEnforcer
from tests.directories import short_directory
from tests.real.programs import ASSETS, missing
from tests.unit.drivers.cpu.pinning.builders import FakeCPUState, hold, machine, settings
from tests.waiting import until

PROGRAM = "nri-runtime"
pytestmark = pytest.mark.skipif(bool(missing(PROGRAM)), reason=missing(PROGRAM))


class GoRuntime:
    """Runtime process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.lines: list[str] = []
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self.lines.append(line.decode(errors="replace").rstrip())

    async def send_command(self, command: str, answer: str) -> str:
        """Send a command line and wait for its response line."""
        assert self._process.stdin is not None
        known = len(self.lines)
        self._process.stdin.write(f"{command}\n".encode())
        await until(lambda: any(re.match(answer, line) for line in self.lines[known:]))
        return next(line for line in self.lines[known:] if re.match(answer, line))

    async def stop(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await self._reading


@asynccontextmanager
async def go_runtime(path: Path, pods: int) -> AsyncIterator[GoRuntime]:
    process = await asyncio.create_subprocess_exec(
        str(ASSETS / PROGRAM),
        str(path),
        str(pods),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    runtime = GoRuntime(process)
    try:
        await until(lambda: "ready" in runtime.lines, seconds=20)
        yield runtime
    finally:
        await runtime.stop()


async def test_a_go_runtime_and_the_driver_understand_each_other() -> None:
    with short_directory() as path:
        cpu_state = FakeCPUState(machine(4), hold("a", "0-1"))
        enforcer = NriEnforcer(
            cpu_state,
            lambda: cpu_state.topology,
            settings(path),
            socket=path / "s",
            shortest=0.01,
            longest=0.1,
        )
        await enforcer.start()
        try:
            async with go_runtime(path / "s", 3) as runtime:
                await until(lambda: enforcer.linked, seconds=20)
                await until(lambda: any(line.startswith("sync updates: 3") for line in runtime.lines))
                assert len(enforcer.containers()) == 3
                assert (await runtime.send_command("create x", "create")).startswith("create: 2-3 ")
                cpu_state.release("a")
                await enforcer.apply()
                # This runtime does not report its NRI version: updates are sent with the next event.
                await runtime.send_command("stop x", "stop")
                assert {view.cpus for view in enforcer.containers()} == {"0-3"}
                await runtime.send_command("remove x", "remove")
            await until(lambda: not enforcer.linked)
            # It comes back with more containers than one message holds.
            async with go_runtime(path / "s", 3000):
                await until(lambda: enforcer.linked, seconds=20)
                assert len(enforcer.containers()) == 3000
        finally:
            await enforcer.stop()
