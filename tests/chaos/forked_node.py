"""A node agent and a CPU driver that start in a moment."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from pathlib import Path
from typing import Any

from tests.chaos.forked import Forked
from tests.waiting import DEADLINE


class _LogsReady(Forked):
    """A command that says in its log when it can work."""

    sign: str

    def __init__(self, log: Path, command: str, *modules: str) -> None:
        self.command = command
        self._from = 0
        super().__init__(log, *modules)

    def start(self) -> None:
        """Start, without waiting until it works."""
        self._from = self.log.stat().st_size
        self.run(self.command)

    def text(self) -> str:
        """Return what it has said since it was started."""
        with self.log.open("rb") as file:
            file.seek(self._from)
            return file.read().decode(errors="replace")

    def await_text(self, pattern: str) -> str:
        deadline = time.monotonic() + DEADLINE
        while (found := re.search(pattern, self.text())) is None:
            assert time.monotonic() < deadline, f"no {pattern!r} in:\n{self.text()[-4000:]}"
            assert self.is_running(), f"it ended:\n{self.text()[-4000:]}"
            time.sleep(0.02)
        return found[0] if not found.groups() else found[1]

    def await_ready(self) -> None:
        self.await_text(self.sign)


class ForkedNode(_LogsReady):
    """One `plimsoll node`, to be killed and started again at any moment."""

    sign = " ready nodes=1"

    def __init__(self, directory: Path, command: str) -> None:
        super().__init__(directory / "node.log", command, "plimsoll.node.process.run")


class ForkedCpuDriver(_LogsReady):
    """One `plimsoll driver cpu`, to be killed and started again at any moment."""

    sign = "INFO plimsoll.driver healthy"

    def __init__(self, directory: Path, command: str) -> None:
        super().__init__(directory / "driver.log", command, "plimsoll.drivers.cpu.process.run")

    def describe(self) -> dict[str, Any]:
        """Return what it says of itself; OSError or ValueError if it says nothing now."""
        address = re.search(r"listening address=(\S+)", self.text())
        if address is None:
            raise OSError("it does not listen yet")
        with urllib.request.urlopen(f"http://{address[1]}/debug/driver", timeout=10) as answer:
            found: dict[str, Any] = json.loads(answer.read())
        return found
