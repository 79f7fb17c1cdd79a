"""`HistoryStore`: samples in an SQLite file of bounded size, or in memory.

Samples are thinned with age (`thinning.py`). A corrupt file is renamed and a new one begun. While the file
cannot be written (a full disk), samples are dropped; if it cannot be opened, they are kept in memory until
the process ends. None of this stops the dashboard: it is logged, once until the state changes.
"""

from __future__ import annotations

import logging
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

import msgspec

from plimsoll.tools.dashboard.history.samples import Sample, series_json
from plimsoll.tools.dashboard.history.thinning import thin

_log = logging.getLogger("plimsoll.history")
#: Nodes are distributed to this many rows per sample, so that the series of one node is read quickly.
SHARDS = 16
#: Maximum size of a file in bytes; the oldest samples of single nodes are dropped first.
MAX_BYTES = 256 << 20
_SCHEMA = """
CREATE TABLE IF NOT EXISTS clusters (time INTEGER PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS nodes (shard INTEGER, time INTEGER, body BLOB NOT NULL, PRIMARY KEY (shard, time))
  WITHOUT ROWID;
"""


class HistoryStore:
    """Samples of one cluster; thread-safe. `close` releases the file."""

    def __init__(self, path: Path | None = None, *, max_bytes: int = MAX_BYTES) -> None:
        """Without a path, samples are kept in memory only."""
        self._path = path
        self._max_bytes = max_bytes
        self._lock = Lock()
        self._problem = ""
        self.database = self._open()

    def add(self, sample: Sample) -> None:
        """Add a sample and drop those that are no longer needed."""
        with self._lock:
            try:
                self._write(sample)
            except sqlite3.Error as error:
                self._recover(error, sample)

    def series(self, node: str = "", *, since: int = 0) -> dict[str, Any]:
        """Return the series of the cluster or of one node as arrays, oldest first."""
        with self._lock:
            try:
                return series_json(self._points(node, since))
            except (sqlite3.Error, zlib.error, msgspec.DecodeError, KeyError, TypeError) as error:
                self._report(f"cannot be read: {error}")
                return series_json(())

    def close(self) -> None:
        with self._lock, suppress(sqlite3.Error):
            self.database.close()

    # -- files

    def _open(self) -> sqlite3.Connection:
        """Open the file; begin a new one if it is corrupt; fall back to memory if it cannot be opened."""
        if self._path is None:
            return _connect(":memory:")
        for retry in (True, False):
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                with suppress(PermissionError):  # of another owner
                    self._path.touch(0o600)
                    self._path.chmod(0o600)
                return _connect(str(self._path))
            except (sqlite3.OperationalError, OSError) as error:
                self._report(f"cannot be opened, history is kept in memory: {error}")
                break
            except sqlite3.DatabaseError as error:
                if not (retry and self._set_aside(error)):
                    break
        return _connect(":memory:")

    def _set_aside(self, error: Exception) -> bool:
        """Rename a corrupt file; return whether a new one can be begun."""
        assert self._path is not None
        aside = self._path.with_name(self._path.name + ".corrupt")
        try:
            for suffix in ("-wal", "-shm"):
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
            self._path.replace(aside)
        except OSError as failure:
            self._report(f"is corrupt and cannot be renamed, history is kept in memory: {failure}")
            return False
        self._report(f"is corrupt ({error}): moved to {aside.name}, history begins anew")
        return True

    def _recover(self, error: sqlite3.Error, sample: Sample) -> None:
        """Handle a failed write: a corrupt file is replaced; otherwise the sample is dropped."""
        with suppress(sqlite3.Error):
            self.database.rollback()
        if isinstance(error, sqlite3.OperationalError) or self._path is None:
            self._report(f"cannot be written, this sample is dropped: {error}")
            return
        with suppress(sqlite3.Error):
            self.database.close()
        self._set_aside(error)
        self.database = self._open()
        with suppress(sqlite3.Error):
            self._write(sample)

    def _report(self, problem: str) -> None:
        if problem != self._problem:
            _log.error("history file %s %s", self._path or "(memory)", problem)
        self._problem = problem

    # -- rows

    def _write(self, sample: Sample) -> None:
        database = self.database
        body = {
            "pods": sample.pods,
            "pending": sample.pending,
            "resources": sample.totals,
            "classes": sample.classes,
        }
        shards: list[dict[str, Any]] = [{} for _ in range(SHARDS)]
        for name, amounts in sample.nodes.items():
            shards[_shard(name)][name] = amounts
        with database:
            database.execute("INSERT OR REPLACE INTO clusters VALUES (?, ?)", (sample.time, _pack(body)))
            database.executemany(
                "INSERT OR REPLACE INTO nodes VALUES (?, ?, ?)",
                [(number, sample.time, _pack(shard)) for number, shard in enumerate(shards) if shard],
            )
            times = [time for (time,) in database.execute("SELECT time FROM clusters")]
            dropped = [(time,) for time in set(times) - set(thin(times, sample.time))]
            database.executemany("DELETE FROM clusters WHERE time = ?", dropped)
            database.executemany(
                "DELETE FROM nodes WHERE time = ? AND shard = ?",
                [(time, shard) for (time,) in dropped for shard in range(SHARDS)],
            )
            self._shrink()
        if self._problem:
            self._problem = ""
            _log.warning("history file %s is written again", self._path or "(memory)")

    def _shrink(self) -> None:
        """Drop the older half of the node samples if the file is too large."""
        pages, free, size = (
            self.database.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
        if (pages - free) * size <= self._max_bytes:
            return
        times = [time for (time,) in self.database.execute("SELECT DISTINCT time FROM nodes ORDER BY time")]
        self.database.execute("DELETE FROM nodes WHERE time < ?", (times[len(times) // 2],))
        _log.warning(
            "history of %s is larger than %d MiB: older samples of nodes dropped",
            self._path or "memory",
            self._max_bytes >> 20,
        )

    def _points(self, node: str, since: int) -> Iterator[tuple[int, dict[str, Any]]]:
        if not node:
            query = "SELECT time, body FROM clusters WHERE time >= ? ORDER BY time"
            for time, body in self.database.execute(query, (since,)):
                yield time, _unpack(body)
            return
        query = "SELECT time, body FROM nodes WHERE shard = ? AND time >= ? ORDER BY time"
        for time, body in self.database.execute(query, (_shard(node), since)):
            amounts = _unpack(body).get(node)
            if amounts is not None:
                yield time, {"resources": amounts}


def _connect(where: str) -> sqlite3.Connection:
    database = sqlite3.connect(where, check_same_thread=False, timeout=5)
    try:
        database.execute("PRAGMA journal_mode=WAL")
        database.executescript(_SCHEMA)
        if database.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
            raise sqlite3.DatabaseError("integrity check failed")
    except BaseException:
        database.close()
        raise
    return database


def _shard(name: str) -> int:
    return zlib.crc32(name.encode(errors="replace")) % SHARDS


def _pack(tree: Any) -> bytes:
    return zlib.compress(msgspec.json.encode(tree), 6)


def _unpack(body: bytes) -> dict[str, Any]:
    tree = msgspec.json.decode(zlib.decompress(body))
    if not isinstance(tree, dict):
        raise TypeError("a sample is not an object")
    return tree
