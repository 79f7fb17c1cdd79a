"""Steps of scripted faults: one request is held back, another leader takes over, then it arrives."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from plimsoll.client import Client
from plimsoll.client.endpoints import DEVICE_CLASSES, PODS, PRIORITY_CLASSES, RESOURCE_CLAIMS, RESOURCE_SLICES
from tests.chaos.scheduler_faults.chaos_cluster import ChaosCluster, open_cluster
from tests.chaos.scheduler_faults.faults import Call, CallKind, Fault
from tests.chaos.scheduler_faults.objects import Tree, node_of
from tests.chaos.scheduler_faults.replicas import LEASE_SECONDS, Replica
from tests.chaos.scheduler_faults.servers import Server
from tests.chaos.scheduler_faults.small_cluster import create_node
from tests.simulation.faults import FaultKind
from tests.waiting import DEADLINE, until

NS = "default"
DEVICES = 4
SECONDS = DEADLINE
#: How long a held request waits at most for what is to happen before it; then it lands all the same.
HELD_SECONDS = 20.0

Scenario: TypeAlias = Callable[[ChaosCluster], Awaitable[None]]


def run_script(server: Server, directory: Path, scenario: Scenario, *, devices: int = DEVICES) -> None:
    """Run a scenario on a cluster of one node in which replica `a` leads, and check its history."""

    async def prepare(client: Client) -> None:
        selectors = [{"cel": {"expression": 'device.driver == "gpu.example.com"'}}]
        await client.create(DEVICE_CLASSES, {"metadata": {"name": "gpu"}, "spec": {"selectors": selectors}})
        urgent = {"metadata": {"name": "urgent"}, "value": 1000, "preemptionPolicy": "Never"}
        await client.create(PRIORITY_CLASSES, urgent)
        allocatable = {"cpu": "32", "memory": "32Gi", "pods": "110"}
        await create_node(client, "node-0", allocatable)
        pool = {"name": "gpus", "generation": 1, "resourceSliceCount": 1}
        charge = {"nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "1"}}}
        published = [{"name": f"gpu-{number}", **charge} for number in range(devices)]
        spec = {"driver": "gpu.example.com", "pool": pool, "nodeName": "node-0", "devices": published}
        await client.create(RESOURCE_SLICES, {"metadata": {"name": "gpus"}, "spec": spec})

    async def all_of_it() -> None:
        async with asyncio.timeout(2 * SECONDS):
            async with open_cluster(server, directory, prepare, running=("a", "controllers")) as cluster:
                assert (await cluster.replicas.await_leader(SECONDS)).name == "a"
                await scenario(cluster)
                await cluster.proxy.drained(SECONDS)
                await settle(cluster)
                await cluster.observer.catch_up(SECONDS)
                found = [str(finding) for finding in cluster.observer.findings()]
                assert not found, "\n".join(found)

    asyncio.run(all_of_it())


# -- steps


async def create_pod(
    client: Client, name: str, *, urgent: bool = False, cpu: str = "1", claim: bool = True
) -> None:
    """Create a pod, and a claim of its name."""
    resources: Tree = {"requests": {"cpu": cpu}}
    spec: Tree = {
        "schedulerName": "plimsoll",
        "containers": [{"name": "main", "image": "pause", "resources": resources}],
    }
    if claim:
        request = {"name": "r", "exactly": {"deviceClassName": "gpu"}}
        tree = {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}
        await client.create(RESOURCE_CLAIMS, tree, NS)
        resources["claims"] = [{"name": "c"}]
        spec["resourceClaims"] = [{"name": "c", "resourceClaimName": name}]
    if urgent:
        spec["priorityClassName"] = "urgent"
    await client.create(PODS, {"metadata": {"name": name}, "spec": spec}, NS)


async def wait_while_held(read: Callable[[], Awaitable[object]]) -> None:
    """Wait until a condition is true, but only as long as requests are held: it need not become true."""
    with suppress(AssertionError):
        await until(read, seconds=HELD_SECONDS)


async def bound(client: Client, *names: str) -> bool:
    trees = [json.loads(raw) for raw in (await client.list(PODS, NS)).items]
    nodes = {tree["metadata"]["name"]: node_of(tree) for tree in trees}
    return all(nodes.get(name) for name in names)


async def settle(cluster: ChaosCluster) -> None:
    """Wait until no pod or claim has been written for longer than a lease and any backoff."""
    quiet, last = 0.0, -1
    while quiet < LEASE_SECONDS + 2:
        await asyncio.sleep(0.25)
        quiet = quiet + 0.25 if len(cluster.observer.changes) == last else 0.0
        last = len(cluster.observer.changes)


class HeldRequests:
    """Requests of one client that are held until they are released."""

    def __init__(self, client: str, match: Callable[[Call], bool]) -> None:
        self.gate = asyncio.Event()
        self.calls: list[Call] = []
        self._client = client
        self._match = match

    def choose(self, call: Call) -> Fault | None:
        if call.client != self._client or self.gate.is_set() or not self._match(call):
            return None
        self.calls.append(call)
        return Fault(FaultKind.DELAY_REQUEST, until=self.gate)

    async def has_caught(self) -> bool:
        return bool(self.calls)

    async def caught(self, count: int = 1) -> None:
        async def enough() -> bool:
            return len({call.path for call in self.calls}) >= count

        await until(enough)


def is_status_write(call: Call) -> bool:
    return call.kind is CallKind.CLAIM and call.path.endswith("/status")


def is_deallocation(call: Call) -> bool:
    return is_status_write(call) and b'"allocation":null' in call.body.replace(b" ", b"")


async def lose_lease(cluster: ChaosCluster, leader: Replica, *held: HeldRequests) -> Replica:
    """Stall the lease calls of the leader until another one leads; its held requests stay held."""
    stalled = asyncio.Event()

    def choose(call: Call) -> Fault | None:
        if call.client == leader.name and call.kind is CallKind.LEASE and not stalled.is_set():
            return Fault(FaultKind.DELAY_REQUEST, until=stalled)
        return next((fault for each in held if (fault := each.choose(call)) is not None), None)

    cluster.proxy.choose = choose
    other = cluster.replicas.other(leader)
    await other.start()
    await cluster.replicas.await_leader(SECONDS, other_than=leader)
    stalled.set()
    return other
