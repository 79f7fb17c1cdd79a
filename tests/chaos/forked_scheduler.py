"""A scheduler that starts in a moment."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.forked import Forked


class ForkedScheduler(Forked):
    """One scheduler, to be killed and started again at any moment."""

    def __init__(self, folder: Path, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig
        super().__init__(
            folder / "scheduler.log", "plimsoll.run.scheduler.dry_run", "plimsoll.run.scheduler.process"
        )

    def start(self) -> None:
        """Start, without waiting until it works."""
        self.run(f"scheduler --kubeconfig {self._kubeconfig} --listen= --binds 16")
