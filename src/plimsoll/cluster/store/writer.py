"""The thread that commits groups of writes.

Owns the log while the store is open. Promises: what was handed over is committed in that order, all that came
meanwhile in one transaction; each outcome is reported once. After a commit that failed nothing is committed
until the event loop has taken back what hung on it and begins a new epoch.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import NamedTuple

from plimsoll.cluster.store.lock import Lock
from plimsoll.cluster.store.log import Log, Row, State

_MOST_ROWS = 2048
_MOST_OCTETS = 16 << 20


class Batch(NamedTuple):
    """Rows of one turn of the event loop."""

    epoch: int
    rows: list[Row]


class Chunk(NamedTuple):
    """Rows to delete, and how the log stands after that."""

    state: State
    revisions: list[int]


class Committed(NamedTuple):
    revision: int
    rows: int


class Failed(NamedTuple):
    epoch: int
    reason: str


class Compacted(NamedTuple):
    reason: str  # why it failed, or nothing


class Ended(NamedTuple):
    pass


Outcome = Committed | Failed | Compacted | Ended


class Writer:
    """Hand over batches and chunks; read the outcomes when `report` was called."""

    def __init__(self, log: Log, lock: Lock, report: Callable[[], None]) -> None:
        self.outcomes: deque[Outcome] = deque()
        self.thread = threading.Thread(target=self._run, name="plimsoll-store", daemon=True)
        self._log = log
        self._lock = lock
        self._report = report
        self._queue: SimpleQueue[Batch | Chunk | None] = SimpleQueue()
        self._broken = -1  # the epoch of the last failure
        self.thread.start()

    def put(self, work: Batch | Chunk | None) -> None:
        """Hand over; None ends the thread after all that came before."""
        self._queue.put(work)

    def _run(self) -> None:
        work = self._queue.get()
        while work is not None:
            if isinstance(work, Chunk):
                self._compact(work)
                work = self._queue.get()
            else:
                work = self._commit(work)
        self._log.close()
        self._lock.close()
        self._tell(Ended())

    def _commit(self, batch: Batch) -> Batch | Chunk | None:
        """Commit a batch and those that wait behind it; gives what comes next."""
        rows = list(batch.rows) if batch.epoch != self._broken else []
        octets = sum(len(row[7]) for row in rows)
        following: Batch | Chunk | None
        while True:
            try:
                full = len(rows) >= _MOST_ROWS or octets >= _MOST_OCTETS
                following = self._queue.get_nowait() if not full else None
            except Empty:
                full, following = True, None
            if not isinstance(following, Batch):
                break
            if following.epoch != self._broken:
                batch = following
                rows += following.rows
                octets += sum(len(row[7]) for row in following.rows)
        if rows:
            try:
                self._log.append(rows)
            except (sqlite3.Error, OSError) as error:
                self._broken = batch.epoch
                self._tell(Failed(batch.epoch, str(error)))
            else:
                self._lock.write_mark(rows[-1][0])
                self._tell(Committed(rows[-1][0], len(rows)))
        return self._queue.get() if full and following is None else following

    def _compact(self, chunk: Chunk) -> None:
        try:
            self._log.compact(chunk.state, chunk.revisions)
        except (sqlite3.Error, OSError) as error:
            self._tell(Compacted(str(error)))
        else:
            self._tell(Compacted(""))

    def _tell(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        self._report()
