"""Making, copying and putting aside of whole files.

Owns the names that lie beside a store: `NAME.new` while a file is being made, `NAME.corrupt-TIME` for one
that was found damaged, each with its `-wal` and `-shm`. Promises: a file appears under its name only when it
is whole and on the disk, and never where one is already.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from plimsoll.apiserver.storage.log import CompactionState, Row, connect, create_file, write_identity
from plimsoll.errors import StoreError

_COMPANIONS = ("-wal", "-shm")


def create_store(path: Path, state: CompactionState, rows: Sequence[Row] = ()) -> None:
    """A store that goes on after its floor; raises StoreError."""
    with atomic_new_file(path) as fresh:
        create_file(fresh, state, rows)


def copy_store(path: Path, to: Path) -> None:
    """Copy all that is committed, also while another process writes; raises StoreError.

    The copy is one file without companions, and was read through before it got its name.
    """
    with atomic_new_file(to) as fresh:
        copy_pages(path, fresh)


def copy_pages(path: Path, fresh: Path) -> None:
    """Copy one moment of a store, page by page."""
    if not path.exists():
        raise StoreError(f"{path} does not exist")
    fresh.touch(0o600)
    with closing(connect(path, read_only=True)) as source, closing(sqlite3.connect(fresh)) as copy:
        source.backup(copy)
        write_identity(copy)
        for (text,) in copy.execute("PRAGMA integrity_check(1)"):
            if text != "ok":
                raise StoreError(f"{path} is damaged: {' '.join(text.split())}")


@contextmanager
def atomic_new_file(path: Path) -> Iterator[Path]:
    """Give a name to write a file under; it gets its own name when all went well. Raises StoreError."""
    fresh = _beside(path, ".new")
    try:
        for there in (path, _beside(path, "-wal")):
            if there.exists():
                raise StoreError(f"{there} is there already; put it away first")
        _remove(fresh)
        try:
            yield fresh
            with fresh.open("rb") as file:
                os.fsync(file.fileno())
            fresh.rename(path)
            _sync_folder(path.parent)
        finally:
            _remove(fresh)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"{path} cannot be written: {error}") from None


def move_aside(path: Path) -> Path:
    """Rename a damaged file and what belongs to it; gives its new name."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    aside = _beside(path, f".corrupt-{stamp}")
    number = 1
    while aside.exists():
        number += 1
        aside = _beside(path, f".corrupt-{stamp}.{number}")
    path.rename(aside)
    move_companions_aside(path)
    return aside


def move_companions_aside(path: Path) -> None:
    """Let the companions follow a file that was put aside; a kill may have come in between."""
    aside = list_corrupt_files(path)
    if aside and not path.exists():
        for companion in _COMPANIONS:
            old, new = _beside(path, companion), _beside(aside[-1], companion)
            if old.exists() and not new.exists():
                old.rename(new)
        _sync_folder(path.parent)


def list_corrupt_files(path: Path) -> list[Path]:
    """The damaged files beside a store, oldest first."""
    prefix = f"{path.name}.corrupt-"
    names = [entry for entry in path.parent.iterdir() if entry.name.startswith(prefix)]
    return sorted(entry for entry in names if not entry.name.endswith(_COMPANIONS))


def _remove(path: Path) -> None:
    for companion in ("", *_COMPANIONS):
        _beside(path, companion).unlink(missing_ok=True)


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
