"""One container as a process: started, watched, adopted, signaled.

Combines the files in a container's directory with the processes of the machine. Hooks and cgroups belong to
the runtime. All methods run on the event loop's thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from plimsoll.common.checkpoint import NodeFinding, read_boot_id
from plimsoll.common.tasks import at_most
from plimsoll.errors import StoreError
from plimsoll.node.containers import ContainerInfo, ContainerPhase
from plimsoll.node.runtime import shims
from plimsoll.node.runtime.state_dir import (
    ContainerRecord,
    ExitRecord,
    RunRecord,
    container_info,
    load,
    quarantine_file,
    save,
)

KILLED = 137
REBOOTED = 255
START_ERROR = 128


class ContainerProcess:
    """Container with its record, processes and exit status."""

    def __init__(self, directory: Path, record: ContainerRecord) -> None:
        self.directory = directory
        self.record = record
        self.run: RunRecord | None = None
        self.exit: ExitRecord | None = None
        self.ended = asyncio.Event()
        #: Held while the container is started, stopped or removed; waiting for its exit needs no lock.
        self.busy = asyncio.Lock()
        #: Held while its resources are changed, which hooks may do at any time.
        self.changing = asyncio.Lock()
        self.state: ContainerInfo = container_info(record, None, None, directory)
        self._pidfd = -1
        self._on_end: Callable[[], None] | None = None

    # -- files

    def store(self, record: ContainerRecord) -> None:
        """Store a changed record, on disk first; raise StoreError if that fails."""
        save(self.directory / "state.json", record)
        self.record = record
        self._refresh_state()

    def read(self, quarantine: Path) -> tuple[NodeFinding, ...]:
        """Read what the shim has left; unreadable files are quarantined."""
        run = load(self.directory / "run.json", RunRecord)
        exit = load(self.directory / "exit.json", ExitRecord)
        findings = [found for found in (run, exit) if isinstance(found, NodeFinding)]
        for finding in findings:
            quarantine_file(Path(finding.path), quarantine)
        self.run = run if isinstance(run, RunRecord) else None
        self.exit = exit if isinstance(exit, ExitRecord) else None
        self._refresh_state()
        return tuple(findings)

    def record_exit(self, exit: ExitRecord) -> None:
        """Record the exit of a container whose shim cannot."""
        self.exit = exit
        with contextlib.suppress(StoreError):
            save(self.directory / "exit.json", exit)
        self._refresh_state()

    def close(self) -> None:
        """Mark the container as exited and notify waiters."""
        self.unwatch()
        self.ended.set()

    def _refresh_state(self) -> None:
        self.state = container_info(self.record, self.run, self.exit, self.directory)

    # -- starting

    async def launch(self, program: Path, spec: dict[str, Any], timeout: float) -> str:
        """Start the shim and with it the container; return the problem, if any. The exit of a container that
        did not start is recorded at once.
        """
        try:
            save(self.directory / "spec.json", spec)
            self.store(replace(self.record, started=True))
            pid, status_fd = shims.spawn(
                program, self.directory / "spec.json", self.directory / "lock", self.directory / "shim.err"
            )
        except (OSError, ValueError, StoreError) as error:
            self.record_exit(
                ExitRecord(exit_code=START_ERROR, finished_at=time.time(), error=f"no shim: {error}")
            )
            return f"no shim: {error}"
        try:
            line = await asyncio.wait_for(_read_line(status_fd), timeout)
        except TimeoutError:
            line = b""
            started = shims.start_time(pid)
            if started is not None:
                shims.send(pid, started, signal.SIGKILL)
        finally:
            os.close(status_fd)
        response = _parse_response(line)
        if response.get("ok"):
            self.run = _value(load(self.directory / "run.json", RunRecord))
            if self.run is not None:
                self._refresh_state()
                return ""
            response = {"error": "the shim has left no record of its processes"}
            self.kill()
        problem = str(response.get("error") or f"the shim did not answer: {self._last_error_line()}")
        await _wait_for_exit(pid)
        self.exit = _value(load(self.directory / "exit.json", ExitRecord))
        if self.exit is None:
            self.record_exit(ExitRecord(exit_code=START_ERROR, finished_at=time.time(), error=problem))
        self._refresh_state()
        return problem

    def _last_error_line(self) -> str:
        """Return the last line of the shim's error output."""
        try:
            with open(self.directory / "shim.err", "rb") as file:
                file.seek(max(os.fstat(file.fileno()).st_size - 2000, 0))
                lines = file.read().decode(errors="replace").split("\n")
        except OSError:
            lines = []
        return next((line for line in reversed(lines) if line.strip()), "no output")

    # -- watching

    def watch(self, on_end: Callable[[], None]) -> bool:
        """Call `on_end` once when the shim exits; return False without a call if it already has."""
        if self.run is None:
            return False
        pidfd = shims.open_process(self.run.shim, self.run.shim_start)
        if pidfd is None:
            return False
        self._pidfd, self._on_end = pidfd, on_end
        asyncio.get_running_loop().add_reader(pidfd, self._on_pidfd_ready)
        return True

    def _on_pidfd_ready(self) -> None:
        on_end = self._on_end
        self.unwatch()
        if on_end is not None:
            on_end()

    def unwatch(self) -> None:
        if self._pidfd >= 0:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
        self._pidfd, self._on_end = -1, None

    def on_shim_exit(self, quarantine: Path) -> tuple[NodeFinding, ...]:
        """Determine from the files of an exited shim how the container exited, or that it is unknown."""
        if self.run is not None:
            shims.collect(self.run.shim)
        run = self.run
        findings = self.read(quarantine)
        self.run = self.run or run
        if self.exit is None:
            if self.run is not None:
                shims.kill_session(self.run.pid, self.run.pid_start)
            text = "The container could not be located: its shim ended without leaving an exit code"
            self.record_exit(ExitRecord(exit_code=KILLED, finished_at=time.time(), signal=9, lost=text))
        self._refresh_state()
        return findings

    async def adopt(self, quarantine: Path, timeout: float) -> tuple[NodeFinding, ...]:
        """Determine the state of a container that ran without an agent. Afterwards it has an exit, or it was
        never started, or it runs and can be watched.
        """
        if not self.record.started:
            return ()
        lock = self.directory / "lock"
        deadline = time.monotonic() + timeout
        # A shim that was started just before the last agent died may still be starting.
        while shims.is_locked(lock) and not self._has("run.json") and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        alive = shims.is_locked(lock)
        findings = self.read(quarantine)
        if self.exit is not None:
            return findings
        if not alive:
            return (*findings, *self._adopt_dead(findings, quarantine))
        run = self.run
        if run is not None and run.boot_id == read_boot_id() and run.shim_start == shims.start_time(run.shim):
            return findings
        # It is alive, but its own record cannot be trusted.
        for pid, start in shims.find_shims(self.directory / "spec.json"):
            shims.send(pid, start, signal.SIGKILL)
        self.run = None
        text = "The container could not be located: the record of its processes was damaged; it was killed"
        self.record_exit(ExitRecord(exit_code=KILLED, finished_at=time.time(), signal=9, lost=text))
        return findings

    def _adopt_dead(self, findings: tuple[NodeFinding, ...], quarantine: Path) -> tuple[NodeFinding, ...]:
        if self.run is None and not findings:  # no command of this container ever ran
            self.store(replace(self.record, started=False))
            return ()
        if self.run is not None and self.run.boot_id != read_boot_id():
            text = "The container could not be located: the machine was restarted"
            self.record_exit(ExitRecord(exit_code=REBOOTED, finished_at=time.time(), lost=text))
            return ()
        return self.on_shim_exit(quarantine)

    def _has(self, name: str) -> bool:
        return os.path.exists(self.directory / name) or os.path.exists(self.directory / "exit.json")

    async def wait_ended(self, seconds: float) -> None:
        """Wait for the exit of the container, but not longer than this."""
        async with at_most(seconds):
            await self.ended.wait()

    # -- signals and CPUs

    def signal(self, number: int) -> None:
        """Send a signal to the container's first process."""
        if self.run is not None and self.state.phase is ContainerPhase.RUNNING:
            shims.send(self.run.pid, self.run.pid_start, number)

    def kill(self) -> None:
        """Kill the first process; the shim kills the others."""
        self.signal(signal.SIGKILL)

    async def pin(self, cpus: set[int]) -> str:
        """Pin the current processes themselves, where there is no cpuset; return the problem, if any."""
        if self.run is None:
            return ""
        pids = await asyncio.to_thread(shims.descendants, self.run.pid)
        return await asyncio.to_thread(shims.set_affinity, pids, cpus)


def _value(found: Any) -> Any:
    return None if isinstance(found, NodeFinding) else found


def _parse_response(line: bytes) -> dict[str, Any]:
    try:
        response = msgspec.json.decode(line)
    except (ValueError, RecursionError):
        return {}
    return response if isinstance(response, dict) else {}


async def _read_line(fd: int) -> bytes:
    """Read from a pipe, up to the end of a line or of the pipe."""
    loop = asyncio.get_running_loop()
    data = b""
    while b"\n" not in data and len(data) < 65536:
        ready = asyncio.Event()
        loop.add_reader(fd, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(fd)
        try:
            part = os.read(fd, 65536)
        except BlockingIOError:
            continue
        if not part:
            break
        data += part
    return data


async def _wait_for_exit(pid: int) -> None:
    """Wait briefly until a shim that is about to exit has exited."""
    for _ in range(200):
        try:
            if os.waitpid(pid, os.WNOHANG)[0]:
                return
        except ChildProcessError:
            return
        await asyncio.sleep(0.005)
