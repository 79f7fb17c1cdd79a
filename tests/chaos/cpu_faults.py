"""Fault injection on a node with a CPU driver: kills at any time, also during Prepare, and damaged files.

The record and the CDI files are never both lost between two starts of the driver.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from tests.chaos.cpu_load import DriverCluster, PodLoad
from tests.chaos.forked_node import ForkedCpuDriver, ForkedNode
from tests.waiting import wait_until

#: Time to wait for a write that may not come.
_MOST_SECONDS = 5.0


class FaultInjector:
    """Injector of pod changes and faults."""

    def __init__(self, cluster: DriverCluster, load: PodLoad, dice: Random, acts: Sequence[str] = ()) -> None:
        """`acts` are run in turn; by default all, driver and agent twice."""
        self.cluster, self.load, self.dice = cluster, load, dice
        self.done: Counter[str] = Counter()
        self._acts: dict[str, Callable[[], None]] = {
            "driver": self._kill_driver,
            "driver twice": self._kill_driver_twice,
            "agent": self._kill_agent,
            "server": self._kill_server,
            "driver and agent": self._kill_both,
            "all": self._kill_all,
            "lost CDI files": self._lose_files,
            "lost CDI files, alive": self._lose_files_alive,
            "damaged record": self._damage_record,
        }
        self._wanted = [*acts] or [*self._acts, "driver", "agent"]
        self._bag: list[str] = []

    def summary(self) -> str:
        return ", ".join(f"{name}: {count}" for name, count in sorted(self.done.items()))

    async def round(self, *, keep: str) -> None:
        """Add and remove some pods and inject one fault."""
        for _ in range(self.dice.randint(1, 3)):
            await self.load.add()
            if self.dice.random() < 0.6:
                await self.load.remove(keep=keep)
        if self.dice.random() < 0.4:
            await asyncio.to_thread(self._await_write)
            await asyncio.to_thread(self._kill_driver)
            self.done["driver while it writes"] += 1
        else:
            await asyncio.sleep(self.dice.random() * self.dice.choice((0.1, 0.6, 1.5)))
        if not self._bag:
            self._bag = [*self._wanted]
            self.dice.shuffle(self._bag)
        act = self._bag.pop()
        await asyncio.to_thread(self._acts[act])
        self.done[act] += 1

    # -- acts

    def _kill_driver(self) -> None:
        self.cluster.driver.kill()
        self.cluster.driver.start()

    def _kill_driver_twice(self) -> None:
        self._kill_driver()
        time.sleep(self.dice.random() * 0.5)
        self._kill_driver()

    def _kill_agent(self) -> None:
        self.cluster.node.kill()
        if self.dice.random() < 0.3:
            time.sleep(self.dice.random())
        self.cluster.node.start()

    def _kill_server(self) -> None:
        self.cluster.server.kill()
        time.sleep(self.dice.random() * 0.3)
        self.cluster.server.start()

    def _kill_both(self) -> None:
        both: list[ForkedCpuDriver | ForkedNode] = [self.cluster.driver, self.cluster.node]
        self.dice.shuffle(both)
        for each in both:
            each.kill()
        for each in reversed(both):
            each.start()

    def _kill_all(self) -> None:
        cluster = self.cluster
        for each in (cluster.driver, cluster.node, cluster.server):
            each.kill()
        cluster.server.start()
        cluster.driver.start()
        cluster.node.start()

    def _lose_files(self) -> None:
        self.cluster.driver.kill()
        self._delete()
        self.cluster.driver.start()
        self.cluster.driver.await_text("plimsoll.driver started")

    def _lose_files_alive(self) -> None:
        """Delete CDI files while the driver runs; it must restore them."""
        cluster = self.cluster
        cluster.driver.await_text("plimsoll.driver started")
        before = Counter(cluster.files())
        self._delete()

        def missing() -> list[str]:
            return [uid for uid in before - Counter(cluster.files()) if uid in cluster.recorded()]

        wait_until(missing, lambda found: not found, context="CDI files that did not come back")

    def _delete(self) -> None:
        for path in self.cluster.cdi.glob("*"):
            if self.dice.random() < 0.7:
                path.unlink(missing_ok=True)

    def _damage_record(self) -> None:
        cluster = self.cluster
        cluster.driver.await_text("plimsoll.driver started")  # with files for all that is on record
        cluster.driver.kill()
        path = cluster.record
        if path.exists():
            _damage(path, self.dice)
        cluster.driver.start()
        cluster.driver.await_text("plimsoll.driver started")

    def _await_write(self) -> None:
        """Wait until the driver writes its checkpoint or a file, and a random time more."""
        seen = self._written()
        deadline = time.monotonic() + _MOST_SECONDS
        while self._written() == seen and time.monotonic() < deadline:
            time.sleep(0.0005)
        time.sleep(self.dice.choice((0.0, 0.0, 0.001, 0.004, 0.02)))

    def _written(self) -> tuple[object, ...]:
        record = self.cluster.record
        found: list[object] = []
        for path in (record, record.with_name(f".{record.name}.tmp"), self.cluster.cdi):
            try:
                stat = os.stat(path)
                found.append((stat.st_ino, stat.st_mtime_ns))
            except OSError:
                found.append(None)
        return tuple(found)


def _damage(path: Path, dice: Random) -> None:
    data = bytearray(path.read_bytes())
    match dice.choice(("cut", "flip", "nonsense", "empty", "gone")):
        case "cut":
            data = data[: dice.randrange(len(data))]
        case "flip":
            data[dice.randrange(len(data))] ^= 1 << dice.randrange(7)
        case "nonsense":
            data = bytearray(b'{"kind": "CpuHoldings", "version": 1, "body": []}')
        case "empty":
            data = bytearray()
        case "gone":
            path.unlink()
            return
    path.write_bytes(data)
