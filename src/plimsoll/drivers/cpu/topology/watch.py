"""CPUs that come and go while the driver runs.

Owns `TopologyWatch` and `Machine`, which reads one machine again and again. Promises: only real changes are
told; a look at a machine where nothing happened costs a few small files; a moment in which nothing can be
read is no change, it is said in `error` and tried again; what is read is read in a thread.

The kernel switches a CPU on before all of its files are there. So a change is told when it has been read
twice in the same way, after every change the machine is read some more times, and it is read now and then
even if nothing seems to have happened.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from plimsoll.drivers.cpu.topology.overlay import SysFiles, read_overlay
from plimsoll.drivers.cpu.topology.sysfs import CPUS, read_topology
from plimsoll.drivers.cpu.topology.topology import Topology
from plimsoll.errors import InputError

#: How many times a machine is read after a change until it counts as settled.
SETTLING = 3


class Machine:
    """A machine and the file of its overlay: `read` reads all, `glance` only what changes when CPUs do."""

    def __init__(self, root: Path = Path("/"), overlay: Path | None = None, *, pcie: bool = False) -> None:
        self.root = root
        self.overlay = overlay
        self.pcie = pcie
        self._files = SysFiles(root)

    def read(self) -> Topology:
        """InputError if the overlay cannot be meant or no CPU can be used."""
        return read_topology(self.root, read_overlay(self.overlay) if self.overlay else {}, pcie=self.pcie)

    def glance(self) -> object:
        """Something that is equal as long as no CPU came or went and the overlay is the same file."""
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
    """Looks at a machine again and again.

    DIFF: the Go driver reads the machine when it starts and never again
    (test_problem_hotplug_is_followed_while_the_driver_runs).

    `glance` is a cheap look; without one every look is a whole `read`. `known` is the topology that the
    caller has already; without it the first one read is taken as known. `thorough` is after how many seconds
    the machine is read whatever a glance says. `current` is the last topology, `error` why the last look
    failed (empty: it did not).
    """

    def __init__(
        self,
        read: Callable[[], Topology],
        *,
        every: float = 1.0,
        glance: Callable[[], object] | None = None,
        known: Topology | None = None,
        thorough: float = 60.0,
    ) -> None:
        self.current = known
        self.error = ""
        self.every = every
        self._read = read
        self._glance = glance
        self._looks = max(1, round(thorough / every)) if every > 0 else 1
        self._seen: object = object()  # equal to nothing: the first look reads
        self._settling = 0
        self._idle = 0

    @classmethod
    def of_machine(
        cls, machine: Machine, *, every: float = 1.0, known: Topology | None = None, thorough: float = 60.0
    ) -> TopologyWatch:
        """A watch whose looks are cheap."""
        return cls(machine.read, every=every, glance=machine.glance, known=known, thorough=thorough)

    async def changes(self) -> AsyncIterator[Topology]:
        """Topologies as they change, for ever; the caller cancels."""
        while True:
            if (changed := await asyncio.to_thread(self.look)) is not None:
                yield changed
            await asyncio.sleep(self.every)

    def look(self) -> Topology | None:
        """One look at the machine: its topology if that changed."""
        if not self._must_read():
            return None
        try:
            read = self._read()
            torn = read != self.current and read != self._read()
        except (InputError, OSError) as error:
            self.error = str(error)
            self._settling = SETTLING  # look closely until it can be read again
            return None
        self.error = ""
        if torn:
            self._settling = SETTLING
            return None
        before, self.current = self.current, read
        return read if before is not None and read != before else None

    def _must_read(self) -> bool:
        if self._glance is None:
            return True
        seen = self._glance()
        self._idle += 1
        if seen != self._seen:
            self._seen = seen
            self._settling = SETTLING
        elif self._settling:
            self._settling -= 1
        elif self._idle < self._looks:
            return False
        self._idle = 0
        return True
