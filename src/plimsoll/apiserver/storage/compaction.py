"""Which rows of the file no longer count.

Owns the list of rows that later ones replaced, and the count of those at or below the floor. Promises: a row
is given for deletion only when no watch and no list can come to need it; rows go in the order of their
revisions, so that no object comes back because its deletion went first; a few go at a time.
"""

from __future__ import annotations

from collections import deque
from itertools import islice

from plimsoll.apiserver.storage.event_history import Change
from plimsoll.apiserver.storage.log import CompactionState
from plimsoll.apiserver.storage.writer import CompactionChunk

#: How many rows are deleted in one transaction, and how many (or bytes of them) are worth to begin with.
_CHUNK = 256
_ENOUGH = 2048
_ENOUGH_OCTETS = 32 << 20


class Compactor:
    """Told of each event that the history drops."""

    def __init__(self) -> None:
        self.garbage: deque[tuple[int, int]] = deque()  # revisions and sizes of rows that no longer count
        self._octets = 0
        self._rows = self._total = 0  # rows in the file at or below the floor, and the sum of their revisions
        self._chunk: CompactionChunk | None = None

    def begin_with(self, state: CompactionState) -> None:
        self._rows, self._total = state.rows, state.total

    def state(self, floor: int) -> CompactionState:
        """How the log stands when the history has got to a floor."""
        return CompactionState(floor, self._rows, self._total)

    def drop(self, change: Change) -> None:
        """The floor has passed a write."""
        kind, stored, before = change
        self._rows += 1
        self._total += stored.revision
        if before is not None:
            self.discard(before.revision, len(before.raw))
        if kind == "DELETED":
            self.discard(stored.revision, len(stored.raw))

    def discard(self, revision: int, octets: int) -> None:
        """A row at or below the floor does not count."""
        self.garbage.append((revision, octets))
        self._octets += octets

    def begin(self, floor: int) -> CompactionChunk | None:
        """A first chunk, when it is time for it."""
        if self._chunk or (len(self.garbage) < _ENOUGH and self._octets < _ENOUGH_OCTETS):
            return None
        return self._next(floor)

    def proceed(self, floor: int, *, failed: bool) -> CompactionChunk | None:
        """The next chunk after one is done; after a failure the time comes again with the next commit."""
        chunk, self._chunk = self._chunk, None
        if failed or chunk is None:
            return None
        for revision in chunk.revisions:
            self._octets -= self.garbage.popleft()[1]
            self._rows -= 1
            self._total -= revision
        return self._next(floor) if self.garbage else None

    def _next(self, floor: int) -> CompactionChunk:
        revisions = [revision for revision, _ in islice(self.garbage, _CHUNK)]
        state = CompactionState(floor, self._rows - len(revisions), self._total - sum(revisions))
        self._chunk = CompactionChunk(state, revisions)
        return self._chunk
