"""Watch for CPU hotplug while the driver runs.

Guarantees: only real changes are reported; an unchanged machine costs a few small reads; a failed read is not
a change but sets `error` and is retried; reads of the machine run in a thread.

The kernel brings a CPU online before all of its files exist. So a change is reported after two equal reads,
the machine is read a few more times after every change, and ever more rarely without a visible change: a read
of 512 CPUs takes 80 ms of CPU time.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from plimsoll.common.tasks import sleep_to_tick
from plimsoll.drivers.cpu.topology.overlay import SysFiles, read_overlay
from plimsoll.drivers.cpu.topology.sysfs import CPUS, read_topology
from plimsoll.drivers.cpu.topology.topology import Topology
from plimsoll.errors import InputError

#: Number of reads after a change until the machine counts as settled.
SETTLE_READS = 3
#: Pauses between reads without a visible change double up to this multiple of the first one.
_LONGEST_PAUSE = 16


class MachineReader:
    """Reader of a machine and its overlay: `read` reads all, `fingerprint` only what hotplug changes."""

    def __init__(self, root: Path = Path("/"), overlay: Path | None = None, *, pcie: bool = False) -> None:
        self.root = root
        self.overlay = overlay
        self.pcie = pcie
        self._files = SysFiles(root)

    def read(self) -> Topology:
        """Read the topology; raises InputError if the overlay is invalid or no CPU is usable."""
        return read_topology(self.root, read_overlay(self.overlay) if self.overlay else {}, pcie=self.pcie)

    def fingerprint(self) -> object:
        """Return a value that stays equal as long as no CPU and no overlay file changes."""
        seen: list[object] = []
        for name in ("online", "present", "smt/control"):
            try:
                seen.append(self._files.read(f"{CPUS}/{name}"))
            except OSError as error:
                seen.append(error.errno)
        if self.overlay:
            try:
                stat = os.stat(self.overlay)
                seen.append((stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns))
            except OSError as error:
                seen.append(error.errno)
        return seen


class TopologyWatch:
    """Polls a machine for topology changes.

    DIFF: the Go driver reads the machine once at start
    (test_problem_hotplug_is_followed_while_the_driver_runs).

    `fingerprint` is cheap and changes with the topology; without it every check is a full `read`. `known` is
    the topology that the caller already has; without it the first one read is taken as known. `full_interval`
    is the number of seconds until a read even if the fingerprint stays the same; it doubles with every such
    read without a change. `current` is the last topology, `error` the reason of a failed check, or "".
    """

    def __init__(
        self,
        read: Callable[[], Topology],
        *,
        interval: float = 1.0,
        fingerprint: Callable[[], object] | None = None,
        known: Topology | None = None,
        full_interval: float = 60.0,
    ) -> None:
        self.current = known
        self.error = ""
        self.interval = interval
        self._read = read
        self._fingerprint = fingerprint
        self._first_pause = max(1, round(full_interval / interval)) if interval > 0 else 1
        self._pause = self._first_pause
        self._seen: object = object()  # equal to nothing, so that the first check reads
        self._settle_reads_left = 0
        self._idle = 0

    @classmethod
    def of_machine(
        cls,
        machine: MachineReader,
        *,
        interval: float = 1.0,
        known: Topology | None = None,
    ) -> TopologyWatch:
        """Create a watch with cheap checks."""
        return cls(machine.read, interval=interval, fingerprint=machine.fingerprint, known=known)

    async def changes(self) -> AsyncIterator[Topology]:
        """Yield topologies as they change, until cancelled."""
        while True:
            # The fingerprint is a few files of the kernel: waking a thread up for it would cost more.
            if self._must_read() and (changed := await asyncio.to_thread(self._read_change)) is not None:
                yield changed
            await sleep_to_tick(self.interval)

    def check(self) -> Topology | None:
        """Check once; return the topology if it has changed."""
        return self._read_change() if self._must_read() else None

    def _read_change(self) -> Topology | None:
        try:
            read = self._read()
            torn = read != self.current and read != self._read()
        except (InputError, OSError) as error:
            self.error = str(error)
            self._settle_reads_left = SETTLE_READS  # keep reading until it succeeds
            return None
        self.error = ""
        if torn:
            self._settle_reads_left = SETTLE_READS
            return None
        before, self.current = self.current, read
        if before is None or read == before:
            return None
        self._pause = self._first_pause
        return read

    def _must_read(self) -> bool:
        if self._fingerprint is None:
            return True
        seen = self._fingerprint()
        self._idle += 1
        if seen != self._seen:
            self._seen = seen
            self._settle_reads_left = SETTLE_READS
            self._pause = self._first_pause
        elif self._settle_reads_left:
            self._settle_reads_left -= 1
        elif self._idle < self._pause:
            return False
        else:
            self._pause = min(self._pause * 2, self._first_pause * _LONGEST_PAUSE)
        self._idle = 0
        return True
