"""Who is told what a CPU driver does, for counting.

Owns `Observer`, which does nothing; metrics are one that counts. A driver calls it for every claim it is
asked to prepare or release, as the Go driver counts: results are `success` or `error`, CPUs are told of only
when they are newly assigned, not when a repeated call gets the same answer.
"""

from __future__ import annotations

SUCCESS, ERROR = "success", "error"


class Observer:
    """Told of what happens; none of its methods may raise or wait."""

    def prepared(self, result: str, seconds: float) -> None:
        """A claim was prepared (again), or refused, after so many seconds."""

    def assigned(self, cpus: int) -> None:
        """A claim was newly given so many CPUs."""

    def released(self, result: str) -> None:
        """A claim was released, or could not be."""

    def topology_changed(self) -> None:
        """CPUs came or went."""
