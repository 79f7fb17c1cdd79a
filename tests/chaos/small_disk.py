"""Small file system that can be filled and made read-only."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def mount(*words: str) -> bool:
    return subprocess.run(["mount", *words], capture_output=True, check=False).returncode == 0


def unmount(directory: Path) -> None:
    subprocess.run(["umount", "-l", str(directory)], capture_output=True, check=True)


class Disk:
    """File system of 1 MiB: the driver tries writes of 64 KiB."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        assert mount("-t", "tmpfs", "-o", "size=1m,mode=755", "none", str(directory))

    def lock(self) -> None:
        assert mount("-o", "remount,ro", str(self.directory))

    def unlock(self) -> None:
        assert mount("-o", "remount,rw", str(self.directory))

    def fill(self) -> None:
        (self.directory / "filler").write_bytes(bytes(shutil.disk_usage(self.directory).free))

    def empty(self) -> None:
        (self.directory / "filler").unlink()


@contextmanager
def mounted(directory: Path) -> Iterator[Disk]:
    disk = Disk(directory)
    try:
        yield disk
    finally:
        unmount(directory)
