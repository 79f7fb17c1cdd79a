"""Command of `plimsoll` in a forked process that tests kill and restart."""

from __future__ import annotations

import os
import re
import select
import time
from pathlib import Path

from tests.fork_server import ForkedProcess, start_forked
from tests.waiting import DEADLINE


class Forked:
    """One command at a time that can be killed and restarted."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.log.touch()
        self._process: ForkedProcess | None = None
        self._text = b""

    def run(self, command: str, module: str = "plimsoll.cli.main") -> None:
        """Start a command without waiting until it is ready; `module` has its function `main`."""
        self.close()
        with self.log.open("ab") as log:
            self._process = start_forked(command.split(), stderr=log, module=module)

    def read(self, pattern: bytes) -> bytes:
        """Return the first group of a pattern in the output after the last match."""
        assert self._process is not None
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        deadline = time.monotonic() + DEADLINE
        while (found := re.search(pattern, self._text)) is None:
            ready = select.select([descriptor], [], [], max(deadline - time.monotonic(), 0))[0]
            piece = os.read(descriptor, 4096) if ready else b""
            if not piece:
                self.close()
                raise AssertionError(f"it did not start:\n{self.log.read_text()[-4000:]}")
            self._text += piece
        self._text = self._text[found.end() :]
        return found[1]

    @property
    def pid(self) -> int:
        return 0 if self._process is None else self._process.pid

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait(DEADLINE)
        if process.stdout is not None:
            process.stdout.close()
        self._text = b""

    def close(self) -> None:
        self.kill()
