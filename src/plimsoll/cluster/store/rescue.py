"""Copies of a store, and what to do about a damaged one.

Owns the files that lie beside a store: those put aside, and those being made. Promises: a file appears under
its name only when it is whole.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from plimsoll.cluster.store.log import Log, Row, State, connect, create_file
from plimsoll.cluster.store.records import Stored
from plimsoll.errors import StoreError

_COMPANIONS = ("", "-wal", "-shm")


def set_aside(path: Path) -> Path:
    """Rename a damaged file and what belongs to it; gives its new name."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    name = f"{path.name}.corrupt-{stamp}"
    number = 1
    while path.with_name(name).exists():
        number += 1
        name = f"{path.name}.corrupt-{stamp}-{number}"
    for companion in _COMPANIONS:
        old = path.with_name(path.name + companion)
        if old.exists():
            old.rename(path.with_name(name + companion))
    _sync_folder(path.parent)
    return path.with_name(name)


def sets_aside(path: Path) -> list[Path]:
    """The damaged files beside a store, oldest first."""
    found = path.parent.glob(f"{path.name}.corrupt-*")
    return sorted(entry for entry in found if not entry.name.endswith(_COMPANIONS[1:]))


def make_file(path: Path, floor: int) -> None:
    """An empty store that goes on after a revision, whole or not there at all."""
    fresh = path.with_name(f"{path.name}.new")
    _remove(fresh)
    create_file(fresh, floor)
    _finish(fresh, path)


def write_store(to: Path, objects: Sequence[Stored], revision: int) -> None:
    """A store that holds these objects and goes on after a revision."""
    if to.exists():
        raise StoreError(f"{to} is there already")
    make_file(to, revision)
    rows: list[Row] = []
    previous = revision
    for stored in sorted(objects, key=lambda stored: stored.revision):
        previous = stored.revision
        rows.append((stored.revision, 0, 1, stored.created, *stored.key, stored.raw))
    log = Log(to, "full")
    log.append(rows)
    log.compact(State(max(revision, previous), len(rows)), ())
    log.close()


def copy_store(path: Path, to: Path) -> None:
    """Copy a store, also while another process writes it; the copy appears whole or not at all."""
    if to.exists():
        raise StoreError(f"{to} is there already")
    fresh = to.with_name(f"{to.name}.new")
    _remove(fresh)
    try:
        with closing(connect(path, read_only=True)) as source, closing(sqlite3.connect(fresh)) as copy:
            source.backup(copy)
        _finish(fresh, to)
    except (sqlite3.Error, OSError) as error:
        _remove(fresh)
        raise StoreError(f"{path} cannot be copied to {to}: {error}") from None


def _finish(fresh: Path, path: Path) -> None:
    with fresh.open("rb") as file:
        os.fsync(file.fileno())
    fresh.rename(path)
    _sync_folder(path.parent)


def _remove(path: Path) -> None:
    for companion in _COMPANIONS:
        path.with_name(path.name + companion).unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
