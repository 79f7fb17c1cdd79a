"""Writer thread: commits batches of writes.

Uses the log exclusively while the store is open. Batches are committed in order, and those that queued up
meanwhile in one transaction; each result is reported once. After a failed commit nothing is committed until
the event loop has rolled back and starts a new epoch.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import NamedTuple

from plimsoll.apiserver.storage.lock import RevisionMark, StoreLock
from plimsoll.apiserver.storage.log import CompactionState, Row, StoreLog

_MAX_BATCH_ROWS = 2048
_MAX_BATCH_BYTES = 16 << 20
# A thread requests the GIL after waiting this long without it being released in between. A busy event loop
# releases it briefly in every iteration: with Python's default of 5 ms the writer gets it by chance only, and
# single writes took up to 11 seconds.
_SWITCH_INTERVAL = 20e-6


class WriteBatch(NamedTuple):
    """Rows written in one iteration of the event loop."""

    epoch: int
    rows: list[Row]


class CompactionChunk(NamedTuple):
    """Rows to delete, and the compaction state after that."""

    state: CompactionState
    revisions: list[int]


class BatchCommitted(NamedTuple):
    revision: int
    rows: int


class BatchFailed(NamedTuple):
    epoch: int
    reason: str


class ChunkCompacted(NamedTuple):
    reason: str  # of the failure, or ""


class WriterStopped(NamedTuple):
    pass


WriterReport = BatchCommitted | BatchFailed | ChunkCompacted | WriterStopped


class LogWriter:
    """Writer thread; takes batches and chunks, and calls `report` when there are new reports."""

    def __init__(self, log: StoreLog, lock: StoreLock, identity: int, report: Callable[[], None]) -> None:
        self.reports: deque[WriterReport] = deque()
        self._log = log
        self._lock = lock
        self._identity = identity
        self._report = report
        self._queue: SimpleQueue[WriteBatch | CompactionChunk | None] = SimpleQueue()
        self._failed_epoch = -1  # the epoch of the last failure
        sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_INTERVAL))
        threading.Thread(target=self._run, name="plimsoll-store", daemon=True).start()

    def put(self, work: WriteBatch | CompactionChunk | None) -> None:
        """Queue work; None stops the thread after the work before it."""
        self._queue.put(work)

    def _run(self) -> None:
        work = self._queue.get()
        while work is not None:
            if isinstance(work, CompactionChunk):
                self._compact(work)
                work = self._queue.get()
            else:
                work = self._commit(work)
        try:
            self._log.close()
        finally:
            self._lock.close()
            self._send_report(WriterStopped())

    def _commit(self, batch: WriteBatch) -> WriteBatch | CompactionChunk | None:
        """Commit a batch and those queued behind it; return the next work."""
        epoch, rows = batch.epoch, list(batch.rows)
        size_bytes = _rows_bytes(rows)
        while len(rows) < _MAX_BATCH_ROWS and size_bytes < _MAX_BATCH_BYTES:
            try:
                work = self._queue.get_nowait()
            except Empty:
                break
            if not isinstance(work, WriteBatch) or work.epoch != epoch:
                self._append(epoch, rows)
                return work
            rows += work.rows
            size_bytes += _rows_bytes(work.rows)
        self._append(epoch, rows)
        return self._queue.get()

    def _append(self, epoch: int, rows: list[Row]) -> None:
        if epoch == self._failed_epoch:
            return  # depends on the failed batch
        try:
            self._log.append(rows)
        except Exception as error:  # of any kind: the waiters must be notified
            self._failed_epoch = epoch
            self._send_report(BatchFailed(epoch, str(error) or repr(error)))
            return
        self._lock.write_mark(RevisionMark(rows[-1][0], self._log.flushed, self._identity))
        self._send_report(BatchCommitted(rows[-1][0], len(rows)))

    def _compact(self, chunk: CompactionChunk) -> None:
        reason = ""
        try:
            self._log.compact(chunk.state, chunk.revisions)
        except Exception as error:
            reason = str(error) or repr(error)
        self._send_report(ChunkCompacted(reason))

    def _send_report(self, report: WriterReport) -> None:
        self.reports.append(report)
        self._report()


def _rows_bytes(rows: list[Row]) -> int:
    return sum([len(row[7]) for row in rows])
