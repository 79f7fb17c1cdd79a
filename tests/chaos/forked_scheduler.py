"""A scheduler that starts in a moment."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.forked import Forked


class ForkedScheduler(Forked):
    """One scheduler, to be killed and started again at any moment."""

    def __init__(self, directory: Path, kubeconfig: Path, options: str = "") -> None:
        self._command = f"scheduler --kubeconfig {kubeconfig} --listen= --binds 16 {options}"
        super().__init__(
            directory / "scheduler.log",
            "plimsoll.scheduler.process.dry_run",
            "plimsoll.scheduler.process.run",
        )

    def start(self) -> None:
        """Start, without waiting until it works."""
        self.run(self._command)
