"""Store files: creation, copies, and renaming of damaged ones.

`NAME.new` is a file being written, `NAME.corrupt-TIME` one that was found damaged, each with its `-wal` and
`-shm`. A file gets its name only when it is complete and on disk, and never replaces another.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from plimsoll.apiserver.storage.log import CompactionState, Row, connect, create_file, write_identity
from plimsoll.common.atomic_file import sync_directory
from plimsoll.errors import StoreError

_COMPANIONS = ("-wal", "-shm")


def create_store(path: Path, state: CompactionState, rows: Sequence[Row] = ()) -> None:
    """Create a store that continues after its floor; StoreError."""
    with atomic_new_file(path) as temporary:
        create_file(temporary, state, rows)


def copy_store(path: Path, to: Path) -> None:
    """Copy everything committed, also while another process writes; StoreError.

    The copy is one file without companions, and is checked before it gets its name.
    """
    with atomic_new_file(to) as temporary:
        copy_pages(path, temporary)


def copy_pages(path: Path, temporary: Path) -> None:
    """Copy a consistent snapshot of a store, page by page."""
    if not path.exists():
        raise StoreError(f"{path} does not exist")
    temporary.touch(0o600)
    with closing(connect(path, read_only=True)) as source, closing(sqlite3.connect(temporary)) as copy:
        source.backup(copy)
        write_identity(copy)
        for (text,) in copy.execute("PRAGMA integrity_check(1)"):
            if text != "ok":
                raise StoreError(f"{path} is damaged: {' '.join(text.split())}")


@contextmanager
def atomic_new_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path; the file is renamed to `path` on success. Raises StoreError."""
    temporary = _sibling(path, ".new")
    try:
        for existing in (path, _sibling(path, "-wal")):
            if existing.exists():
                raise StoreError(f"{existing} already exists: remove it first")
        _remove(temporary)
        try:
            yield temporary
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            temporary.rename(path)
            sync_directory(path.parent)
        finally:
            _remove(temporary)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"{path} cannot be written: {error}") from None


def move_aside(path: Path) -> Path:
    """Rename a damaged file and its companions; return the new path."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    corrupt = _sibling(path, f".corrupt-{stamp}")
    number = 1
    while corrupt.exists():
        number += 1
        corrupt = _sibling(path, f".corrupt-{stamp}.{number}")
    path.rename(corrupt)
    move_companions_aside(path)
    return corrupt


def move_companions_aside(path: Path) -> None:
    """Rename the companions of a damaged file, in case a crash came in between."""
    corrupt = list_corrupt_files(path)
    if corrupt and not path.exists():
        for companion in _COMPANIONS:
            old, new = _sibling(path, companion), _sibling(corrupt[-1], companion)
            if old.exists() and not new.exists():
                old.rename(new)
        sync_directory(path.parent)


def list_corrupt_files(path: Path) -> list[Path]:
    """Return the damaged files of a store, oldest first."""
    prefix = f"{path.name}.corrupt-"
    names = [entry for entry in path.parent.iterdir() if entry.name.startswith(prefix)]
    return sorted(entry for entry in names if not entry.name.endswith(_COMPANIONS))


def _remove(path: Path) -> None:
    for companion in ("", *_COMPANIONS):
        _sibling(path, companion).unlink(missing_ok=True)


def _sibling(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)
