"""Access to cgroup files. Nothing raises: a call that can fail returns an errno, 0 for success."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path


class LinuxFiles:
    """Files of the local machine."""

    def read(self, file: Path) -> str | None:
        """Return the stripped text of a file; None if it cannot be read."""
        try:
            return file.read_text(errors="replace").strip()
        except OSError:
            return None

    def write(self, file: Path, value: str) -> int:
        # Without O_CREAT: cgroup files are never created by writing.
        try:
            descriptor = os.open(file, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            return error.errno or errno.EIO
        try:
            os.write(descriptor, value.encode())
        except OSError as error:
            return error.errno or errno.EIO
        finally:
            with suppress(OSError):
                os.close(descriptor)
        return 0

    def subdirectories(self, directory: Path) -> tuple[str, ...]:
        """Return the sorted names of the subdirectories."""
        try:
            with os.scandir(directory) as found:
                return tuple(sorted(e.name for e in found if e.is_dir(follow_symlinks=False)))
        except OSError:
            return ()
