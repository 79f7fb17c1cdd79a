"""hostPath volumes: the checks of their type."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from plimsoll.common.json_tree import text

_CHECKS: Mapping[str, tuple[Callable[[int], bool], str]] = {
    "Directory": (stat.S_ISDIR, "a directory"),
    "File": (stat.S_ISREG, "a file"),
    "Socket": (stat.S_ISSOCK, "a socket file"),
    "CharDevice": (stat.S_ISCHR, "a character device"),
    "BlockDevice": (stat.S_ISBLK, "a block device"),
}


def check_host_path(source: Mapping[str, Any]) -> Path | str:
    """Return the path of a hostPath volume, created if its type includes that, or why it cannot be used."""
    path, type = Path(text(source, "path")), text(source, "type")
    if not path.is_absolute():
        return f"hostPath.path: {str(path)!r} is not an absolute path"
    try:
        if type == "DirectoryOrCreate" or (not type and not path.exists()):
            # Without a type nothing is checked, and container runtimes create the directory.
            path.mkdir(mode=0o755, parents=True, exist_ok=True)
        elif type == "FileOrCreate" and not path.exists():
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
        kind = type.removesuffix("OrCreate")
        if not path.exists():
            return f"hostPath type check failed: {path} does not exist"
        if kind in _CHECKS:
            check, what = _CHECKS[kind]
            if not check(path.stat().st_mode):
                return f"hostPath type check failed: {path} is not {what}"
    except OSError as error:
        return f"hostPath: {path}: {error.strerror}"
    return path
