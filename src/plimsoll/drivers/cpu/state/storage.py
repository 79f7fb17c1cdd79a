"""Health of the directories in which claims are recorded.

`StorageMonitor` remembers failed writes of the checkpoint and of CDI files and, while nothing is written,
tries whether a write would succeed: a full disk shows only then. The trial leaves no trace in the directory:
runtimes watch it.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

#: Size of a trial write; a checkpoint of some hundred claims is as large.
_TRIAL_BYTES = 64 << 10
#: Errors of file systems and kernels without unnamed files.
_NO_UNNAMED_FILES = (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL)


class StorageMonitor:
    """Problems of the plugin directory and the CDI directory. Methods may be called from any thread."""

    def __init__(self, plugin_dir: Path, cdi: Path) -> None:
        self._places = {
            plugin_dir: "claims cannot be checkpointed",
            cdi: "CDI files cannot be written",
        }
        self._optional = cdi  # created with the first file
        self._errors: dict[Path, str] = {}

    @property
    def problems(self) -> tuple[str, ...]:
        """Reasons why claims cannot be recorded; claims fail while there is one."""
        found = []
        for directory, effect in self._places.items():
            missing = directory == self._optional and not os.path.lexists(directory)
            if not missing and not os.access(directory, os.W_OK | os.X_OK):
                found.append(f"{directory} is not writable: {effect}")
            elif error := self._errors.get(directory):
                found.append(f"{error}: {effect}")
        return tuple(found)

    def record(self, directory: Path, error: str) -> None:
        """Record the result of a write; "" is success."""
        if error:
            self._errors[directory] = error
        else:
            self._errors.pop(directory, None)

    def probe(self) -> None:
        """Try to write in both directories. Blocks."""
        for directory in self._places:
            if directory == self._optional and not os.path.lexists(directory):
                continue
            try:
                _try_write(directory)
            except OSError as error:
                self.record(directory, f"{directory}: {error.strerror or error}")
            else:
                self.record(directory, "")


def _try_write(directory: Path) -> None:
    """Write and discard a file; raises OSError."""
    name = ""
    try:
        file = os.open(directory, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno not in _NO_UNNAMED_FILES or not directory.is_dir():
            raise
        name = str(directory / f".trial-{os.getpid()}")
        file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        left = _TRIAL_BYTES
        while left > 0:
            left -= os.write(file, bytes(left))
    finally:
        os.close(file)
        if name:
            with contextlib.suppress(OSError):
                os.unlink(name)
