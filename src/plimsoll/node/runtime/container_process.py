"""One container as a process: started, watched, found again, signalled.

Owns what the files in a container's folder and the processes of the machine say together. Knows nothing of
hooks and cgroups; those are the runtime's. All calls are for the thread of the event loop.
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
    """A container's record, its processes and its end."""

    def __init__(self, folder: Path, record: ContainerRecord) -> None:
        self.folder = folder
        self.record = record
        self.run: Run | None = None
        self.exit: Exit | None = None
        self.ended = asyncio.Event()
        #: RuntimeContainer by whoever changes the container; waiting for its end needs none.
        self.busy = asyncio.Lock()
        #: RuntimeContainer while its resources are changed, which hooks may do at any time.
        self.changing = asyncio.Lock()
        self.state: ContainerInfo = state_of(record, None, None, folder)
        self._pidfd = -1
        self._on_end: Callable[[], None] | None = None

    # -- files

    def keep(self, record: ContainerRecord) -> None:
        """Remember what has changed, on disk first; StoreError if that cannot be done."""
        save(self.folder / "state.json", record)
        self.record = record
        self._look()

    def read(self, quarantine: Path) -> tuple[Finding, ...]:
        """What the shim has left; what cannot be used is put aside."""
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
        """Say how a container ended whose shim cannot."""
        self.exit = exit
        with contextlib.suppress(StoreError):
            save(self.folder / "exit.json", exit)
        self._look()

    def close(self) -> None:
        """The container has ended, and everybody may know."""
        self.unwatch()
        self.ended.set()

    def _look(self) -> None:
        self.state = state_of(self.record, self.run, self.exit, self.folder)

    # -- starting

    async def launch(self, program: Path, spec: dict[str, Any], patience: float) -> str:
        """Start the shim and with it the container; what went wrong, if anything. The end of a container
        that did not start is known at once."""
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
        """The last line of what the shim has said before it died."""
        try:
            with open(self.folder / "shim.err", "rb") as file:
                file.seek(max(os.fstat(file.fileno()).st_size - 2000, 0))
                lines = file.read().decode(errors="replace").split("\n")
        except OSError:
            lines = []
        return next((line for line in reversed(lines) if line.strip()), "it said nothing")

    # -- watching

    def watch(self, on_end: Callable[[], None]) -> bool:
        """Have `on_end` called once when the shim ends; False if it has ended, and nothing will be called."""
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
        """The shim is gone: learn from its last words how the container ended, or that nobody knows."""
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
        """Find out what has become of a container while nobody looked. Afterwards it has an exit, or it was
        never started, or it runs and can be watched."""
        if not self.record.started:
            return ()
        lock = self.folder / "lock"
        deadline = time.monotonic() + patience
        # A shim that was started just before the last agent died may still be on its way.
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
        # It lives, but what it has written about itself cannot be trusted.
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
        """Kill the first process; the shim sees to the others."""
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
    """All that is said on a pipe, up to the end of a line or of the pipe."""
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
    """Wait, for a moment, until a shim of ours that is about to end has ended."""
    for _ in range(200):
        try:
            if os.waitpid(pid, os.WNOHANG)[0]:
                return
        except ChildProcessError:
            return
        await asyncio.sleep(0.005)
