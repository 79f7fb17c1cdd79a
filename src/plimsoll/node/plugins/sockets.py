"""Sockets in the registration folder: which are there, which came and which went.

Owns the look into the folder (section 1 of the node protocols): sub-folders are entered, names that start
with a dot are passed over, and so is everything that is no socket. A link to a socket counts as a socket; a
link to a folder is not entered. A socket that was taken away and made anew under the same name is another
socket. Promises: no name and no kind of file in there is a fault, and a look costs no more than so much.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

#: Entries looked at, and folders below each other, at most; what is beyond is not seen.
MOST_ENTRIES = 4096
DEEPEST = 8


@dataclass(frozen=True, slots=True, order=True)
class Socket:
    """A socket as it was seen; ordered by when it was made, as far as that is known.

    The time is that of its content, which for a socket is the time it was bound: other than the time of its
    last change it stays when the owner or the mode are changed, as drivers do right after binding.
    """

    made: int
    path: Path
    device: int
    inode: int


def scan(folder: Path) -> Mapping[Path, Socket]:
    """The sockets below a folder, by path. A folder that is not there, or cannot be read, has none."""
    found: dict[Path, Socket] = {}
    left = MOST_ENTRIES
    folders = [(os.fspath(folder), 0)]
    while folders:
        path, depth = folders.pop()
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    if left == 0:
                        return found
                    left -= 1
                    if entry.name.startswith("."):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        if depth < DEEPEST:
                            folders.append((entry.path, depth + 1))
                    elif (socket := _socket(entry)) is not None:
                        found[socket.path] = socket
        except OSError:
            continue  # it went away while we looked, or is none of ours to read
    return found


def _socket(entry: os.DirEntry[str]) -> Socket | None:
    try:
        if entry.is_file(follow_symlinks=False):
            return None  # known without another look at the disk
        known = entry.stat()
    except OSError:
        return None
    if not stat.S_ISSOCK(known.st_mode):
        return None
    return Socket(known.st_mtime_ns, Path(entry.path), known.st_dev, known.st_ino)


@dataclass(frozen=True, slots=True)
class Changes:
    """What is different between two looks. A socket made anew has gone and come."""

    gone: tuple[Socket, ...]
    come: tuple[Socket, ...]


def compare(before: Mapping[Path, Socket], now: Mapping[Path, Socket]) -> Changes:
    """What went and what came, the oldest first."""
    return Changes(
        gone=tuple(sorted(socket for path, socket in before.items() if now.get(path) != socket)),
        come=tuple(sorted(socket for path, socket in now.items() if before.get(path) != socket)),
    )
