"""Log of changed rows, for caches that are computed per node.

A reader keeps its position in the log and later recomputes only the rows changed since. The log is bounded; a
reader that falls too far behind recomputes everything.
"""

from __future__ import annotations

from collections.abc import Sequence

_KEPT = 4096


class NodeChangeLog:
    """Row numbers in the order of their changes."""

    __slots__ = ("_first", "_places")

    def __init__(self) -> None:
        self._places: list[int] = []
        self._first = 0  # number of dropped entries

    @property
    def mark(self) -> int:
        """Current position."""
        return self._first + len(self._places)

    def note(self, place: int) -> None:
        """Record a change of a row."""
        self._places.append(place)
        if len(self._places) >= 2 * _KEPT:
            del self._places[:_KEPT]
            self._first += _KEPT

    def since(self, mark: int) -> Sequence[int] | None:
        """Return the rows changed since a position, possibly repeated; None if the position is too old."""
        if mark < self._first:
            return None
        return self._places[mark - self._first :]
