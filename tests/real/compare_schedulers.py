"""Random clusters on a real control plane, scheduled by Plimsoll and by kube-scheduler, pod by pod.

For every pod of a random cluster, kube-scheduler decides about a copy of it first; the copy is withdrawn, and
Plimsoll decides about the pod in the same state. So each pair of decisions has the same cluster before it,
however the two differed earlier. Then all pods are created at once for Plimsoll, and both decide about those
that it refuses. An independent checker (`placement_checker.py`) reads the objects after every placement:

- after a placement of Plimsoll it must find nothing;
- a pod that kube-scheduler places must be placed by Plimsoll, unless the checker finds a fault in the
  placement of kube-scheduler: that is the rule by which Plimsoll refuses the pod.

Run by hand: `python -m tests.real.compare_schedulers --seed 1 --clusters 5`. `KUBEBUILDER_ASSETS` names the
directory of etcd, kube-apiserver, kube-scheduler, kube-controller-manager and kubectl.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from plimsoll.client.endpoints import (
    DEVICE_CLASSES,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Endpoint,
)
from plimsoll.client.responses import read_tree
from plimsoll.errors import ApiError
from plimsoll.scheduler.process.configuration import SchedulerSettings
from plimsoll.scheduler.process.run import SchedulerProcess
from tests.chaos.scheduler_faults.objects import ClusterObjects, claim_names
from tests.real.oracle import ON, PROGRAMS, Decision, Oracle, run_oracle
from tests.real.placement_checker import find_faults
from tests.real.programs import missing
from tests.real.random_clusters import NS, RandomCluster, Tree, random_story
from tests.waiting import DEADLINE, until

#: Attempts to agree: either scheduler may decide before it has seen the last change.
ATTEMPTS = 3


@dataclass
class Comparison:
    """Result of one or more clusters."""

    clusters: int = 0
    pods: int = 0
    both: int = 0
    neither: int = 0
    only_ours: int = 0
    together: int = 0  #: pods created at once
    together_placed: int = 0
    #: Pods that only kube-scheduler places, by the fault in its placement.
    refused_by_rule: list[str] = field(default_factory=list)
    #: Pods that only kube-scheduler places, without a fault: a defect of Plimsoll.
    missed: list[str] = field(default_factory=list)
    #: Faults in placements of Plimsoll: a defect of Plimsoll.
    faults: list[str] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        return bool(self.missed or self.faults)

    def lines(self) -> Iterator[str]:
        yield f"{self.clusters} clusters, {self.pods} pairs of decisions"
        yield f"  created at once for Plimsoll: {self.together}, placed: {self.together_placed}"
        yield f"  placed by both: {self.both}, by neither: {self.neither}, only by Plimsoll: {self.only_ours}"
        yield f"  only by kube-scheduler, with a fault: {len(self.refused_by_rule)}"
        yield f"  only by kube-scheduler, without a fault: {len(self.missed)}"
        yield f"  faults in placements of Plimsoll: {len(self.faults)}"
        yield from (f"RULE {text}" for text in self.refused_by_rule)
        yield from (f"MISSED {text}" for text in self.missed)
        yield from (f"FAULT {text}" for text in self.faults)


class SchedulerComparison:
    """One control plane with both schedulers."""

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle
        self._client = oracle.client
        self._copies = 0

    async def compare(self, random_cluster: RandomCluster, result: Comparison) -> None:
        result.clusters += 1
        pods = [*random_cluster.first, *random_cluster.batch]
        await self._oracle.furnish(random_cluster.cluster)
        for tree in pods:
            await self._compare_pod(random_cluster.seed, tree, result)
        await self._oracle.furnish(random_cluster.cluster)
        for tree in await self._place_together(random_cluster.seed, pods, result):
            await self._compare_pod(random_cluster.seed, tree, result)
        await self._oracle.clear()

    async def _place_together(self, seed: int, pods: list[Tree], result: Comparison) -> list[Tree]:
        """Create all pods at once for Plimsoll; withdraw and return those that it refuses."""
        copies = [self._copy(tree, "ours", {"schedulerName": "plimsoll"}) for tree in pods]
        for copy in copies:
            await self._client.create(PODS, copy, NS)
        decisions = [await self._oracle.look(copy["metadata"]["name"]) for copy in copies]
        # A pod may be placed after others; what counts is the last state.
        nodes = await self._oracle.nodes_of_pods()
        result.together += len(pods)
        refused = []
        for tree, decision in zip(pods, decisions, strict=True):
            if not nodes[decision.name]:
                await self._withdraw(decision)
                refused.append(tree)
        result.together_placed += len(pods) - len(refused)
        result.faults += [f"seed {seed}, all at once: {text}" for text in find_faults(await self._objects())]
        return refused

    async def _compare_pod(self, seed: int, tree: Tree, result: Comparison) -> None:
        result.pods += 1
        where = f"seed {seed}, {tree['metadata']['name']}"
        for attempt in range(1, ATTEMPTS + 1):
            theirs, fault = await self._ask_kube_scheduler(tree)
            ours = await self._ask_plimsoll(tree)
            settled = ours.node or not theirs.node or attempt == ATTEMPTS
            if settled:
                break
            await self._withdraw(ours)
        if ours.node:
            result.faults += [f"{where}: {text}" for text in find_faults(await self._objects())]
            result.both += bool(theirs.node)
            result.only_ours += not theirs.node
            return
        await self._withdraw(ours)
        if not theirs.node:
            result.neither += 1
        elif fault:
            result.refused_by_rule.append(
                f"{where}: kube-scheduler {theirs.node}: {fault}; Plimsoll: {ours.why}"
            )
        else:
            result.missed.append(f"{where}: kube-scheduler {theirs.node}, Plimsoll {ours.why}")

    async def _ask_kube_scheduler(self, tree: Tree) -> tuple[Decision, str]:
        """Return the decision about a copy, which is withdrawn, and the first fault in its placement."""
        decision = await self._oracle.decide(self._copy(tree, "kube", {}))
        faults = find_faults(await self._objects(), records=False) if decision.node else []
        await self._withdraw(decision)
        return decision, faults[0] if faults else ""

    async def _ask_plimsoll(self, tree: Tree) -> Decision:
        return await self._oracle.decide(self._copy(tree, "ours", {"schedulerName": "plimsoll"}))

    def _copy(self, tree: Tree, prefix: str, spec: Tree) -> Tree:
        self._copies += 1
        metadata = {**tree["metadata"], "name": f"{prefix}-{tree['metadata']['name']}-{self._copies}"}
        return {**tree, "metadata": metadata, "spec": {**tree["spec"], **spec}}

    async def _withdraw(self, decision: Decision) -> None:
        """Delete a pod and its generated claims, and wait until its other claims are released."""
        pod = await self._client.get(PODS, decision.name, NS)
        uid = pod["metadata"]["uid"]
        named = {entry.get("resourceClaimName") for entry in pod["spec"].get("resourceClaims", ())}
        await self._client.delete(PODS, decision.name, NS, grace=0)
        for name in filter(None, claim_names(pod)):
            if name in named:
                await self._wait_for_release(name, uid)
                continue
            with suppress(ApiError):  # the controller may be faster
                await self._client.patch(RESOURCE_CLAIMS, name, {"metadata": {"finalizers": None}}, NS)
                await self._client.delete(RESOURCE_CLAIMS, name, NS)

    async def _wait_for_release(self, claim: str, uid: str) -> None:
        await until(
            lambda: self._client.get(RESOURCE_CLAIMS, claim, NS), lambda found: _is_released(found, uid)
        )

    async def _objects(self) -> ClusterObjects:
        async def listed(endpoint: Endpoint) -> list[Tree]:
            return [read_tree(raw) for raw in (await self._client.list(endpoint)).items]

        return ClusterObjects(
            await listed(NODES),
            await listed(PODS),
            await listed(RESOURCE_CLAIMS),
            await listed(RESOURCE_SLICES),
            await listed(DEVICE_CLASSES),
        )


def _is_released(claim: Tree, uid: str) -> bool:
    """Return whether a claim is not reserved for a pod any more, and not allocated without reservations."""
    status = claim.get("status") or {}
    reserved = status.get("reservedFor") or ()
    return all(user["uid"] != uid for user in reserved) and bool(reserved or not status.get("allocation"))


@asynccontextmanager
async def run_both_schedulers(directory: Path) -> AsyncIterator[SchedulerComparison]:
    """Run a real control plane with kube-scheduler, and Plimsoll's scheduler beside it."""
    async with run_oracle(directory, ON) as oracle:
        process = SchedulerProcess(oracle.client, SchedulerSettings())
        scheduling = asyncio.create_task(process.run())
        try:
            await process.ready(DEADLINE)
            yield SchedulerComparison(oracle)
        finally:
            process.stop()
            await scheduling


async def compare_seeds(directory: Path, seeds: Iterable[int]) -> Comparison:
    """Compare the schedulers on the clusters of these seeds."""
    result = Comparison()
    async with run_both_schedulers(directory) as comparison:
        for seed in seeds:
            await comparison.compare(random_story(seed), result)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.real.compare_schedulers")
    parser.add_argument("--seed", type=int, default=1, help="seed of the first cluster")
    parser.add_argument("--clusters", type=int, default=5, help="number of clusters, one seed each")
    given = parser.parse_args()
    if why := missing(*PROGRAMS):
        sys.stderr.write(f"{why}\n")
        return 2
    with tempfile.TemporaryDirectory() as temporary:
        seeds = range(given.seed, given.seed + given.clusters)
        result = asyncio.run(compare_seeds(Path(temporary) / "plane", seeds))
    sys.stdout.write("\n".join(result.lines()) + "\n")
    return 1 if result.failed else 0


if __name__ == "__main__":
    sys.exit(main())
