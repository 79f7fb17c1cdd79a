"""Decisions of the past must not be carried out: those of a leader that lost its lease, was killed or paused,
and those that a leader has taken back itself.

Each test scripts one fault: a request is held back by the proxy, something else is decided, and then the
request arrives, or its sender comes back to life.
"""

from __future__ import annotations

import asyncio

import pytest

from plimsoll.client.endpoints import RESOURCE_CLAIMS
from tests.chaos.scheduler_faults.chaos_cluster import ChaosCluster
from tests.chaos.scheduler_faults.faults import Call, CallKind, Fault
from tests.chaos.scheduler_faults.objects import is_allocated
from tests.chaos.scheduler_faults.replicas import LEASE_SECONDS
from tests.chaos.scheduler_faults.script import (
    DEVICES,
    NS,
    SECONDS,
    HeldRequests,
    bound,
    create_pod,
    is_deallocation,
    is_status_write,
    lose_lease,
    run_script,
    wait_while_held,
)
from tests.coroutines import run_by
from tests.simulation.faults import FaultKind
from tests.waiting import until


@run_by(run_script, "chaos_server", "tmp_path")
async def test_allocations_of_a_leader_that_lost_its_lease(cluster: ChaosCluster) -> None:
    """Four pods are scheduled by the first leader, four by the next; the first one's writes arrive last."""
    first = [f"first-{number}" for number in range(DEVICES)]
    second = [f"second-{number}" for number in range(DEVICES)]
    leader = cluster.replicas["a"]
    held = HeldRequests("a", is_status_write)
    cluster.proxy.choose = held.choose
    for name in first:
        await create_pod(cluster.client, name)
    await held.caught(DEVICES)
    for name in second:
        await create_pod(cluster.client, name, urgent=True)
    await lose_lease(cluster, leader, held)
    await wait_while_held(lambda: bound(cluster.client, *second))
    held.gate.set()


@pytest.mark.slow
@run_by(run_script, "chaos_server", "tmp_path", devices=1)
async def test_a_release_that_arrives_after_its_claim_is_used(cluster: ChaosCluster) -> None:
    """A binding fails and its claim is to be released; when that arrives, the next leader uses the claim."""
    leader = cluster.replicas["a"]
    release = HeldRequests("a", is_deallocation)

    def choose(call: Call) -> Fault | None:
        if call.client == "a" and call.kind is CallKind.BINDING:
            return Fault(FaultKind.ERROR_BEFORE, status=500)
        return release.choose(call)

    cluster.proxy.choose = choose
    await create_pod(cluster.client, "one")
    await release.caught()
    await leader.kill()
    cluster.proxy.choose = release.choose
    await cluster.replicas["b"].start()
    await cluster.replicas.await_leader(SECONDS, other_than=leader)
    await wait_while_held(lambda: bound(cluster.client, "one"))
    release.gate.set()
    await cluster.proxy.drained(SECONDS)
    await create_pod(cluster.client, "two")


@run_by(run_script, "chaos_server", "tmp_path", devices=1)
async def test_a_former_leader_does_not_retry_a_conflicting_release(cluster: ChaosCluster) -> None:
    """The leader is paused during its release, and meets a conflict when it resumes."""
    leader = cluster.replicas["a"]
    release = HeldRequests("a", is_deallocation)

    def choose(call: Call) -> Fault | None:
        if call.client == "a" and call.kind is CallKind.BINDING:
            return Fault(FaultKind.ERROR_BEFORE, status=500)
        return release.choose(call)

    cluster.proxy.choose = choose
    await create_pod(cluster.client, "one")
    await release.caught()
    leader.pause()
    await cluster.replicas["b"].start()
    await cluster.replicas.await_leader(SECONDS, other_than=leader)
    await wait_while_held(lambda: bound(cluster.client, "one"))
    # Anybody may write to a claim: the release finds another version than it was made for.
    await cluster.client.patch(RESOURCE_CLAIMS, "one", {"metadata": {"labels": {"seen": "yes"}}}, NS)
    cluster.proxy.choose = lambda call: None
    release.gate.set()
    await cluster.proxy.drained(SECONDS)
    leader.resume()
    await asyncio.sleep(1)
    await create_pod(cluster.client, "two")


@run_by(run_script, "chaos_server", "tmp_path", devices=1)
async def test_a_former_leader_writes_nothing_after_a_pause(cluster: ChaosCluster) -> None:
    """The leader has allocated a claim and is paused; when it resumes, another one leads."""
    leader = cluster.replicas["a"]
    written: list[str] = []
    answered = asyncio.Event()
    binding = HeldRequests("b", lambda call: call.kind is CallKind.BINDING)

    def choose(call: Call) -> Fault | None:
        if call.client == "a" and is_status_write(call) and not answered.is_set():
            return Fault(FaultKind.DELAY_ANSWER, until=answered)
        return binding.choose(call)

    cluster.proxy.choose = choose
    await create_pod(cluster.client, "one")

    async def allocated() -> bool:
        return is_allocated(await cluster.client.get(RESOURCE_CLAIMS, "one", NS))

    await until(allocated)
    leader.pause()
    # The answer waits in the connection: it is the first thing the leader finds when it goes on.
    answered.set()
    await cluster.proxy.drained(SECONDS)
    await cluster.replicas["b"].start()
    await cluster.replicas.await_leader(SECONDS, other_than=leader)
    await wait_while_held(binding.has_caught)
    pid = leader.process.pid

    def note(call: Call) -> None:
        if call.client == "a" and call.kind.writes_decision and leader.process.pid == pid:
            written.append(f"{call.method} {call.path}")

    cluster.proxy.seen = note
    leader.resume()
    await asyncio.sleep(LEASE_SECONDS / 2)
    binding.gate.set()
    await until(lambda: bound(cluster.client, "one"))
    assert not written, written


@pytest.mark.slow
@run_by(run_script, "chaos_server", "tmp_path", devices=1)
async def test_a_binding_that_arrives_after_its_claim_was_released(cluster: ChaosCluster) -> None:
    """A binding fails, its device is allocated to another pod; then the first request arrives."""
    late = asyncio.Event()
    tries: list[Call] = []

    def choose(call: Call) -> Fault | None:
        if call.kind is not CallKind.BINDING or call.object_name != "one" or late.is_set():
            return None
        tries.append(call)
        if len(tries) == 1:
            return Fault(FaultKind.LATE_REQUEST, until=late)
        return Fault(FaultKind.ERROR_BEFORE, status=503)

    cluster.proxy.choose = choose
    await create_pod(cluster.client, "one")

    async def tried() -> bool:
        return len(tries) > 1

    await until(tried)
    await create_pod(cluster.client, "two", urgent=True)
    await wait_while_held(lambda: bound(cluster.client, "two"))
    late.set()


@run_by(run_script, "chaos_server", "tmp_path")
async def test_charges_are_not_cleared_by_a_late_request(cluster: ChaosCluster) -> None:
    """A binding fails and its charges are cleared; a copy of that request arrives after the next binding."""
    late = asyncio.Event()
    cleared: list[Call] = []

    def choose(call: Call) -> Fault | None:
        if late.is_set():
            return None
        if call.kind is CallKind.BINDING and not cleared:
            return Fault(FaultKind.ERROR_BEFORE, status=503)
        if call.kind is CallKind.POD_STATUS and b'ClaimStatuses":null' in call.body:
            cleared.append(call)
            return Fault(FaultKind.DUPLICATE, until=late)
        return None

    cluster.proxy.choose = choose
    await create_pod(cluster.client, "one")
    await until(lambda: bound(cluster.client, "one"))
    late.set()


@pytest.mark.slow
@run_by(run_script, "chaos_server", "tmp_path")
async def test_bindings_of_a_leader_that_lost_its_lease(cluster: ChaosCluster) -> None:
    """Each leader fills the node with a pod; the binding of the first one arrives last."""
    leader = cluster.replicas["a"]
    held = HeldRequests("a", lambda call: call.kind is CallKind.BINDING)
    cluster.proxy.choose = held.choose
    await create_pod(cluster.client, "first", cpu="20", claim=False)
    await held.caught()
    await create_pod(cluster.client, "second", cpu="20", claim=False, urgent=True)
    await lose_lease(cluster, leader, held)
    await wait_while_held(lambda: bound(cluster.client, "second"))
    held.gate.set()
