"""The only place where cgroups are touched: folders, files and signals.

Owns `Kernel`, the few calls that trees of cgroups need, and two of them: `LinuxKernel`, and `NoKernel`, which
keeps in memory what it is told and so turns a tree into a plan. No call raises; a call that can fail returns
an errno, 0 for success.
"""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from plimsoll.common.cgroupfs import LinuxFiles


class Kernel(Protocol):
    """What trees need of a machine."""

    def make(self, folder: Path) -> int:
        """Make one cgroup; one that exists is fine."""
        ...

    def remove(self, folder: Path) -> int:
        """Remove one empty cgroup; one that is gone is fine."""
        ...

    def write(self, file: Path, value: str) -> int: ...

    def read(self, file: Path) -> str | None:
        """The text of a file without blanks around it; None if it cannot be read."""
        ...

    def exists(self, path: Path) -> bool: ...

    def folders(self, folder: Path) -> tuple[str, ...]:
        """The names of the cgroups right below one, sorted."""
        ...

    def may_write(self, folder: Path) -> bool: ...

    def end(self, pid: int) -> None:
        """Send SIGKILL to a process, which may be gone already."""
        ...

    def wait(self, seconds: float) -> None: ...


class LinuxKernel(LinuxFiles):
    """The machine itself."""

    def make(self, folder: Path) -> int:
        try:
            folder.mkdir(mode=0o755)
        except FileExistsError:
            return 0 if folder.is_dir() else errno.ENOTDIR
        except OSError as error:
            return error.errno or errno.EIO
        return 0

    def remove(self, folder: Path) -> int:
        try:
            folder.rmdir()
        except FileNotFoundError:
            return 0
        except OSError as error:
            return error.errno or errno.EIO
        return 0

    def exists(self, path: Path) -> bool:
        try:
            return path.exists()
        except OSError:
            return False

    def may_write(self, folder: Path) -> bool:
        return os.access(folder, os.W_OK | os.X_OK)

    def end(self, pid: int) -> None:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)


class NoKernel:
    """No machine: everything succeeds and is remembered."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: dict[Path, dict[str, str]] = {}  #: folder -> its files

    def make(self, folder: Path) -> int:
        with self._lock:
            self._files.setdefault(folder, {})
        return 0

    def remove(self, folder: Path) -> int:
        with self._lock:
            self._files.pop(folder, None)
        return 0

    def write(self, file: Path, value: str) -> int:
        with self._lock:
            self._files.setdefault(file.parent, {})[file.name] = value
        return 0

    def read(self, file: Path) -> str | None:
        with self._lock:
            return self._files.get(file.parent, {}).get(file.name)

    def exists(self, path: Path) -> bool:
        with self._lock:
            return path in self._files or path.name in self._files.get(path.parent, {})

    def folders(self, folder: Path) -> tuple[str, ...]:
        with self._lock:
            return tuple(sorted(path.name for path in self._files if path.parent == folder))

    def may_write(self, folder: Path) -> bool:
        return True

    def end(self, pid: int) -> None:
        return None

    def wait(self, seconds: float) -> None:
        return None
