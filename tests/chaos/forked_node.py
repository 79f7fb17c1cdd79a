"""Node agent and CPU driver processes that start quickly."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path
from typing import Any

from tests.chaos.forked import Forked
from tests.waiting import DEADLINE, wait_until


class _LogsReady(Forked):
    """Command that logs when it is ready."""

    sign: str

    def __init__(self, log: Path, command: str) -> None:
        self.command = command
        self._from = 0
        super().__init__(log)

    def start(self) -> None:
        """Start without waiting until it is ready."""
        self._from = self.log.stat().st_size
        self.run(self.command)

    def text(self) -> str:
        """Return the log since the last start."""
        with self.log.open("rb") as file:
            file.seek(self._from)
            return file.read().decode(errors="replace")

    def await_text(self, pattern: str) -> str:
        def search() -> re.Match[str] | None:
            found = re.search(pattern, self.text())
            assert found or self.is_running(), f"it ended:\n{self.text()[-4000:]}"
            return found

        found = wait_until(search, context=lambda: f"no {pattern!r} in:\n{self.text()[-4000:]}")
        assert found is not None
        return found[0] if not found.groups() else found[1]

    def await_ready(self) -> None:
        self.await_text(self.sign)


class ForkedNode(_LogsReady):
    """`plimsoll node`, which can be killed and restarted."""

    sign = " ready nodes=1"

    def __init__(self, directory: Path, command: str) -> None:
        super().__init__(directory / "node.log", command)


class ForkedCpuDriver(_LogsReady):
    """`plimsoll driver cpu`, which can be killed and restarted."""

    sign = "INFO plimsoll.driver healthy"

    def __init__(self, directory: Path, command: str) -> None:
        super().__init__(directory / "driver.log", command)

    def describe(self) -> dict[str, Any]:
        """Return the driver's debug report; OSError or ValueError if it does not respond."""
        address = re.search(r"listening address=(\S+)", self.text())
        if address is None:
            raise OSError("it does not listen yet")
        with urllib.request.urlopen(f"http://{address[1]}/debug/driver", timeout=DEADLINE) as answer:
            found: dict[str, Any] = json.loads(answer.read())
        return found
