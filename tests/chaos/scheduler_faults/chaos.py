"""Chaos test: faults of every kind under load, then a time without faults, then the checks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.chaos.scheduler_faults.chaos_cluster import ChaosCluster, open_cluster
from tests.chaos.scheduler_faults.faults import Call, CallKind, FaultCounter, FaultKind
from tests.chaos.scheduler_faults.history import write_history
from tests.chaos.scheduler_faults.invariants import find_leaks, find_violations
from tests.chaos.scheduler_faults.load import Load
from tests.chaos.scheduler_faults.objects import node_of
from tests.chaos.scheduler_faults.observer import read_objects
from tests.chaos.scheduler_faults.random_faults import Mode, RandomFaults
from tests.chaos.scheduler_faults.replicas import LEASE_SECONDS, NAMES, Replica
from tests.chaos.scheduler_faults.servers import Server
from tests.chaos.scheduler_faults.small_cluster import create_cluster
from tests.waiting import until

#: Everything that can happen, dealt in random order again and again.
EVENTS = (
    *(mode.value for mode in Mode if mode is not Mode.CALM),
    "kill leader",
    "kill both",
    "pause leader",
    "restart server",
    "cut watches",
    "stall watches",
    "expire watches",
)
#: A short form, with what is most likely to find something.
FEW_EVENTS = (
    Mode.MIXED.value,
    Mode.UNDOING.value,
    "restart server",
    Mode.LEASE_LOST.value,
    "stall watches",
    "pause leader",
)
#: How long another leader is waited for; if there is none by then, things go on all the same.
_LEADER_SECONDS = 15.0


@dataclass
class Report:
    """Actions and findings of one run."""

    seed: int
    counter: FaultCounter
    created: int = 0
    bound: int = 0
    changes: int = 0
    gaps: int = 0
    ended: int = 0
    seconds: float = 0.0
    violations: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Return a readable summary."""
        return [
            f"seed {self.seed}: {self.counter.total} faults in {self.seconds:.0f} s",
            *self.counter.lines(),
            f"pods created {self.created}, bound {self.bound}",
            f"changes observed {self.changes}, watches not resumed {self.gaps}",
            f"schedulers that ended by themselves and were restarted: {self.ended}",
            f"violations: {len(self.violations)}",
            *self.violations[:40],
        ]


async def run_chaos(
    server: Server,
    directory: Path,
    *,
    seed: int,
    faults: int,
    events: Sequence[str] = EVENTS,
    patience: float = 120,
) -> Report:
    """Inject a number of faults, wait until the cluster settles, and report every violation."""
    began = time.monotonic()
    async with open_cluster(server, directory, create_cluster) as cluster:
        report = Report(seed, cluster.proxy.counter)
        load = Load(cluster.client, Random(seed))
        working = asyncio.create_task(load.run())
        try:
            await cluster.replicas.await_leader(patience)
            await Chaos(cluster, Random(seed + 1), events).run(faults)
            if working.done():
                working.result()
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
        await cluster.proxy.drained(patience)
        report.violations += await _settle(cluster, load, patience)
        report.violations += await _find_leaked_room(cluster, load, patience)
        await cluster.observer.catch_up(patience)
        write_history(cluster.observer.changes, directory / "history.jsonl")
        report.violations += [str(finding) for finding in cluster.observer.findings()]
        report.violations += cluster.replicas.problems() + server.problems()
        report.created, report.bound = load.counts["created"], len(load.bound)
        report.changes, report.gaps = len(cluster.observer.changes), cluster.observer.gaps
        report.ended = sum(replica.ended for replica in cluster.replicas.by_name.values())
    report.seconds = time.monotonic() - began
    return report


class Chaos:
    """Injector of faults, until their number is reached."""

    def __init__(self, cluster: ChaosCluster, dice: Random, events: Sequence[str] = EVENTS) -> None:
        self._events = events
        self._stage = cluster
        self._dice = dice
        self._random = RandomFaults(Random(dice.random()))
        self._deck: list[str] = []

    async def run(self, faults: int) -> None:
        """Inject at least this number of faults, and every kind at least once."""
        cluster = self._stage
        cluster.proxy.choose = self._random.choose
        dealt = 0
        while cluster.proxy.counter.total < faults or dealt < len(self._events):
            await self._deal()
            dealt += 1
        self._random.mode = Mode.CALM
        for replica in cluster.replicas.by_name.values():
            replica.resume()

    async def _deal(self) -> None:
        if not self._deck:
            self._deck = self._dice.sample(self._events, len(self._events))
        card = self._deck.pop()
        modes = {mode.value: mode for mode in Mode}
        if card in modes:
            leader = await self._stage.replicas.leader()
            self._random.victim = leader.name if leader is not None else self._dice.choice(NAMES)
            self._random.mode = modes[card]
            lasting = {Mode.LEASE_LOST: 1.5 * LEASE_SECONDS, Mode.UNDOING: 2.0}.get(modes[card], 0.5)
            await asyncio.sleep(lasting + self._dice.random() * 2)
            if modes[card] not in (Mode.LEASE_LOST, Mode.UNDOING):
                return
            self._random.mode = self._dice.choice((Mode.CALM, Mode.SLOW, Mode.MIXED))
            if modes[card] is Mode.UNDOING:  # the next leader finds claims that are about to be released
                await self._happen("kill leader")
        else:
            await self._happen(card)
        await self._await_work()
        await asyncio.sleep(self._dice.random())

    async def _await_work(self) -> None:
        """Wait until a leader has bound a pod."""
        cluster, written = self._stage, asyncio.Event()

        def note(call: Call) -> None:
            if call.kind is CallKind.BINDING:
                written.set()

        cluster.proxy.seen = note
        with suppress(TimeoutError):
            async with asyncio.timeout(_LEADER_SECONDS):
                await written.wait()

    async def _happen(self, card: str) -> None:
        replicas, counter = self._stage.replicas, self._stage.proxy.counter
        leader = await replicas.leader() or replicas[self._dice.choice(NAMES)]
        what, _, whom = card.partition(" ")
        match what:
            case "kill":
                for replica in [leader] if whom == "leader" else list(replicas.by_name.values()):
                    counter.add(FaultKind.SCHEDULER_KILLED)
                    await self._kill(replica)
            case "pause":
                await self._pause(leader)
            case "restart":
                if self._stage.server.can_restart:
                    counter.add(FaultKind.SERVER_KILLED)
                    await asyncio.to_thread(self._stage.server.restart)
            case _:
                self._disturb(what, leader.name if self._dice.random() < 0.7 else self._dice.choice(NAMES))

    async def _kill(self, replica: Replica) -> None:
        await replica.kill()
        await asyncio.sleep(self._dice.random() * self._dice.choice((0.1, 1.0)))
        await replica.start()

    async def _pause(self, leader: Replica) -> None:
        """Stop the leader until another one has its lease, or at least until it has expired."""
        if not leader.process.is_running():
            return
        self._stage.proxy.counter.add(FaultKind.SCHEDULER_PAUSED)
        leader.pause()
        await asyncio.sleep(LEASE_SECONDS)
        with suppress(TimeoutError):
            await self._stage.replicas.await_leader(_LEADER_SECONDS, other_than=leader)
        await asyncio.sleep(self._dice.random())
        leader.resume()

    def _disturb(self, what: str, client: str) -> None:
        watches = self._stage.proxy.watches
        for resource in self._dice.sample(("pods", "resourceclaims", "nodes"), self._dice.randint(2, 3)):
            match what:
                case "cut":
                    watches.cut(client, resource)
                case "stall":
                    watches.stall(client, resource, 0.5 + 4 * self._dice.random())
                case "expire":
                    watches.expire(client, resource)
        if what == "expire":
            watches.expiring[client] = self._dice.randint(0, 2)


# -- afterwards


async def _settle(cluster: ChaosCluster, load: Load, patience: float) -> list[str]:
    """Wait until nothing unused is held and return the problems that remain on timeout."""

    async def find_problems() -> list[str]:
        for tree in await load.list_pods():
            if tree["metadata"].get("deletionTimestamp"):
                await load.delete(tree, grace=0)
        objects = await read_objects(cluster.client)
        return [f"at rest: {each}" for each in (*find_violations(objects), *find_leaks(objects))]

    with suppress(AssertionError):
        await until(find_problems, lambda problems: not problems, seconds=patience)
    return await find_problems()


async def _find_leaked_room(cluster: ChaosCluster, load: Load, patience: float) -> list[str]:
    """Empty the cluster, then allocate every device: leaked devices leave a pod pending."""
    await load.delete_all()
    problems = await _settle(cluster, load, patience)
    names = set(await load.fill())

    async def pending() -> set[str]:
        return names - {tree["metadata"]["name"] for tree in await load.list_pods() if node_of(tree)}

    with suppress(AssertionError):
        await until(pending, lambda found: not found, seconds=patience)
    return problems + [
        f"pod {name} is pending although all devices are free" for name in sorted(await pending())
    ]
