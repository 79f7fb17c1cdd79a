"""Observer interface of the CPU driver, for metrics.

The driver calls it for every claim it prepares or unprepares, as the Go driver counts: results are `success`
or `error`, and CPUs are reported only when they are newly assigned, not for a repeated call.
"""

from __future__ import annotations

SUCCESS, ERROR = "success", "error"


class Observer:
    """No-op observer. Overrides must neither raise nor block."""

    def prepared(self, result: str, seconds: float) -> None:
        """Record the result and duration of preparing a claim."""

    def assigned(self, cpus: int) -> None:
        """Record the number of CPUs newly assigned to a claim."""

    def released(self, result: str) -> None:
        """Record the result of unpreparing a claim."""

    def topology_changed(self) -> None:
        """Record that CPUs went online or offline."""
