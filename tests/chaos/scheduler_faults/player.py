"""Player of scripts of the simulator: real processes go through what a simulated case went through."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import subprocess
import sys
import time
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from plimsoll.client.endpoints import PODS
from plimsoll.errors import ApiError
from tests.chaos.scheduler_faults.chaos_cluster import ChaosCluster, open_cluster
from tests.chaos.scheduler_faults.end_state import find_differences, summarize
from tests.chaos.scheduler_faults.faults import Call, CallKind, Fault
from tests.chaos.scheduler_faults.history import write_history
from tests.chaos.scheduler_faults.invariants import find_leaks, find_violations
from tests.chaos.scheduler_faults.objects import Tree
from tests.chaos.scheduler_faults.observer import read_objects
from tests.chaos.scheduler_faults.replicas import Replica
from tests.chaos.scheduler_faults.servers import Server
from tests.chaos.scheduler_faults.small_cluster import NS, create_cluster
from tests.chaos.scheduler_load import insist
from tests.simulation.faults import FaultKind
from tests.simulation.script import CONTROLLERS, Step, Target, read_script, target_of
from tests.waiting import DEADLINE, until

#: How often pods that are being deleted are removed, as by kubelets.
_KUBELET_SECONDS = 0.25
#: How often all objects are read until they are as they should be.
_POLL_SECONDS = 0.3


@dataclass
class Report:
    """Actions and findings of one script."""

    #: Faults of requests in the script.
    scripted: int = 0
    hit: int = 0
    injected: Counter[str] = field(default_factory=Counter)
    created: int = 0
    placed: int = 0
    changes: int = 0
    gaps: int = 0
    ended: int = 0
    seconds: float = 0.0
    violations: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Return a readable summary."""
        return [
            f"{self.injected.total()} faults in {self.seconds:.0f} s, {self.hit} of {self.scripted} scripted "
            "requests were hit",
            *(f"{count:6d}  {name}" for name, count in sorted(self.injected.items())),
            f"pods created {self.created}, placed {self.placed}",
            f"changes observed {self.changes}, watches not resumed {self.gaps}",
            f"processes that ended by themselves and were restarted: {self.ended}",
            f"violations and differences: {len(self.violations)}",
            *self.violations[:40],
        ]


def record_script(seed: int, seconds: float) -> list[Step]:
    """Simulate a case, in a process because its clocks are virtual; return its script."""
    command = [sys.executable, "-m", "tests.simulation", "--script", f"--seed={seed}", f"--seconds={seconds}"]
    environment = os.environ | {"PYTHONHASHSEED": "0"}
    where = Path(__file__).parents[3]
    done = subprocess.run(command, env=environment, cwd=where, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    return read_script(done.stdout)


async def play(server: Server, directory: Path, script: list[Step], *, patience: float = DEADLINE) -> Report:
    """Play a script; return what was done, and every violation and difference."""
    began = time.monotonic()
    async with open_cluster(server, directory, create_cluster) as cluster:
        player = Player(cluster, script, patience)
        await player.start()
        await player.run()
        await cluster.observer.catch_up(patience)
        write_history(cluster.observer.changes, directory / "history.jsonl")
        report = player.report
        report.violations += [str(finding) for finding in cluster.observer.findings()]
        report.violations += cluster.replicas.problems() + server.problems()
        report.injected.update({kind.value: count for kind, count in cluster.proxy.counts.items()})
        pods = [change.tree for change in cluster.observer.changes if change.kind == "pods"]
        report.placed = len({tree["metadata"]["uid"] for tree in pods if tree["spec"].get("nodeName")})
        report.changes, report.gaps = len(cluster.observer.changes), cluster.observer.gaps
        report.ended = sum(replica.ended for replica in cluster.replicas.all())
    report.seconds = time.monotonic() - began
    return report


class ScriptedFaults:
    """Faults of requests by their purpose; see `tests.simulation.script`."""

    def __init__(self, cluster: ChaosCluster, steps: list[Step]) -> None:
        self._cluster = cluster
        self._by_number: dict[tuple[Target, int], Fault] = {}
        self._next: dict[str, list[Fault]] = defaultdict(list)
        self._calls: Counter[Target] = Counter()
        #: Number of requests that were hit.
        self.hit = 0
        for step in steps:
            if step.target is not None and step.number:
                self._by_number[step.target, step.number] = _fault_of(step)

    def add(self, step: Step) -> None:
        """Let a fault hit the next call for the lease."""
        assert step.target is not None
        self._next[step.target.who].append(_fault_of(step))

    def choose(self, call: Call) -> Fault | None:
        fault = self._choose(call)
        self.hit += fault is not None
        return fault

    def _choose(self, call: Call) -> Fault | None:
        if call.kind is CallKind.LEASE and call.client != CONTROLLERS:
            faults = self._next[self._cluster.role_of(call.client)]
            return faults.pop(0) if faults else None
        target = target_of(call.client, call.method, call.path, watch=call.kind is CallKind.WATCH)
        self._calls[target] += 1
        return self._by_number.get((target, self._calls[target]))


def _fault_of(step: Step) -> Fault:
    return Fault(FaultKind[step.fault], step.seconds, step.status)


class Player:
    """Player of one script on a cluster."""

    def __init__(self, cluster: ChaosCluster, script: list[Step], patience: float) -> None:
        self._cluster = cluster
        self._script = script
        self._patience = patience
        self._server_lock = asyncio.Lock()
        self._faults = ScriptedFaults(cluster, script)
        self.report = Report(scripted=sum(step.do == "fault" for step in script))

    async def start(self) -> None:
        """Start all processes, so that scheduler `a` leads."""
        self._cluster.proxy.choose = self._faults.choose
        cluster = self._cluster
        for replica in cluster.replicas.all():
            await replica.start()
            await until(functools.partial(self._has_synced, replica.name), seconds=self._patience)
            if replica.name == "a":
                await cluster.replicas.await_leader(self._patience)

    async def _has_synced(self, client: str) -> bool:
        return "resourceclaims" in self._cluster.proxy.watches.resources(client)

    async def run(self) -> None:
        """Play all steps: those of objects one after the other, those of processes beside them."""
        loop = asyncio.get_running_loop()
        calm = next(number for number, step in enumerate(self._script) if step.do == "calm")
        kubelet = asyncio.create_task(self._finish_deletions())
        began = loop.time()
        try:
            async with asyncio.TaskGroup() as group:
                for step in self._script[:calm]:
                    await asyncio.sleep(max(0.0, began + step.at - loop.time()))
                    if step.do in ("create", "delete"):
                        await self._change_pod(step)
                    elif step.do != "fault":
                        group.create_task(self._disturb(step))
                    elif not step.number:
                        self._faults.add(step)
            await self._end_faults()
            for step in self._script[calm + 1 :]:
                if step.do == "state":
                    await self._reach(step.tree)
                else:
                    await self._change_pod(step)
        finally:
            kubelet.cancel()
            await asyncio.gather(kubelet, return_exceptions=True)

    # -- pods

    async def _change_pod(self, step: Step) -> None:
        client = self._cluster.client
        if step.do == "delete":
            await insist(lambda: client.delete(PODS, step.name, NS, grace=step.grace), 404)
            return
        self.report.created += 1
        name = step.tree["metadata"]["name"]
        # The kubelet may still have to remove an earlier pod of this name.
        while await insist(lambda: client.create(PODS, step.tree, NS), 409) is None:
            pod = await insist(lambda: client.get(PODS, name, NS), 404)
            if pod is not None and not pod["metadata"].get("deletionTimestamp"):
                return  # an attempt whose response was lost
            await asyncio.sleep(_KUBELET_SECONDS / 5)

    async def _finish_deletions(self) -> None:
        """Remove pods that are being deleted, as kubelets do."""
        client = self._cluster.client
        while True:
            await asyncio.sleep(_KUBELET_SECONDS)
            with suppress(ApiError):  # of a server that is down, or a pod that has gone
                for raw in (await client.list(PODS, NS)).items:
                    meta = json.loads(raw)["metadata"]
                    if meta.get("deletionTimestamp"):
                        await client.delete(PODS, meta["name"], NS, uid=meta["uid"], grace=0)

    # -- faults of processes and watches

    async def _disturb(self, step: Step) -> None:
        if step.do == "restart":
            async with self._server_lock:
                if self._cluster.server.can_restart:
                    await asyncio.to_thread(self._cluster.server.restart, step.seconds)
                    self.report.injected["server restarted"] += 1
        elif step.do in ("kill", "pause"):
            replica = self._find(step.who)
            if replica is not None:
                self.report.injected[f"{step.do} {step.who}"] += 1
                await self._stop(replica, step)
        else:
            watches = self._cluster.proxy.watches
            for client, resource in step.watches:
                match step.do:
                    case "cut":
                        watches.cut(client, resource)
                    case "hold":
                        watches.stall(client, resource, step.seconds)
                    case "expire":
                        watches.expire(client, resource)

    def _find(self, who: str) -> Replica | None:
        cluster = self._cluster
        if who == CONTROLLERS:
            return cluster.replicas.controllers
        schedulers = cluster.replicas.by_name.values()
        return next((each for each in schedulers if cluster.role_of(each.name) == who), None)

    @staticmethod
    async def _stop(replica: Replica, step: Step) -> None:
        if step.do == "kill":
            await replica.kill()
            await asyncio.sleep(step.seconds)
            await replica.start()
        else:
            replica.pause()
            await asyncio.sleep(step.seconds)
            replica.resume()

    # -- rest

    async def _end_faults(self) -> None:
        """End all faults and wait until nothing unused is held."""
        cluster = self._cluster
        cluster.proxy.choose = lambda call: None
        self.report.hit = self._faults.hit
        await cluster.proxy.drained(self._patience)
        await self._reach(None)

    async def _reach(self, expected: Tree | None) -> None:
        """Wait until nothing is wrong and the state is that of the simulator; report what is not so."""
        with suppress(AssertionError):
            await until(
                lambda: self._find_problems(expected),
                lambda found: not found,
                seconds=self._patience,
                pause=_POLL_SECONDS,
            )
        self.report.violations += await self._find_problems(expected)

    async def _find_problems(self, expected: Tree | None = None) -> list[str]:
        objects = await read_objects(self._cluster.client)
        found = [f"at rest: {each}" for each in (*find_violations(objects), *find_leaks(objects))]
        return found + list(find_differences(expected, summarize(objects)) if expected else ())
