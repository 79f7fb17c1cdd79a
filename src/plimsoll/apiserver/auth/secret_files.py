"""Secret files: keys, tokens and kubeconfigs, written atomically and readable by their owner only.

No other user can open such a file at any time, and a crash leaves either the old file or the new one.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from plimsoll.errors import ConfigError


def write_private(path: Path, content: bytes) -> None:
    """Write a file of mode 0600, replacing an existing one."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise ConfigError(f"{path} cannot be written: {error.strerror or error}") from None


def read_file(path: Path, what: str) -> bytes:
    """Read a file that must exist; `what` describes it in errors."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{what} {path} cannot be read: {error.strerror or error}") from None


def read_private(path: Path, what: str) -> bytes:
    """Read a secret, and remove access of other users from it."""
    content = read_file(path, what)
    try:
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)
    except OSError as error:
        raise ConfigError(f"{what} {path} is accessible to others: {error.strerror or error}") from None
    return content
