"""Long chaos run of the CPU driver as a command, with disks that fail, stopped processes and hotplug.

    python -m tests.chaos.cpu_driver --seed 1 --acts 500 [--real]

Acts besides those of `cpu_faults`: driver or agent (with its runtime) stopped and continued, a full disk
below the checkpoint, a read-only CDI directory, jumps of the wall clock of all processes (needs a C compiler)
and (not with `--real`) a CPU that goes offline and comes back. Small file systems are mounted for it, so it
needs root. A watcher of its own samples the containers all the time. At the end no CPU may be lost. Prints
the acts, the samples and their pace; the exit code is 1 after an overlap.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from random import Random

from plimsoll.api.cpuset import CpuSet
from plimsoll.client import Client
from tests.chaos.clock_jumps import JumpingClock, can_preload, preload_clock
from tests.chaos.cpu_faults import FaultInjector
from tests.chaos.cpu_load import DriverCluster, PodLoad, until_none
from tests.chaos.fast_watcher import FastWatcher
from tests.chaos.small_disk import Disk, mounted
from tests.directories import short_directory
from tests.unit.drivers.cpu.machines import make_machine, switch_off

_SETTLE_EVERY = 20
#: Longer than several steps of the back-off of containers that could not be created.
_SETTLE_SECONDS = 600.0
#: Characters of the logs since the last start that a failure prints.
_LOG_END = 20_000
#: Seconds that the clock jumps: a corrected drift, a wrong time zone, a battery that was empty.
_JUMPS = (-3600.0, -45.0, -1.5, 1.5, 45.0, 3600.0, 86400.0)


class NodeFaults(FaultInjector):
    """Acts on processes, disks and CPUs of the node."""

    def __init__(
        self,
        cluster: DriverCluster,
        load: PodLoad,
        dice: Random,
        *,
        record: Disk,
        cdi: Disk,
        clock: JumpingClock | None,
    ) -> None:
        super().__init__(cluster, load, dice)
        self._record, self._cdi = record, cdi
        more = {
            "driver stopped": lambda: self._pause(cluster.driver.pid),
            "agent stopped": lambda: self._pause(cluster.node.pid),
            "full disk": self._fill_disk,
            "read-only CDI directory": self._lock_cdi,
        }
        if not cluster.real:
            more["CPU offline"] = self._unplug
        if clock is not None:
            more["clock jump"] = lambda: self._jump(clock)
        self._acts |= more
        self._wanted = [*self._acts, "driver", "agent"]

    @property
    def count(self) -> int:
        return sum(self.done.values())

    async def round(self, *, keep: str) -> None:
        await super().round(keep=keep)
        self.supervise()

    def supervise(self) -> None:
        """Start processes again that have ended by themselves, as a kubelet or systemd does."""
        for name, each in (("driver", self.cluster.driver), ("agent", self.cluster.node)):
            if not each.is_running():
                print(f"the {name} has ended:\n{each.text()[-1500:]}", flush=True)  # noqa: T201
                self.done[f"{name} ended by itself"] += 1
                each.start()

    def _wait(self) -> None:
        time.sleep(self.dice.random() * self.dice.choice((0.2, 1.0, 2.5)))

    def _pause(self, pid: int) -> None:
        os.kill(pid, signal.SIGSTOP)
        try:
            self._wait()
        finally:
            os.kill(pid, signal.SIGCONT)

    def _fill_disk(self) -> None:
        self._record.fill()
        try:
            self._wait()
        finally:
            self._record.empty()

    def _lock_cdi(self) -> None:
        try:
            self._cdi.lock()
        except AssertionError:  # a file is being written
            return
        try:
            self._wait()
        finally:
            self._cdi.unlock()

    def _jump(self, clock: JumpingClock) -> None:
        """Let the clock jump there and back."""
        clock.jump(self.dice.choice(_JUMPS))
        try:
            self._wait()
        finally:
            clock.jump(0)

    def _unplug(self) -> None:
        """Switch a CPU off that no claim has, and on again once the driver has noticed."""
        taken = CpuSet.parse(",".join(self.cluster.recorded().values()))
        free = sorted(self.cluster.every - taken)
        topology = make_machine(sockets=2, cores=4, threads=2)
        off = switch_off(topology, CpuSet.of_mask(1 << self.dice.choice(free))) if free else topology
        self.cluster.set_machine(off)
        try:
            self._wait()
        finally:
            self.cluster.set_machine(topology)


async def play(
    cluster: DriverCluster, record: Disk, cdi: Disk, clock: JumpingClock | None, *, acts: int, seed: int
) -> str:
    """Run this many acts and return their summary; raises AssertionError if the node does not settle."""
    dice = Random(seed)
    async with Client.connect(cluster.server.config()) as client:
        room = len(cluster.every) - (2 if len(cluster.every) > 4 else 1)
        load = PodLoad(client, dice, room, devices=1 if cluster.real else 2)
        faults = NodeFaults(cluster, load, dice, record=record, cdi=cdi, clock=clock)
        await load.furnish()
        await load.add("plain")
        neighbour = next(iter(load.alive))

        async def settled() -> list[str]:
            faults.supervise()
            held, problems = await load.look()
            return problems or await asyncio.to_thread(cluster.problems, held)

        await until_none(settled, seconds=_SETTLE_SECONDS)
        rounds = 0
        while faults.count < acts:
            await faults.round(keep=neighbour)
            rounds += 1
            if rounds % _SETTLE_EVERY == 0:
                await until_none(settled, seconds=_SETTLE_SECONDS)
                print(f"{faults.count} acts, {len(cluster.watch.wrongs)} violations", flush=True)  # noqa: T201
        for name in [each for each in load.alive if each != neighbour]:
            await load.remove(name)
        await until_none(settled, seconds=_SETTLE_SECONDS)
        (left,) = cluster.watch.look()
        assert left.cpus == cluster.every, f"CPUs lost: {cluster.every - left.cpus}"
        await load.remove(neighbour)
        return f"{faults.count} acts ({faults.summary()}), {load.made} pods, {load.claims_made} claims"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--acts", type=int, default=500)
    parser.add_argument(
        "--real", action="store_true", help="the CPUs of this machine, instead of 16 simulated"
    )
    options = parser.parse_args()
    with ExitStack() as stack:
        root = stack.enter_context(short_directory())
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        clock = preload_clock(directory) if can_preload() else None
        cluster = DriverCluster(root, directory, real=options.real)
        cdi = stack.enter_context(mounted(cluster.cdi))
        record = stack.enter_context(mounted(cluster.record.parent))
        cluster.watch = watch = FastWatcher(cluster.node_root, real=options.real, every=cluster.every)
        stack.callback(cluster.close)
        cluster.start()
        try:
            summary = asyncio.run(play(cluster, record, cdi, clock, acts=options.acts, seed=options.seed))
        except AssertionError:
            for each in (cluster.driver, cluster.node):
                print(f"{each.log.name}:\n{each.text()[-_LOG_END:]}", flush=True)  # noqa: T201
            raise
        watch.stop()
        median, fast = watch.gaps
        print(  # noqa: T201
            f"seed {options.seed}: {summary}; {watch.looks} samples, median {median:.1f} ms apart "
            f"({fast}% below 10 ms), {len(watch.wrongs)} violations, 0 CPUs lost"
        )
        for wrong in watch.wrongs:
            print(wrong)  # noqa: T201
        sys.exit(1 if watch.wrongs or watch.error else 0)


if __name__ == "__main__":
    main()
