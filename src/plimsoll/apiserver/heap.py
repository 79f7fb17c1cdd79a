"""Heap settings: which freed memory is reused, and which returns to the operating system.

glibc keeps freed blocks for reuse, so the memory of a burst of large requests would stay resident for as long
as the process runs. `HeapTrimmer` calls malloc_trim on a thread once enough memory has been freed, at most
every few seconds.

The buffers of one list, on the other hand, are as large as the list, and glibc may return each of them to the
system as soon as it is freed; the next list then touches new pages, which takes longer than copying them.
`reuse_buffers` keeps them. With other C libraries neither does anything.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

#: Freed bytes that are worth a trim, and seconds between two trims.
MIN_FREED_BYTES = 16 << 20
INTERVAL_SECONDS = 5.0


#: Parameters of mallopt (malloc.h), with the size of the buffers and the free memory that glibc keeps.
_TRIM_THRESHOLD, _TRIM_BYTES = -1, 16 << 20
_MMAP_THRESHOLD, _MMAP_BYTES = -3, 4 << 20


def find_malloc_trim() -> Callable[[], None] | None:
    """Return glibc's malloc_trim, or None if the C library has none."""
    try:
        import ctypes  # noqa: PLC0415 - some Pythons are built without it

        trim = ctypes.CDLL(None).malloc_trim
    except (ImportError, OSError, AttributeError):
        return None
    trim.argtypes, trim.restype = [ctypes.c_size_t], ctypes.c_int
    return lambda: trim(0)


def reuse_buffers() -> bool:
    """Let glibc reuse the memory of buffers up to 4 MiB, for the whole process; return whether it does."""
    try:
        import ctypes  # noqa: PLC0415 - some Pythons are built without it

        mallopt = ctypes.CDLL(None).mallopt
    except (ImportError, OSError, AttributeError):
        return False
    mallopt.argtypes, mallopt.restype = [ctypes.c_int, ctypes.c_int], ctypes.c_int
    return bool(mallopt(_MMAP_THRESHOLD, _MMAP_BYTES)) and bool(mallopt(_TRIM_THRESHOLD, _TRIM_BYTES))


class HeapTrimmer:
    """Trimmer of the process heap, which runs some time after enough memory has been freed."""

    def __init__(self, trim: Callable[[], None] | None = None) -> None:
        self._trim = trim or find_malloc_trim()
        self._freed = 0
        self.timer: asyncio.TimerHandle | None = None

    def record_freed(self, size: int) -> None:
        """Record that about `size` bytes have been freed."""
        self._freed += size
        if self._freed >= MIN_FREED_BYTES and self.timer is None and self._trim is not None:
            self.timer = asyncio.get_running_loop().call_later(INTERVAL_SECONDS, self._run)

    def close(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _run(self) -> None:
        self.timer = None
        self._freed = 0
        assert self._trim is not None
        threading.Thread(target=self._trim, name="malloc_trim", daemon=True).start()
