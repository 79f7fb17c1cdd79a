"""System calls on cgroups: directories, files and signals.

`LinuxKernel` performs them; `NoKernel` keeps the values in memory and so turns a tree into a plan. No call
raises; a call that can fail returns an errno, 0 for success.
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


class CgroupKernel(Protocol):
    """Kernel interface of cgroup trees."""

    def make(self, directory: Path) -> int:
        """Create one cgroup; an existing one is not an error."""
        ...

    def remove(self, directory: Path) -> int:
        """Remove one empty cgroup; a missing one is not an error."""
        ...

    def write(self, file: Path, value: str) -> int: ...

    def read(self, file: Path) -> str | None:
        """Return the stripped content of a file; None if it cannot be read."""
        ...

    def exists(self, path: Path) -> bool: ...

    def subdirectories(self, directory: Path) -> tuple[str, ...]:
        """Return the names of the cgroups directly below one, sorted."""
        ...

    def may_write(self, directory: Path) -> bool: ...

    def end(self, pid: int) -> None:
        """Send SIGKILL to a process; a missing one is not an error."""
        ...

    def wait(self, seconds: float) -> None: ...


class LinuxKernel(LinuxFiles):
    """The kernel of this machine."""

    def make(self, directory: Path) -> int:
        try:
            directory.mkdir(mode=0o755)
        except FileExistsError:
            return 0 if directory.is_dir() else errno.ENOTDIR
        except OSError as error:
            return error.errno or errno.EIO
        return 0

    def remove(self, directory: Path) -> int:
        try:
            directory.rmdir()
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

    def may_write(self, directory: Path) -> bool:
        return os.access(directory, os.W_OK | os.X_OK)

    def end(self, pid: int) -> None:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)


class NoKernel:
    """In-memory stand-in: every call succeeds and is recorded."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: dict[Path, dict[str, str]] = {}  #: directory -> its files

    def make(self, directory: Path) -> int:
        with self._lock:
            self._files.setdefault(directory, {})
        return 0

    def remove(self, directory: Path) -> int:
        with self._lock:
            self._files.pop(directory, None)
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

    def subdirectories(self, directory: Path) -> tuple[str, ...]:
        with self._lock:
            return tuple(sorted(path.name for path in self._files if path.parent == directory))

    def may_write(self, directory: Path) -> bool:
        return True

    def end(self, pid: int) -> None:
        return None

    def wait(self, seconds: float) -> None:
        return None
