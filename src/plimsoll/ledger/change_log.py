"""Which places have changed since somebody last looked.

Owns `ChangeLog`: whoever keeps something that was worked out for every node remembers how far it has read,
and later works out again only what changed since. The journal keeps a bounded number of entries; a reader
that comes too late is told so, and starts anew.
"""

from __future__ import annotations

from collections.abc import Sequence

_KEPT = 4096


class ChangeLog:
    """The numbers of places in the order they changed."""

    __slots__ = ("_first", "_places")

    def __init__(self) -> None:
        self._places: list[int] = []
        self._first = 0  # how many entries have been dropped

    @property
    def mark(self) -> int:
        """How far it goes now."""
        return self._first + len(self._places)

    def note(self, place: int) -> None:
        """A place has changed."""
        self._places.append(place)
        if len(self._places) >= 2 * _KEPT:
            del self._places[:_KEPT]
            self._first += _KEPT

    def since(self, mark: int) -> Sequence[int] | None:
        """The places that changed after a mark, some more than once; None if that is too long ago."""
        if mark < self._first:
            return None
        return self._places[mark - self._first :]
