"""Heap trimming: returns freed memory to the operating system.

glibc keeps freed blocks for reuse, so the memory of a burst of large requests would stay resident for as long
as the process runs. `HeapTrimmer` calls malloc_trim on a thread once enough memory has been freed, at most
every few seconds. With other C libraries it does nothing.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

#: Freed bytes that are worth a trim, and seconds between two trims.
_MIN_FREED_BYTES = 16 << 20
_INTERVAL_SECONDS = 5.0


def find_malloc_trim() -> Callable[[], None] | None:
    """Return glibc's malloc_trim, or None if the C library has none."""
    try:
        import ctypes  # noqa: PLC0415 - some Pythons are built without it

        trim = ctypes.CDLL(None).malloc_trim
    except (ImportError, OSError, AttributeError):
        return None
    trim.argtypes, trim.restype = [ctypes.c_size_t], ctypes.c_int
    return lambda: trim(0)


class HeapTrimmer:
    """Trimmer of the process heap, which runs some time after enough memory has been freed."""

    def __init__(self, trim: Callable[[], None] | None = None) -> None:
        self._trim = trim or find_malloc_trim()
        self._freed = 0
        self.timer: asyncio.TimerHandle | None = None

    def record_freed(self, size: int) -> None:
        """Record that about `size` bytes have been freed."""
        self._freed += size
        if self._freed >= _MIN_FREED_BYTES and self.timer is None and self._trim is not None:
            self.timer = asyncio.get_running_loop().call_later(_INTERVAL_SECONDS, self._run)

    def close(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _run(self) -> None:
        self.timer = None
        self._freed = 0
        assert self._trim is not None
        threading.Thread(target=self._trim, name="malloc_trim", daemon=True).start()
