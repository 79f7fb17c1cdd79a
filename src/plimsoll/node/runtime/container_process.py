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

from plimsoll.common.checkpoint import Finding
from plimsoll.errors import StoreError
from plimsoll.node.containers import ContainerInfo, ContainerPhase
from plimsoll.node.runtime import shims
from plimsoll.node.runtime.state_dir import ContainerRecord, Exit, Run, load, put_aside, save, state_of

KILLED = 137
REBOOTED = 255
START_ERROR = 128


class Life:
    """Container with its record, processes and exit status."""

    def __init__(self, folder: Path, record: ContainerRecord) -> None:
        self.folder = folder
        self.record = record
        self.run: Run | None = None
        self.exit: Exit | None = None
        self.ended = asyncio.Event()
        #: Held while the container is started, stopped or removed; waiting for its exit needs no lock.
        self.busy = asyncio.Lock()
        #: Held while its resources are changed, which hooks may do at any time.
        self.changing = asyncio.Lock()
        self.state: ContainerInfo = state_of(record, None, None, folder)
        self._pidfd = -1
        self._on_end: Callable[[], None] | None = None

    # -- files

    def keep(self, record: ContainerRecord) -> None:
        """Store a changed record, on disk first; raise StoreError if that fails."""
        save(self.folder / "state.json", record)
        self.record = record
        self._look()

    def read(self, quarantine: Path) -> tuple[Finding, ...]:
        """Read what the shim has left; unreadable files are quarantined."""
        run = load(self.folder / "run.json", Run)
        exit = load(self.folder / "exit.json", Exit)
        findings = [found for found in (run, exit) if isinstance(found, Finding)]
        for finding in findings:
            put_aside(Path(finding.path), quarantine)
        self.run = run if isinstance(run, Run) else None
        self.exit = exit if isinstance(exit, Exit) else None
        self._look()
        return tuple(findings)

    def lose(self, exit: Exit) -> None:
        """Record the exit of a container whose shim cannot."""
        self.exit = exit
        with contextlib.suppress(StoreError):
            save(self.folder / "exit.json", exit)
        self._look()

    def close(self) -> None:
        """Mark the container as exited and notify waiters."""
        self.unwatch()
        self.ended.set()

    def _look(self) -> None:
        self.state = state_of(self.record, self.run, self.exit, self.folder)

    # -- starting

    async def launch(self, program: Path, spec: dict[str, Any], patience: float) -> str:
        """Start the shim and with it the container; return the problem, if any. The exit of a container that
        did not start is recorded at once.
        """
        try:
            save(self.folder / "spec.json", spec)
            self.keep(replace(self.record, started=True))
            pid, said = shims.spawn(
                program, self.folder / "spec.json", self.folder / "lock", self.folder / "shim.err"
            )
        except (OSError, ValueError, StoreError) as error:
            self.lose(Exit(exit_code=START_ERROR, finished_at=time.time(), error=f"no shim: {error}"))
            return f"no shim: {error}"
        try:
            line = await asyncio.wait_for(_read_line(said), patience)
        except TimeoutError:
            line = b""
            started = shims.start_time(pid)
            if started is not None:
                shims.send(pid, started, signal.SIGKILL)
        finally:
            os.close(said)
        answer = _answer(line)
        if answer.get("ok"):
            self.run = _value(load(self.folder / "run.json", Run))
            if self.run is not None:
                self._look()
                return ""
            answer = {"error": "the shim has left no record of its processes"}
            self.kill()
        problem = str(answer.get("error") or f"the shim did not answer: {self._complaint()}")
        await _gone(pid)
        self.exit = _value(load(self.folder / "exit.json", Exit))
        if self.exit is None:
            self.lose(Exit(exit_code=START_ERROR, finished_at=time.time(), error=problem))
        self._look()
        return problem

    def _complaint(self) -> str:
        """Return the last line of the shim's error output."""
        try:
            with open(self.folder / "shim.err", "rb") as file:
                file.seek(max(os.fstat(file.fileno()).st_size - 2000, 0))
                lines = file.read().decode(errors="replace").split("\n")
        except OSError:
            lines = []
        return next((line for line in reversed(lines) if line.strip()), "no output")

    # -- watching

    def watch(self, on_end: Callable[[], None]) -> bool:
        """Call `on_end` once when the shim exits; return False if it already has, and nothing will
        be called.
        """
        if self.run is None:
            return False
        pidfd = shims.open_process(self.run.shim, self.run.shim_start)
        if pidfd is None:
            return False
        self._pidfd, self._on_end = pidfd, on_end
        asyncio.get_running_loop().add_reader(pidfd, self._see_end)
        return True

    def _see_end(self) -> None:
        on_end = self._on_end
        self.unwatch()
        if on_end is not None:
            on_end()

    def unwatch(self) -> None:
        if self._pidfd >= 0:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
        self._pidfd, self._on_end = -1, None

    def settle(self, quarantine: Path) -> tuple[Finding, ...]:
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
            self.lose(Exit(exit_code=KILLED, finished_at=time.time(), signal=9, lost=text))
        self._look()
        return findings

    async def adopt(self, quarantine: Path, patience: float) -> tuple[Finding, ...]:
        """Determine the state of a container that ran without an agent. Afterwards it has an exit, or it was
        never started, or it runs and can be watched.
        """
        if not self.record.started:
            return ()
        lock = self.folder / "lock"
        deadline = time.monotonic() + patience
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
        if (
            run is not None
            and run.boot_id == shims.boot_id()
            and run.shim_start == shims.start_time(run.shim)
        ):
            return findings
        # It is alive, but its own record cannot be trusted.
        for pid, start in shims.find_shims(self.folder / "spec.json"):
            shims.send(pid, start, signal.SIGKILL)
        self.run = None
        text = "The container could not be located: the record of its processes was damaged; it was killed"
        self.lose(Exit(exit_code=KILLED, finished_at=time.time(), signal=9, lost=text))
        return findings

    def _adopt_dead(self, findings: tuple[Finding, ...], quarantine: Path) -> tuple[Finding, ...]:
        if self.run is None and not findings:  # no command of this container ever ran
            self.keep(replace(self.record, started=False))
            return ()
        if self.run is not None and self.run.boot_id != shims.boot_id():
            text = "The container could not be located: the machine was restarted"
            self.lose(Exit(exit_code=REBOOTED, finished_at=time.time(), lost=text))
            return ()
        return self.settle(quarantine)

    def _has(self, name: str) -> bool:
        return os.path.exists(self.folder / name) or os.path.exists(self.folder / "exit.json")

    # -- signals

    def signal(self, number: int) -> None:
        """Send a signal to the container's first process."""
        if self.run is not None and self.state.phase is ContainerPhase.RUNNING:
            shims.send(self.run.pid, self.run.pid_start, number)

    def kill(self) -> None:
        """Kill the first process; the shim kills the others."""
        self.signal(signal.SIGKILL)


def _value(found: Any) -> Any:
    return None if isinstance(found, Finding) else found


def _answer(line: bytes) -> dict[str, Any]:
    try:
        answer = msgspec.json.decode(line)
    except (ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}


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


async def _gone(pid: int) -> None:
    """Wait briefly until a shim that is about to exit has exited."""
    for _ in range(200):
        try:
            if os.waitpid(pid, os.WNOHANG)[0]:
                return
        except ChildProcessError:
            return
        await asyncio.sleep(0.005)
