"""Clocks, identifiers and random numbers of the simulation, in place of those of the machine.

`install` replaces functions of `time`, `uuid` and `random` before any module of the product is imported,
because many of them are default arguments. Outside a simulated process they are the machine's.
"""

from __future__ import annotations

import datetime as real_datetime
import random
import sys
import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.simulation.loop import Process

#: Wall time at which every case starts.
EPOCH = 1_800_000_000.0


class Running:
    """The process whose code runs now, if a case is being simulated."""

    process: Process | None = None
    #: Source of identifiers and of the seeds of unseeded random numbers.
    dice: random.Random = random.Random(0)


_RealRandom = random.Random


def install() -> None:
    """Replace the functions; call it before the product is imported."""
    _replace("monotonic", lambda process: process.monotonic())
    _replace("perf_counter", lambda process: process.spend())
    _replace("time", lambda process: process.wall())
    monotonic_ns, time_ns, clock = time.monotonic_ns, time.time_ns, time.clock_gettime

    def virtual_monotonic_ns() -> int:
        process = Running.process
        return monotonic_ns() if process is None else int(process.monotonic() * 1e9)

    def virtual_time_ns() -> int:
        process = Running.process
        return time_ns() if process is None else int(process.wall() * 1e9)

    def virtual_clock_gettime(which: int) -> float:
        process = Running.process
        return clock(which) if process is None else process.uptime()

    time.monotonic_ns, time.time_ns = virtual_monotonic_ns, virtual_time_ns
    time.clock_gettime = virtual_clock_gettime
    real_uuid4 = uuid.uuid4

    def virtual_uuid4() -> uuid.UUID:
        if Running.process is None:
            return real_uuid4()
        return uuid.UUID(int=Running.dice.getrandbits(128), version=4)

    uuid.uuid4 = virtual_uuid4

    class VirtualRandom(_RealRandom):
        """Random numbers whose default seed is the case's."""

        def __new__(cls, *arguments: Any) -> VirtualRandom:
            return super().__new__(cls)

        def __init__(self, seed: Any = None) -> None:
            if seed is None and Running.process is not None:
                seed = Running.dice.getrandbits(64)
            super().__init__(seed)

    random.Random = VirtualRandom  # type: ignore[assignment, misc]


def _replace(name: str, read: Callable[[Process], float]) -> None:
    real = getattr(time, name)

    def virtual() -> float:
        process = Running.process
        return float(real()) if process is None else read(process)

    setattr(time, name, virtual)


class VirtualDatetime(real_datetime.datetime):
    """`datetime` whose `now` is the wall clock of the running process."""

    @classmethod
    def now(cls, tz: real_datetime.tzinfo | None = None) -> VirtualDatetime:
        return cls.fromtimestamp(time.time(), tz)


def replace_datetime() -> None:
    """Give all imported modules of the product the wall clock; call it after they were imported."""
    for name, module in list(sys.modules.items()):
        if name.startswith("plimsoll.") and getattr(module, "datetime", None) is real_datetime.datetime:
            module.datetime = VirtualDatetime  # type: ignore[attr-defined]
