"""Atomic replacement of files: a reader sees the old content or the new content, never a part of it."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

if sys.platform == "win32":
    _FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_BINARY | os.O_NOINHERIT
else:
    _FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC


def temporary_path(path: Path) -> Path:
    """Return the path at which the new content of a file is written.

    It is the same path for every write, so that a file left by a crash is overwritten by the next one.
    """
    return path.with_name(f".{path.name[:240]}.tmp")


def replace_file(path: Path, data: bytes, *, mode: int = 0o600, durable: bool = True) -> None:
    """Replace the content of a file; raises OSError.

    If `durable`, the content is on the disk before it replaces the old one. The directory is not synced: see
    `sync_directory`.
    """
    temporary = temporary_path(path)
    try:
        file = os.open(temporary, _FLAGS, 0o600)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(file, view) :]
            if durable:
                os.fsync(file)
            if sys.platform != "win32":  # where files are their owner's by their directory's permissions
                os.fchmod(file, mode)
        finally:
            os.close(file)
        os.replace(temporary, path)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def sync_directory(directory: Path) -> None:
    """Make the creation, renaming and removal of files in a directory durable; raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
