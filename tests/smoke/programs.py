"""Long-running commands of `plimsoll` as processes."""

from __future__ import annotations

import re
import signal
import subprocess
import urllib.request
from pathlib import Path
from typing import IO, ClassVar, Self

from tests.fork_server import ForkedProcess, run_forked, start_forked
from tests.waiting import DEADLINE, wait_until

_LISTENING = re.compile(r'(?:address=|"address": ")([^"\s]+)')


class Program:
    """Running command with its log file."""

    command: ClassVar[str]

    def __init__(self, directory: Path, kubeconfig: Path, *options: str, name: str = "") -> None:
        self.log = directory / f"{name or self.command}.log"
        self._command = [self.command, "--kubeconfig", str(kubeconfig)]
        self._command += ["--listen", "127.0.0.1:0", *options]
        self._process: ForkedProcess | subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        with self.log.open("ab") as log:
            self._process = self._launch(log)
        return self

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def _launch(self, log: IO[bytes]) -> ForkedProcess | subprocess.Popen[bytes]:
        return start_forked(self._command, stdout=log, stderr=log)

    def run(self) -> tuple[int, str]:
        """Run to the end; return the exit code and standard error."""
        done = run_forked(self._command, DEADLINE)
        return done.returncode, done.stderr

    def text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def await_text(self, pattern: str, count: int = 1) -> re.Match[str]:
        """Wait until the log contains a pattern a number of times; return the last match."""

        def search() -> list[re.Match[str]]:
            found = list(re.finditer(pattern, self.text()))
            if len(found) < count:
                assert self._process is not None, self.text()
                assert self._process.poll() is None, f"it ended:\n{self.text()}"
            return found

        return wait_until(
            search,
            lambda found: len(found) >= count,
            context=lambda: f"no {pattern!r} in:\n{self.text()}",
        )[-1]

    def page(self, path: str) -> str:
        address = self.await_text(_LISTENING.pattern)[1]
        with urllib.request.urlopen(f"http://{address}{path}", timeout=DEADLINE) as answer:
            return str(answer.read().decode())

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """Send SIGTERM; return the exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(number)
        try:
            return process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(DEADLINE)
            raise AssertionError(f"the {self.command} did not stop:\n{self.text()}") from None


class NodeProgram(Program):
    """`plimsoll node`: one agent, or many."""

    command = "node"


class SchedulerProgram(Program):
    """`plimsoll scheduler`."""

    command = "scheduler"
