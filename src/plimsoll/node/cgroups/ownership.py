"""Ownership of a root cgroup: one root for each data directory.

The name of a root is unique to the directory in which an agent keeps its files. `RootMark` is what a running
agent leaves on its root so that others can identify its owner: an advisory lock, which ends with the process
in any case and is visible from every mount namespace, and an extended attribute with the directory. Cgroups
hold no ordinary files; where they support neither lock nor attribute, the name and the child `owner.NAME`
remain.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

#: Privileged namespace first: every kernel has it, and unprivileged processes cannot write it.
_ATTRIBUTES = ("trusted.plimsoll.root", "user.plimsoll.root")
_HASH_LENGTH = 10
#: Maximum length of the node's part: a file name has at most 255 bytes.
_MAX_NODE_LENGTH = 200


def default_root(node: str, data: Path) -> str:
    """Return the name of the root cgroup of an agent that keeps its files in this directory."""
    return f"plimsoll-{owner_of(node, data)}"


def owner_of(node: str, data: Path) -> str:
    """Return the owner that a root is marked with: the node, and a hash of the directory.

    Two agents of the same name on one machine, as with two clusters, have different directories.
    """
    path = os.fsencode(os.path.realpath(data))
    return f"{node[:_MAX_NODE_LENGTH]}-{hashlib.sha256(path).hexdigest()[:_HASH_LENGTH]}"


@dataclass(frozen=True, slots=True)
class RootOwner:
    """State of a root's mark: whether its agent runs, and its directory ("" if unknown).

    `gone`: the directory is known not to exist any more. A directory of another mount namespace may exist
    although it is not visible.
    """

    alive: bool
    data: str = ""
    gone: bool = False


class RootMark:
    """Mark of a running agent on its root; held until `release`. Calls may block: use a thread."""

    def __init__(self, data: Path, *, timeout: float = 1.0) -> None:
        self._data = os.path.realpath(data)
        self._timeout = timeout
        self._held: dict[Path, int] = {}

    def take(self, directories: Iterable[Path]) -> str:
        """Mark the directories of a root in all hierarchies; return an error message, or "".

        Marked directories stay marked, one that was removed and created again is marked again, and a missing
        one is skipped. Readers of the mark briefly hold the lock, so it is retried.
        """
        value = os.fsencode(f"{_mount_namespace()}:{self._data}")
        for directory in directories:
            if self._is_held(directory):
                continue
            self._release(directory)
            if not directory.is_dir():
                continue
            deadline = time.monotonic() + self._timeout
            while (file := _lock(directory, fcntl.LOCK_EX)) is None:
                if time.monotonic() > deadline:
                    return f"cgroup {directory} is in use by another process"
                time.sleep(0.02)
            self._held[directory] = file
            for name in _ATTRIBUTES:
                with suppress(OSError):
                    os.setxattr(directory, name, value)
                    break
        return ""

    def release(self) -> None:
        for directory in list(self._held):
            self._release(directory)

    def _is_held(self, directory: Path) -> bool:
        file = self._held.get(directory)
        try:
            return file is not None and os.path.samestat(os.fstat(file), os.stat(directory))
        except OSError:
            return False

    def _release(self, directory: Path) -> None:
        file = self._held.pop(directory, None)
        if file is not None:
            os.close(file)


def read_mark(directories: Iterable[Path]) -> RootOwner:
    """Read the mark of a root from its directories in all hierarchies; nothing is changed."""
    places, alive = list(directories), False
    for directory in places:
        file = _lock(directory, fcntl.LOCK_SH)
        if file is not None:
            os.close(file)
        elif directory.is_dir():
            alive = True
    return replace(read_directory(places), alive=alive)


def read_directory(directories: Iterable[Path]) -> RootOwner:
    """Read the directory a root belongs to; whether its agent runs is not checked."""
    value = next(filter(None, map(_attribute, directories)), "")
    # The prefix before the directory is mnt:[4026531841].
    namespace, _, data = value.partition("]:")
    visible = bool(data) and f"{namespace}]" == _mount_namespace()
    return RootOwner(alive=False, data=data, gone=visible and not os.path.lexists(data))


def _attribute(directory: Path) -> str:
    for name in _ATTRIBUTES:
        with suppress(OSError):
            return os.fsdecode(os.getxattr(directory, name))
    return ""


def _lock(directory: Path, how: int) -> int | None:
    """Lock a directory; return None if another process holds the lock or it cannot be opened."""
    try:
        file = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        return None
    return file


def _mount_namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/mnt")  # mnt:[4026531841]
    except OSError:
        return ""
