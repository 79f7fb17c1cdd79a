"""Disk usage of files and directories, as `du` computes it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def disk_usage(*paths: Path) -> int:
    """Return the bytes that files and the contents of directories occupy.

    A file with several links counts once, and what cannot be read or is gone not at all. Symbolic links are
    followed only in `paths`.
    """
    seen: set[tuple[int, int]] = set()
    return sum(_blocks(place, seen) for path in paths for place in _walk(os.path.realpath(path)))


def _walk(path: str) -> Iterable[str]:
    if not os.path.isdir(path):
        yield path
    for place, directories, files in os.walk(path):
        for name in (*directories, *files):
            yield os.path.join(place, name)


def _blocks(path: str, seen: set[tuple[int, int]]) -> int:
    try:
        found = os.lstat(path)
    except OSError:
        return 0
    if (found.st_dev, found.st_ino) in seen:
        return 0
    seen.add((found.st_dev, found.st_ino))
    return found.st_blocks * 512
