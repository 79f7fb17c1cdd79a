"""Processes of `plimsoll` that start quickly: forked from one that has already imported all code.

As a module it is that one: it imports what its arguments name, then forks a `plimsoll` command for every line
it reads. `Forked` is the test's side of it.
"""

from __future__ import annotations

import importlib
import os
import re
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from tests.waiting import DEADLINE, wait_until


class Forked:
    """One command at a time that can be killed and restarted."""

    def __init__(self, log: Path, *modules: str) -> None:
        self.log = log
        self._pid = 0
        self._text = b""
        with self.log.open("ab") as out:
            self._mother = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.forked", *modules],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=out,
                cwd=Path(__file__).parents[2],
            )

    def run(self, command: str) -> None:
        """Start a command without waiting until it is ready."""
        assert self._mother.stdin is not None
        self._mother.stdin.write(f"{command}\n".encode())
        self._mother.stdin.flush()
        self._pid = int(self.read(rb"pid (\d+)\n"))

    def read(self, pattern: bytes) -> bytes:
        """Return the first group of a pattern in the output after the last match."""
        assert self._mother.stdout is not None
        descriptor = self._mother.stdout.fileno()
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
        return self._pid

    def is_running(self) -> bool:
        return bool(self._pid) and Path(f"/proc/{self._pid}").exists()

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        if not self._pid:
            return
        with suppress(ProcessLookupError):  # it has ended by itself
            os.kill(self._pid, signal.SIGKILL)
        wait_until(lambda: not Path(f"/proc/{self._pid}").exists())
        self._pid = 0
        self._text = b""

    def close(self) -> None:
        self.kill()
        assert self._mother.stdin is not None
        assert self._mother.stdout is not None
        self._mother.stdin.close()
        self._mother.wait(DEADLINE)
        self._mother.stdout.close()


def main() -> None:
    """Fork a command for every line of arguments until the input ends."""
    for module in ("plimsoll.cli.main", *sys.argv[1:]):
        importlib.import_module(module)
    from plimsoll.cli.main import main as run  # noqa: PLC0415 - for the forked process only

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # orphans have no waiting parent
    for line in sys.stdin:
        child = os.fork()
        if not child:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            sys.stdin.close()
            run(line.split())
            os._exit(1)
        sys.stdout.write(f"pid {child}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
