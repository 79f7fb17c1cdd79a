"""Watchdog of an event loop, with a clock that the test advances by waiting for ticks."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from plimsoll.drivers.cpu.process.watchdog import Watchdog, is_waiting_for_cpu
from tests.waiting import DEADLINE


def watch_hang(*, waits: bool, cpu: list[float]) -> tuple[bool, int]:
    """Block a loop until a hang is reported, or the thread has ticked often; return what was seen."""
    hung, asked = threading.Event(), 0
    enough = threading.Event()

    def waits_for_cpu(thread: int) -> bool:
        nonlocal asked
        asked += 1
        if asked >= 20:
            enough.set()
        return waits

    def on_hang() -> None:
        hung.set()
        enough.set()

    async def scenario() -> None:
        watchdog = Watchdog(
            ticks=3,
            interval=0.001,
            on_hang=on_hang,
            waits_for_cpu=waits_for_cpu,
            cpu_time=lambda: cpu.pop(0) if len(cpu) > 1 else cpu[0],
        )
        watchdog.start()
        enough.wait(DEADLINE)  # the loop hangs
        watchdog.stop()

    asyncio.run(scenario())
    return hung.is_set(), asked


def test_a_blocked_loop_is_a_hang() -> None:
    assert watch_hang(waits=False, cpu=[0.0])[0]


def test_a_loop_that_waits_for_cpu_time_is_not_a_hang() -> None:
    hung, asked = watch_hang(waits=True, cpu=[0.0])
    assert not hung
    assert asked >= 20


def test_an_endless_loop_is_a_hang() -> None:
    assert watch_hang(waits=True, cpu=[0.0, 1.0, 2.0, 3.0, 9.0])[0]


def test_a_loop_that_runs_is_not_a_hang() -> None:
    hung = threading.Event()

    async def scenario() -> None:
        watchdog = Watchdog(ticks=10_000, interval=0.0005, on_hang=hung.set)
        watchdog.start()
        before = watchdog.beats
        while watchdog.beats < before + 20:
            await asyncio.sleep(0)
        watchdog.stop()

    asyncio.run(scenario())
    assert not hung.is_set()


@pytest.mark.parametrize(("stat", "waits"), [("7 (a) b) R 1", True), ("7 (x) S 1", False), ("", False)])
def test_the_state_of_a_thread(tmp_path: Path, stat: str, waits: bool) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "stat").write_text(stat)
    assert is_waiting_for_cpu(7, tmp_path) is waits
    assert not is_waiting_for_cpu(8, tmp_path)
