"""Lock file: one agent per root directory, one driver per directory.

The kernel releases the lock when the process ends for any reason; the file contains the PID of its owner.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from plimsoll.errors import ConfigError


class RootLock:
    """Lock on a directory, to be taken before anything in it is used."""

    def __init__(self, path: Path, *, who: str = "agent", flag: str = "--root") -> None:
        """Create a lock; `who` uses the directory, and `flag` selects another one."""
        self.path = path
        self._who, self._flag = who, flag
        self._file: int | None = None

    def take(self) -> None:
        """Take the lock, creating the directory if necessary; raises ConfigError if it is held."""
        directory = self.path.parent
        try:
            directory.mkdir(mode=0o755, parents=True, exist_ok=True)
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise ConfigError(
                f"{directory}: cannot be used: {error.strerror or error}; choose another with {self._flag}"
            ) from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.read(file, 100).decode(errors="replace").strip()
            os.close(file)
            who = f"the {self._who} with PID {holder}" if holder.isdigit() else f"another {self._who}"
            raise ConfigError(
                f"{directory}: {who} uses this directory; stop it, or choose another with {self._flag}"
            ) from None
        os.ftruncate(file, 0)
        os.write(file, f"{os.getpid()}\n".encode())
        self._file = file

    def release(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            os.close(file)
