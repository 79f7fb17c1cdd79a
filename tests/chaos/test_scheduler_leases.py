"""Decisions of a scheduler that has lost its lease, or was killed, must not be carried out.

Each test scripts one fault: a request of the first leader is held back by the proxy, another leader takes
over, and the request arrives afterwards, or its sender comes back to life.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from plimsoll.cluster.client import Client
from plimsoll.cluster.client.endpoints import (
    DEVICE_CLASSES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from tests.chaos.scheduler_faults.faults import Call, CallKind, Fault, FaultKind
from tests.chaos.scheduler_faults.objects import Tree, is_allocated, node_of
from tests.chaos.scheduler_faults.replicas import LEASE_SECONDS, Replica
from tests.chaos.scheduler_faults.servers import Server
from tests.chaos.scheduler_faults.small_cluster import create_node
from tests.chaos.scheduler_faults.stage import Stage, open_stage

NS = "default"
DEVICES = 4
#: However busy the machine is, what is waited for comes sooner.
SECONDS = 120.0
#: How long a held request waits at most for what is to happen before it; then it lands all the same.
HELD_SECONDS = 20.0

Story = Callable[[Stage], Awaitable[None]]


def run(server: Server, folder: Path, story: Story, *, devices: int = DEVICES) -> None:
    async def prepare(client: Client) -> None:
        selectors = [{"cel": {"expression": 'device.driver == "gpu.example.com"'}}]
        await client.create(DEVICE_CLASSES, {"metadata": {"name": "gpu"}, "spec": {"selectors": selectors}})
        urgent = {"metadata": {"name": "urgent"}, "value": 1000, "preemptionPolicy": "Never"}
        await client.create(PRIORITY_CLASSES, urgent)
        allocatable = {"cpu": "8", "memory": "32Gi", "pods": "110"}
        await create_node(client, "node-0", allocatable)
        pool = {"name": "gpus", "generation": 1, "resourceSliceCount": 1}
        published = [{"name": f"gpu-{number}"} for number in range(devices)]
        spec = {"driver": "gpu.example.com", "pool": pool, "nodeName": "node-0", "devices": published}
        await client.create(RESOURCE_SLICES, {"metadata": {"name": "gpus"}, "spec": spec})

    async def all_of_it() -> None:
        async with asyncio.timeout(2 * SECONDS):
            async with open_stage(server, folder, prepare, running=("a",)) as stage:
                assert (await stage.replicas.await_leader(SECONDS)).name == "a"
                await story(stage)
                await stage.proxy.drained(SECONDS)
                await settle(stage)
                await stage.observer.catch_up(SECONDS)
                found = [str(finding) for finding in stage.observer.findings()]
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


async def until(look: Callable[[], Awaitable[Any]], seconds: float = SECONDS, *, must: bool = True) -> bool:
    """Wait until something is so; False if that took too long and it need not be."""
    try:
        async with asyncio.timeout(seconds):
            while not await look():
                await asyncio.sleep(0.05)
    except TimeoutError:
        assert not must, "it did not happen in time"
        return False
    return True


async def bound(client: Client, *names: str) -> bool:
    trees = [json.loads(raw) for raw in (await client.list(PODS, NS)).items]
    nodes = {tree["metadata"]["name"]: node_of(tree) for tree in trees}
    return all(nodes.get(name) for name in names)


async def settle(stage: Stage) -> None:
    """Wait until nobody has written a pod or a claim for a while: longer than a lease and any back-off."""
    quiet, last = 0.0, -1
    while quiet < LEASE_SECONDS + 2:
        await asyncio.sleep(0.25)
        quiet = quiet + 0.25 if len(stage.observer.changes) == last else 0.0
        last = len(stage.observer.changes)


class Held:
    """Requests of one client that are held back until they are let go."""

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

    async def caught(self, count: int = 1) -> None:
        async def enough() -> bool:
            return len({call.path for call in self.calls}) >= count

        await until(enough)


def is_status_write(call: Call) -> bool:
    return call.kind is CallKind.CLAIM and call.path.endswith("/status")


def is_deallocation(call: Call) -> bool:
    return is_status_write(call) and b'"allocation":null' in call.body.replace(b" ", b"")


async def lose_lease(stage: Stage, leader: Replica, *held: Held) -> Replica:
    """Let the lease calls of the leader stall until another one leads; its held requests stay held."""
    stalled = asyncio.Event()

    def choose(call: Call) -> Fault | None:
        if call.client == leader.name and call.kind is CallKind.LEASE and not stalled.is_set():
            return Fault(FaultKind.LEASE_STALLED, until=stalled)
        return next((fault for each in held if (fault := each.choose(call)) is not None), None)

    stage.proxy.choose = choose
    other = stage.replicas.other(leader)
    await other.start()
    await stage.replicas.await_leader(SECONDS, other_than=leader)
    stalled.set()
    return other


# -- stories


def test_allocations_of_a_leader_that_lost_its_lease(chaos_server: Server, tmp_path: Path) -> None:
    """Four pods are decided by the first leader, four by the next; the first one's writes arrive last."""
    first = [f"first-{number}" for number in range(DEVICES)]
    second = [f"second-{number}" for number in range(DEVICES)]

    async def story(stage: Stage) -> None:
        leader = stage.replicas["a"]
        held = Held("a", is_status_write)
        stage.proxy.choose = held.choose
        for name in first:
            await create_pod(stage.client, name)
        await held.caught(DEVICES)
        for name in second:
            await create_pod(stage.client, name, urgent=True)
        await lose_lease(stage, leader, held)
        await until(lambda: bound(stage.client, *second), HELD_SECONDS, must=False)
        held.gate.set()

    run(chaos_server, tmp_path, story)


def test_a_release_that_arrives_after_its_claim_is_used(chaos_server: Server, tmp_path: Path) -> None:
    """A binding fails and its claim is to be released; by the time that arrives, the next leader uses it."""

    async def story(stage: Stage) -> None:
        leader = stage.replicas["a"]
        release = Held("a", is_deallocation)

        def choose(call: Call) -> Fault | None:
            if call.client == "a" and call.kind is CallKind.BINDING:
                return Fault(FaultKind.ERROR_BEFORE, status=500)
            return release.choose(call)

        stage.proxy.choose = choose
        await create_pod(stage.client, "one")
        await release.caught()
        await leader.kill()
        stage.proxy.choose = release.choose
        await stage.replicas["b"].start()
        await stage.replicas.await_leader(SECONDS, other_than=leader)
        await until(lambda: bound(stage.client, "one"), HELD_SECONDS, must=False)
        release.gate.set()
        await stage.proxy.drained(SECONDS)
        await create_pod(stage.client, "two")

    run(chaos_server, tmp_path, story, devices=1)


def test_a_release_that_conflicts_is_not_made_again_by_a_leader_of_the_past(
    chaos_server: Server, tmp_path: Path
) -> None:
    """The leader is paused while its release is under way, and finds a conflict when it goes on."""

    async def story(stage: Stage) -> None:
        leader = stage.replicas["a"]
        release = Held("a", is_deallocation)

        def choose(call: Call) -> Fault | None:
            if call.client == "a" and call.kind is CallKind.BINDING:
                return Fault(FaultKind.ERROR_BEFORE, status=500)
            return release.choose(call)

        stage.proxy.choose = choose
        await create_pod(stage.client, "one")
        await release.caught()
        leader.pause()
        await stage.replicas["b"].start()
        await stage.replicas.await_leader(SECONDS, other_than=leader)
        await until(lambda: bound(stage.client, "one"), HELD_SECONDS, must=False)
        # Anybody may write to a claim: the release finds another version than it was made for.
        await stage.client.patch(RESOURCE_CLAIMS, "one", {"metadata": {"labels": {"seen": "yes"}}}, NS)
        stage.proxy.choose = lambda call: None
        release.gate.set()
        await stage.proxy.drained(SECONDS)
        leader.resume()
        await asyncio.sleep(1)
        await create_pod(stage.client, "two")

    run(chaos_server, tmp_path, story, devices=1)


def test_a_leader_that_was_paused_writes_nothing_more(chaos_server: Server, tmp_path: Path) -> None:
    """The leader has allocated a claim and is paused; when it goes on, another one leads."""

    async def story(stage: Stage) -> None:
        leader = stage.replicas["a"]
        written: list[str] = []
        answered = asyncio.Event()
        binding = Held("b", lambda call: call.kind is CallKind.BINDING)

        def choose(call: Call) -> Fault | None:
            if call.client == "a" and is_status_write(call) and not answered.is_set():
                return Fault(FaultKind.DELAY_ANSWER, until=answered)
            return binding.choose(call)

        stage.proxy.choose = choose
        await create_pod(stage.client, "one")

        async def allocated() -> bool:
            return is_allocated(await stage.client.get(RESOURCE_CLAIMS, "one", NS))

        await until(allocated)
        leader.pause()
        # The answer waits in the connection: it is the first thing the leader finds when it goes on.
        answered.set()
        await stage.proxy.drained(SECONDS)
        await stage.replicas["b"].start()
        await stage.replicas.await_leader(SECONDS, other_than=leader)
        await until(_caught(binding), HELD_SECONDS, must=False)
        pid = leader.process.pid

        def note(call: Call) -> None:
            if call.client == "a" and call.kind.writes_decision and leader.process.pid == pid:
                written.append(f"{call.method} {call.path}")

        stage.proxy.seen = note
        leader.resume()
        await asyncio.sleep(LEASE_SECONDS / 2)
        binding.gate.set()
        await until(lambda: bound(stage.client, "one"))
        assert not written, written

    run(chaos_server, tmp_path, story, devices=1)


def test_a_binding_that_arrives_after_its_claim_was_released(chaos_server: Server, tmp_path: Path) -> None:
    """A binding is given up after errors, its device goes to another pod; then the first try arrives."""

    async def story(stage: Stage) -> None:
        late = asyncio.Event()
        tries: list[Call] = []

        def choose(call: Call) -> Fault | None:
            if call.kind is not CallKind.BINDING or call.object_name != "one" or late.is_set():
                return None
            tries.append(call)
            if len(tries) == 1:
                return Fault(FaultKind.LATE_REQUEST, until=late)
            return Fault(FaultKind.ERROR_BEFORE, status=503)

        stage.proxy.choose = choose
        await create_pod(stage.client, "one")

        async def tried() -> bool:
            return len(tries) > 1

        await until(tried)
        await create_pod(stage.client, "two", urgent=True)
        await until(lambda: bound(stage.client, "two"), HELD_SECONDS, must=False)
        late.set()

    run(chaos_server, tmp_path, story, devices=1)


def test_bindings_of_a_leader_that_lost_its_lease(chaos_server: Server, tmp_path: Path) -> None:
    """Each leader fills the node with a pod; the binding of the first one arrives last."""

    async def story(stage: Stage) -> None:
        leader = stage.replicas["a"]
        held = Held("a", lambda call: call.kind is CallKind.BINDING)
        stage.proxy.choose = held.choose
        await create_pod(stage.client, "first", cpu="5", claim=False)
        await held.caught()
        await create_pod(stage.client, "second", cpu="5", claim=False, urgent=True)
        await lose_lease(stage, leader, held)
        await until(lambda: bound(stage.client, "second"), HELD_SECONDS, must=False)
        held.gate.set()

    run(chaos_server, tmp_path, story)


def _caught(held: Held) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        return bool(held.calls)

    return look
