"""Compaction: selects the rows of the file that can be deleted.

Tracks the rows that later ones replaced, and the number of rows at or below the floor. A row is deleted only
when no watch and no list can need it. Rows are deleted in the order of their revisions, so that no object
reappears because its deletion was removed first, and in small chunks.
"""

from __future__ import annotations

from collections import deque
from itertools import islice

from plimsoll.apiserver.storage.event_history import Change
from plimsoll.apiserver.storage.log import CompactionState
from plimsoll.apiserver.storage.writer import CompactionChunk

#: Rows deleted in one transaction, and the garbage (rows or bytes) at which compaction starts.
CHUNK_ROWS = 256
MIN_GARBAGE_ROWS = 2048
_MIN_GARBAGE_BYTES = 32 << 20


class Compactor:
    """Compaction of one file; it is notified of each event that the history drops."""

    def __init__(self) -> None:
        self.garbage: deque[tuple[int, int]] = deque()  # revisions and sizes of rows to delete
        self._garbage_bytes = 0
        self._rows = self._revision_sum = (
            0  # rows in the file at or below the floor, and the sum of their revisions
        )
        self._chunk: CompactionChunk | None = None

    def load_state(self, state: CompactionState) -> None:
        self._rows, self._revision_sum = state.rows, state.total

    def state(self, floor: int) -> CompactionState:
        """Return the state of the log when the history has reached a floor."""
        return CompactionState(floor, self._rows, self._revision_sum)

    def on_event_dropped(self, change: Change) -> None:
        """Count the row of a write that the floor has passed, and the rows it replaced."""
        kind, stored, before = change
        self._rows += 1
        self._revision_sum += stored.revision
        if before is not None:
            self.add_garbage(before.revision, before.size_bytes)
        if kind == "DELETED":
            self.add_garbage(stored.revision, stored.size_bytes)

    def add_garbage(self, revision: int, size_bytes: int) -> None:
        """Record that a row at or below the floor can be deleted."""
        self.garbage.append((revision, size_bytes))
        self._garbage_bytes += size_bytes

    def start_chunk(self, floor: int) -> CompactionChunk | None:
        """Return a first chunk if there is enough garbage."""
        if self._chunk or (len(self.garbage) < MIN_GARBAGE_ROWS and self._garbage_bytes < _MIN_GARBAGE_BYTES):
            return None
        return self._make_chunk(floor)

    def next_chunk(self, floor: int, *, failed: bool) -> CompactionChunk | None:
        """Return the next chunk after one is done; after a failure, compaction restarts with the next
        commit.
        """
        chunk, self._chunk = self._chunk, None
        if failed or chunk is None:
            return None
        for revision in chunk.revisions:
            self._garbage_bytes -= self.garbage.popleft()[1]
            self._rows -= 1
            self._revision_sum -= revision
        return self._make_chunk(floor) if self.garbage else None

    def _make_chunk(self, floor: int) -> CompactionChunk:
        revisions = [revision for revision, _ in islice(self.garbage, CHUNK_ROWS)]
        state = CompactionState(floor, self._rows - len(revisions), self._revision_sum - sum(revisions))
        self._chunk = CompactionChunk(state, revisions)
        return self._chunk
