"""Atomic updates of a directory of files, in the kubelet's layout.

..2026_01_02_03_04_05.123456/  the files
..data -> ..2026_01_02_...     replaced by a rename: readers see all old files or all new ones
NAME -> ..data/NAME            one link for each first component of a path
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import time
from pathlib import Path

from plimsoll.node.volumes.payload import Files, VolumeFile

_DATA = "..data"


def write_files(directory: Path, files: Files, group: int | None = None) -> bool:
    """Make the files of a volume these; return whether anything had to be changed. OSError on failure."""
    if _read_current(directory) == _visible(files, group):
        return False
    stamp = time.strftime("..%Y_%m_%d_%H_%M_%S", time.gmtime())
    fresh = directory / f"{stamp}.{secrets.token_hex(4)}"
    fresh.mkdir(mode=0o755)
    fresh.chmod(0o755)
    _own(fresh, group)
    for path, file in files.items():
        target = fresh / path
        for parent in reversed(target.relative_to(fresh).parents):
            place = fresh / parent
            if place != fresh and not place.exists():
                place.mkdir(mode=0o755)
                place.chmod(0o755)
                _own(place, group)
        fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "wb") as stream:
            stream.write(file.data)
            os.fchmod(stream.fileno(), _mode(file, group))
            if file.owner is not None:
                os.fchown(stream.fileno(), file.owner, -1)
        _own(target, group)
    old = os.readlink(directory / _DATA) if os.path.islink(directory / _DATA) else ""
    temporary = directory / "..data_tmp"
    with contextlib.suppress(FileNotFoundError):
        temporary.unlink()
    temporary.symlink_to(fresh.name)
    temporary.replace(directory / _DATA)
    names = {path.split("/")[0] for path in files}
    for name in names:
        link = directory / name
        if not link.is_symlink():
            link.symlink_to(f"{_DATA}/{name}")
    for entry in list(directory.iterdir()):
        if not entry.name.startswith("..") and entry.name not in names:
            entry.unlink()
    if old:
        shutil.rmtree(directory / old, ignore_errors=True)
    return True


def _own(path: Path, group: int | None) -> None:
    if group is not None:
        os.chown(path, -1, group, follow_symlinks=False)


def _mode(file: VolumeFile, group: int | None) -> int:
    """Return the mode of a file; with a group, which must be able to read it, as a kubelet sets it."""
    return file.mode | 0o440 if group is not None else file.mode


def _visible(files: Files, group: int | None) -> dict[str, tuple[bytes, int]]:
    return {path: (file.data, _mode(file, group)) for path, file in files.items()}


def _read_current(directory: Path) -> dict[str, tuple[bytes, int]] | None:
    """Return the current files with their modes; None before the first write."""
    if not (directory / _DATA).is_symlink():
        return None
    top = directory / os.readlink(directory / _DATA)
    found = {}
    try:
        for place, _, names in os.walk(top):
            for name in names:
                path = Path(place) / name
                found[str(path.relative_to(top))] = (path.read_bytes(), path.stat().st_mode & 0o777)
    except OSError:
        return None
    return found
