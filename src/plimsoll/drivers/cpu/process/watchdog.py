"""Watchdog: ends a process whose event loop hangs, so that it is started again.

A hung driver cannot pin containers, and a runtime that waits for it in vain starts them unpinned. `Watchdog`
runs in a thread. It counts its own ticks instead of seconds, so that a stopped process or a suspended machine
is not mistaken for a hang, and a loop that is merely short of CPU time is not one either.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

#: Ticks without a heartbeat that count as a hang, and seconds between them.
TICKS, INTERVAL = 5, 2.0
#: CPU time after which a loop that is running counts as endless.
_ENDLESS_SECONDS = 5.0
#: Exit code of sysexits.h for an internal error.
_EXIT_CODE = 70


def is_waiting_for_cpu(thread: int, tasks: Path = Path("/proc/self/task")) -> bool:
    """Report whether a thread is runnable: it makes progress as soon as it gets CPU time."""
    try:
        return (tasks / str(thread) / "stat").read_text().rpartition(")")[2].split()[0] == "R"
    except (OSError, IndexError):
        return False


def _exit() -> None:
    print("the event loop hangs: exiting, to be started again", file=sys.stderr)  # noqa: T201
    faulthandler.dump_traceback(all_threads=True)
    os._exit(_EXIT_CODE)


class Watchdog:
    """Watches the event loop on which it is started; `on_hang` is called in another thread."""

    def __init__(
        self,
        *,
        ticks: int = TICKS,
        interval: float = INTERVAL,
        on_hang: Callable[[], None] = _exit,
        waits_for_cpu: Callable[[int], bool] = is_waiting_for_cpu,
        cpu_time: Callable[[], float] = time.process_time,
    ) -> None:
        self._ticks, self._interval = ticks, interval
        self._on_hang = on_hang
        self._waits_for_cpu, self._cpu_time = waits_for_cpu, cpu_time
        #: How often the event loop has run the timer.
        self.beats = 0
        self._timer: asyncio.TimerHandle | None = None
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start watching the running event loop."""
        self._beat(asyncio.get_running_loop())
        self._thread = threading.Thread(
            target=self._watch, args=(threading.get_native_id(),), name="watchdog", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        self._end.set()
        if self._timer is not None:
            self._timer.cancel()
        if self._thread is not None:
            self._thread.join()

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        self.beats += 1
        self._timer = loop.call_later(self._interval, self._beat, loop)

    def _watch(self, loop_thread: int) -> None:
        seen, missed, used = self.beats, 0, self._cpu_time()
        while not self._end.wait(self._interval):
            if self.beats != seen:
                seen, missed, used = self.beats, 0, self._cpu_time()
                continue
            missed += 1
            is_endless = self._cpu_time() - used >= _ENDLESS_SECONDS
            if missed >= self._ticks and (is_endless or not self._waits_for_cpu(loop_thread)):
                self._on_hang()
                return
