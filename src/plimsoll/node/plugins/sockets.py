"""Sockets in the registration directory, and their changes.

As in the kubelet (docs/spec/node-protocols.md, "Plugin registration"), subdirectories are scanned, and names
that start with a dot and everything that is not a socket are skipped. A symbolic link to a socket counts as a
socket; a link to a directory is not followed. A socket that was removed and created again under the same name
is a new socket. Guarantees that no name and no kind of file causes an error, and that the cost of a scan is
bounded.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

#: Maximum number of entries, and depth of directories; further ones are ignored.
MAX_ENTRIES = 4096
MAX_DEPTH = 8


@dataclass(frozen=True, slots=True, order=True)
class Socket:
    """Socket as found; ordered by creation time, as far as it is known.

    The modification time of a socket is the time it was bound: unlike the time of the last status change it
    stays when the owner or the mode are changed, as drivers do right after binding.
    """

    made: int
    path: Path
    device: int
    inode: int


def scan(directory: Path) -> Mapping[Path, Socket]:
    """Return the sockets below a directory, by path. A missing or unreadable directory has none."""
    found: dict[Path, Socket] = {}
    left = MAX_ENTRIES
    directories = [(os.fspath(directory), 0)]
    while directories:
        path, depth = directories.pop()
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    if left == 0:
                        return found
                    left -= 1
                    if entry.name.startswith("."):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        if depth < MAX_DEPTH:
                            directories.append((entry.path, depth + 1))
                    elif (socket := _socket(entry)) is not None:
                        found[socket.path] = socket
        except OSError:
            continue  # it was removed during the scan, or is not readable
    return found


def _socket(entry: os.DirEntry[str]) -> Socket | None:
    try:
        if entry.is_file(follow_symlinks=False):
            return None  # known without another system call
        known = entry.stat()
    except OSError:
        return None
    if not stat.S_ISSOCK(known.st_mode):
        return None
    return Socket(known.st_mtime_ns, Path(entry.path), known.st_dev, known.st_ino)


@dataclass(frozen=True, slots=True)
class SocketChanges:
    """Differences between two scans. A socket created again is both removed and added."""

    gone: tuple[Socket, ...]
    added: tuple[Socket, ...]


def compare(before: Mapping[Path, Socket], now: Mapping[Path, Socket]) -> SocketChanges:
    """Return the removed and added sockets, the oldest first."""
    return SocketChanges(
        gone=tuple(sorted(socket for path, socket in before.items() if now.get(path) != socket)),
        added=tuple(sorted(socket for path, socket in now.items() if before.get(path) != socket)),
    )
