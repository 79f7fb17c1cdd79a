"""Recovery of a store from a damaged file or from a backup.

For each object the newest readable state is kept, and every loss that can be detected is reported. The store
continues after the last revision that a client may have seen, and older watches must list again.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from plimsoll.apiserver.storage.compaction import Compactor
from plimsoll.apiserver.storage.current_state import CurrentState
from plimsoll.apiserver.storage.files import (
    atomic_new_file,
    copy_pages,
    create_store,
    list_corrupt_files,
    move_companions_aside,
)
from plimsoll.apiserver.storage.loading import LogLoader
from plimsoll.apiserver.storage.lock import RevisionMark, StoreLock
from plimsoll.apiserver.storage.log import DELETED, CompactionState, Row, StoreLog
from plimsoll.apiserver.storage.salvage import SalvagedRows
from plimsoll.errors import StoreError

_MAX_REPORTED = 20


class RecoveryReport(NamedTuple):
    """Number of objects kept, number of writes known to be lost, and messages."""

    kept: int
    lost: int
    reports: tuple[str, ...]


def recover(path: Path) -> RecoveryReport:
    """Create a store from everything readable in the most recent damaged file; StoreError."""
    with closing(StoreLock(path)) as lock:
        move_companions_aside(path)
        corrupt = list_corrupt_files(path)
        if not corrupt:
            raise StoreError(f"no damaged file found next to {path}")
        try:
            salvage = SalvagedRows(corrupt[-1])
        except OSError as error:
            raise StoreError(f"{corrupt[-1]} cannot be read: {error.strerror}") from None
        rows, warnings = _select_rows(salvage)
        objects = _latest_states(rows)
        lost, losses = _find_losses(salvage, rows, lock.mark.revision)
        last = max([lock.mark.revision, *salvage.rows])
        create_store(path, CompactionState(last + 1, len(objects), sum(row[0] for row in objects)), objects)
        return RecoveryReport(len(objects), lost, (f"read from {corrupt[-1]}", *losses, *warnings))


def restore(backup: Path, path: Path, *, after: int = 0) -> int:
    """Create a store from a backup; return the revision it continues from, after `after` and all revisions
    seen here.

    Raises StoreError if the backup is damaged or a store exists already.
    """
    with closing(StoreLock(path)) as lock, atomic_new_file(path) as temporary:
        copy_pages(backup, temporary)
        loader = LogLoader(CurrentState(), Compactor())
        loader.read(temporary)
        if loader.problems:
            raise StoreError(f"{backup} is damaged: {'; '.join(loader.problems)}")
        revision, seen = loader.revision, max(lock.mark.revision, after)
        if seen > revision:
            revision = seen + 1
            with closing(StoreLog(temporary, "full")) as log:
                log.compact(CompactionState(revision, loader.rows, loader.total), ())
        lock.write_mark(RevisionMark(revision, True, loader.identity))
        return revision


def _select_rows(salvage: SalvagedRows) -> tuple[list[Row], list[str]]:
    """Return the rows that count, oldest first: above the floor all, below it those on pages in use."""
    warnings = []
    floor = salvage.state.floor if salvage.state else max(salvage.rows, default=0)
    if salvage.state is None:
        warnings.append("the compaction state is unknown: deleted objects may reappear")
    elif not salvage.free_known:
        warnings.append("the list of free pages is damaged: objects deleted long ago may reappear")
    revisions = [revision for revision in salvage.rows if revision > floor or revision in salvage.current]
    return [salvage.rows[revision] for revision in sorted(revisions)], warnings


def _latest_states(rows: Sequence[Row]) -> list[Row]:
    """Return the last state of every existing object, as rows of a new log."""
    objects: dict[tuple[str, str, str], Row] = {}
    for row in rows:
        objects.pop(row[4:7], None)
        if row[2] != DELETED:
            objects[row[4:7]] = (row[0], 0, 1, *row[3:])
    return sorted(objects.values())


def _find_losses(salvage: SalvagedRows, rows: Sequence[Row], mark: int) -> tuple[int, list[str]]:
    """Return the number of writes known to be missing, and messages about them."""
    lost = 0
    reports = []
    damaged = salvage.damaged[:_MAX_REPORTED]
    reports += [f"damaged: {text}; if there is an older state, that was kept" for text in damaged]
    more = len(salvage.damaged) - len(damaged) + salvage.unreadable
    if more:
        reports.append(f"damaged: {more} more rows")
    if salvage.state is None:
        reports.append("the number of rows is unknown: more may be missing")
        return max(1, len(salvage.damaged) + salvage.unreadable), reports
    floor = salvage.state.floor
    below = [row[0] for row in rows if row[0] <= floor]
    if len(below) != salvage.state.rows or sum(below) != salvage.state.total:
        lost += max(1, salvage.state.rows - len(below))
        reports.append(f"missing or not the newest: rows up to revision {floor}, at least {lost} of them")
    last = floor
    for row in rows:
        if row[0] <= floor:
            continue
        if max(row[1], floor) != last:
            lost += row[1] - last
            reports.append(f"missing: rows after revision {last} up to {row[1]}")
        last = row[0]
    if last < mark:
        lost += mark - last
        reports.append(f"missing: rows after revision {last} up to {mark}")
    return lost, reports
