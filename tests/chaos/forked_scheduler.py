"""Scheduler process that starts quickly."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.forked import Forked


class ForkedScheduler(Forked):
    """`plimsoll scheduler`, which can be killed and restarted."""

    def __init__(self, directory: Path, kubeconfig: Path, options: str = "") -> None:
        self._command = f"scheduler --kubeconfig {kubeconfig} --listen= --binds 16 {options}"
        super().__init__(directory / "scheduler.log")

    def start(self) -> None:
        """Start without waiting until it is ready."""
        self.run(self._command)
