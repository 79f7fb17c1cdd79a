"""Clock of the tested processes, which can jump as the wall clock of a machine does.

`preload_clock` builds `clock_shim.c` and puts it into the environment: processes started from then on, and
their children, read the wall clock with the offset that `JumpingClock.jump` sets. This process keeps its own.
"""

from __future__ import annotations

import mmap
import os
import shutil
import struct
import subprocess
from pathlib import Path

_SOURCE = Path(__file__).with_name("clock_shim.c")


class JumpingClock:
    """Offset of the wall clock of all processes that were started with it."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(mmap.PAGESIZE))
        with path.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), mmap.PAGESIZE)

    def jump(self, seconds: float) -> None:
        """Set the offset: 0 is the time of the machine."""
        self._page[:8] = struct.pack("=q", int(seconds * 1e9))


def can_preload() -> bool:
    return shutil.which("cc") is not None


def preload_clock(directory: Path) -> JumpingClock:
    """Return the clock of processes that are started after this call."""
    library = directory / "clock_shim.so"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, _SOURCE], check=True)
    clock = JumpingClock(directory / "clock")
    os.environ |= {"LD_PRELOAD": str(library), "CHAOS_CLOCK": str(directory / "clock")}
    return clock
