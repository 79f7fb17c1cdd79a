"""Many pods of one claim are bound with few writes, whatever happens to these writes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.api.codec import convert
from plimsoll.api.core import Pod
from plimsoll.api.resource import ResourceClaimConsumerReference
from plimsoll.client.endpoints import PODS, RESOURCE_CLAIMS
from plimsoll.errors import ApiError, LeaseLostError
from plimsoll.scheduler.binding.bind import bind_pod
from plimsoll.scheduler.binding.result import BindFailure, BindStep, BindSuccess
from plimsoll.scheduler.pod_claims import RESERVED_MAX
from plimsoll.scheduler.process.api_writer import ApiWriter
from plimsoll.scheduler.process.binder import PodBinder
from plimsoll.scheduler.process.gang_permit import GangPermit
from plimsoll.scheduler.result import Placement
from tests.coroutines import run_by
from tests.sizes import examples
from tests.unit.scheduler.process.binding_cluster import (
    NODE,
    SHARED,
    BindingCluster,
    lost,
    refusal,
    run_scenario,
)
from tests.waiting import until

Outcome = BindSuccess | BindFailure
#: Receives each request; returns an error instead of sending it, or after that (see `Wire`).
Choose = Callable[[str, str], "Cut | None"]


@dataclass(frozen=True)
class Cut:
    """Loss of a request: before it reaches the server, of its answer, or delayed beyond all others."""

    error: Callable[[], BaseException]
    when: str = "before"


@dataclass
class Wire:
    """Calls of a client, with faults."""

    client: Any
    choose: Choose = lambda method, path: None
    sent: Counter[str] = field(default_factory=Counter)
    late: list[Callable[[], Awaitable[Any]]] = field(default_factory=list)

    @contextmanager
    def attached(self) -> Iterator[Wire]:
        send = self.client.call

        async def call(method: str, path: str, **named: Any) -> Any:
            self.sent[f"{method} {path.partition('/default/')[2]}"] += 1
            cut = self.choose(method, path)
            if cut is None:
                return await send(method, path, **named)
            if cut.when == "after":
                await send(method, path, **named)
            elif cut.when == "late":
                self.late.append(lambda: send(method, path, **named))
            raise cut.error()

        with patch.object(self.client, "call", call):
            yield self

    async def deliver(self) -> None:
        """Deliver what was delayed."""
        for send in self.late:
            with suppress(ApiError):
                await send()

    def writes_of_claim(self) -> int:
        calls = self.sent.items()
        return sum(count for name, count in calls if "resourceclaims" in name and "GET" not in name)


async def bind_all(cluster: BindingCluster, placements: Sequence[Placement], **options: Any) -> list[Outcome]:
    async def no_sleep(seconds: float) -> None:
        await asyncio.sleep(0)

    writer = ApiWriter(cluster.client, sleep=no_sleep)
    jobs = [bind_pod(each, writer, cluster.on_claim, **options) for each in placements]
    return list(await asyncio.gather(*jobs))


async def check(
    cluster: BindingCluster, placements: Sequence[Placement], outcomes: Sequence[Outcome]
) -> None:
    """Check that pods are bound as reported, with a reservation, and others hold none."""
    users = {each.uid for each in (await cluster.claim(SHARED)).status.reserved_for}
    for placement, outcome in zip(placements, outcomes, strict=True):
        pod = placement.pod_info.pod
        fresh = convert(await cluster.client.get(PODS, pod.metadata.name, "default"), Pod)
        assert (fresh.spec.node_name == NODE) is isinstance(outcome, BindSuccess)
        assert (pod.metadata.uid in users) is isinstance(outcome, BindSuccess), pod.metadata.name
    await cluster.check_kept()


@run_by(run_scenario)
async def test_many_pods_reserve_a_claim_with_few_writes(cluster: BindingCluster) -> None:
    placements = await cluster.placements(60, SHARED)
    with Wire(cluster.client).attached() as wire:
        outcomes = await bind_all(cluster, placements)
    assert all(isinstance(each, BindSuccess) for each in outcomes)
    await check(cluster, placements, outcomes)
    assert wire.writes_of_claim() <= 2


@run_by(run_scenario)
async def test_many_pods_give_a_claim_up_with_few_writes(cluster: BindingCluster) -> None:
    placements = await cluster.placements(40, SHARED)

    def refuse_bindings(method: str, path: str) -> Cut | None:
        return Cut(refusal(403)) if path.endswith("/binding") else None

    with Wire(cluster.client, refuse_bindings).attached() as wire:
        outcomes = await bind_all(cluster, placements)
    assert all(isinstance(each, BindFailure) and each.settled for each in outcomes)
    await check(cluster, placements, outcomes)
    assert wire.writes_of_claim() <= 12


@run_by(run_scenario)
async def test_pods_beyond_the_limit_of_consumers_are_refused_alone(cluster: BindingCluster) -> None:
    many = [{"resource": "pods", "name": f"o{n}", "uid": f"uid-o{n}"} for n in range(RESERVED_MAX - 6)]
    status = {"status": {"reservedFor": many}}
    await cluster.client.patch(RESOURCE_CLAIMS, SHARED, status, "default", subresource="status")
    placements = await cluster.placements(10, SHARED)
    outcomes = await bind_all(cluster, placements)
    assert [isinstance(each, BindSuccess) for each in outcomes].count(True) == 6
    for each in outcomes:
        assert isinstance(each, BindSuccess) or (each.step, each.settled) == (BindStep.RESERVATION, True)
    await check(cluster, placements, outcomes)
    assert len((await cluster.claim(SHARED)).status.reserved_for) == RESERVED_MAX


@run_by(run_scenario)
async def test_pods_of_a_group_share_one_reservation(cluster: BindingCluster) -> None:
    group = ResourceClaimConsumerReference("scheduling.k8s.io", "podgroups", "gang", "uid-gang")
    for prefix in ("a", "b"):  # the second time it exists already, and is confirmed
        placements = await cluster.placements(40, SHARED, prefix=prefix)
        claim = placements[0].pod_info.claims[0]
        permit = GangPermit(placements, len(placements), {claim.metadata.uid: group})
        with Wire(cluster.client).attached() as wire:
            outcomes = await bind_all(cluster, placements, permit=permit)
        assert all(isinstance(each, BindSuccess) for each in outcomes)
        assert wire.writes_of_claim() <= 2
        fresh = await cluster.claim(SHARED)
        assert sorted(each.uid for each in fresh.status.reserved_for) == ["uid-gang", "uid-other"]


# -- slots


@run_by(run_scenario)
async def test_a_claim_whose_write_is_slow_leaves_slots_to_others(cluster: BindingCluster) -> None:
    sharers = await cluster.placements(12, SHARED)
    (bystander,) = await cluster.placements(1, prefix="bystander")
    done: list[str] = []
    answered = asyncio.Event()
    writer = ApiWriter(cluster.client)
    send = cluster.client.call

    async def call(method: str, path: str, **named: Any) -> Any:
        if "resourceclaims" in path:
            await answered.wait()
        return await send(method, path, **named)

    binder = PodBinder(writer, cluster.on_claim, lambda p, o: done.append(p.pod_info.key), limit=2)
    with patch.object(cluster.client, "call", call):
        for placement in sharers:
            binder.start(placement)
        slots_are_left = not binder.is_full
        assert slots_are_left
        binder.start(bystander)
        await until(lambda: done)
        assert done == [bystander.pod_info.key]
        assert not binder.is_full
        answered.set()
        assert await binder.drain(20) == 0
    assert len(done) == 13


@run_by(run_scenario)
async def test_a_pod_that_waits_for_its_devices_leaves_its_slot_to_others(cluster: BindingCluster) -> None:
    conditions: dict[str, Any] = {
        "bindingConditions": ["Attached"],
        "bindingFailureConditions": ["Broken"],
    }
    waiting = await cluster.placement(**conditions)
    (bystander,) = await cluster.placements(1)
    done: list[str] = []
    writer = ApiWriter(cluster.client, now=lambda: cluster.harness.now)
    binder = PodBinder(writer, cluster.on_claim, lambda p, o: done.append(p.pod_info.key), limit=1)
    binder.start(waiting)
    binder.start(bystander)
    await until(lambda: done)
    assert done == [bystander.pod_info.key]
    assert len(writer.claim_waiters) == 1
    assert await binder.drain(0.01) == 1


@run_by(run_scenario)
async def test_pods_that_wait_for_their_group_leave_their_slots_to_others(cluster: BindingCluster) -> None:
    members = await cluster.placements(3, prefix="member")
    (bystander,) = await cluster.placements(1)
    done: list[str] = []
    freed = asyncio.Event()
    binder = PodBinder(
        ApiWriter(cluster.client),
        cluster.on_claim,
        lambda p, o: done.append(p.pod_info.key),
        limit=2,
        on_free=freed.set,
    )
    permit = GangPermit(members, len(members))
    for placement in members[:2]:
        binder.start(placement, permit)
    assert binder.is_full
    await asyncio.wait_for(freed.wait(), 20)
    await until(lambda: not binder.is_full)
    binder.start(bystander)
    await until(lambda: done)
    assert done == [bystander.pod_info.key]
    binder.start(members[2], permit)
    assert await binder.drain(20) == 0
    assert len(done) == 4


# -- connections cut at every step


@pytest.mark.parametrize("when", ["before", "after", "late"])
@pytest.mark.parametrize("error", [lost, refusal(504)])
@pytest.mark.parametrize("step", range(9))
@run_by(run_scenario)
async def test_a_cut_connection_leaves_no_pod_behind(
    cluster: BindingCluster, *, when: str, error: Callable[[], ApiError], step: int
) -> None:
    placements = await cluster.placements(3, SHARED)
    calls = iter(range(10_000))

    def cut_one(method: str, path: str) -> Cut | None:
        return Cut(error, when) if next(calls) == step else None

    with Wire(cluster.client, cut_one).attached() as wire:
        outcomes = await bind_all(cluster, placements)
    assert all(isinstance(each, BindSuccess) for each in outcomes)
    await check(cluster, placements, outcomes)
    await wire.deliver()
    await check(cluster, placements, outcomes)


@settings(max_examples=examples(40), deadline=None)
@given(
    st.dictionaries(
        st.integers(0, 30),
        st.tuples(st.sampled_from([lost, refusal(504), refusal(429)]), st.sampled_from(["before", "after"])),
        max_size=6,
    ),
    st.sets(st.integers(0, 3)),
)
def test_whatever_is_cut_a_pod_is_bound_or_undone(cuts: dict[int, Any], refused: set[int]) -> None:
    async def scenario(cluster: BindingCluster) -> None:
        placements = await cluster.placements(4, SHARED)
        calls = iter(range(10_000))

        def choose(method: str, path: str) -> Cut | None:
            if path.endswith(tuple(f"/q{number}/binding" for number in refused)):
                return Cut(refusal(403))
            found = cuts.get(next(calls))
            return None if found is None else Cut(*found)

        with Wire(cluster.client, choose).attached():
            outcomes = await bind_all(cluster, placements)
        for number, each in enumerate(outcomes):
            assert isinstance(each, BindFailure) is (number in refused)
            assert isinstance(each, BindSuccess) or each.settled
        await check(cluster, placements, outcomes)

    run_scenario(scenario)


@run_by(run_scenario)
async def test_no_pod_goes_on_before_it_is_known_what_was_written(cluster: BindingCluster) -> None:
    """The write of all reservations gets no answer for a while: no pod is bound, none is given up."""
    placements = await cluster.placements(5, SHARED)
    is_cut = True

    def cut_claims(method: str, path: str) -> Cut | None:
        is_write = method == "PATCH" and "resourceclaims" in path
        return Cut(lost, "after") if is_cut and is_write else None

    with Wire(cluster.client, cut_claims).attached() as wire:
        task = asyncio.create_task(bind_all(cluster, placements))
        await until(lambda: wire.writes_of_claim() > 20)
        users = {each.uid for each in (await cluster.claim(SHARED)).status.reserved_for}
        assert users > {each.pod_info.pod.metadata.uid for each in placements}
        assert not task.done()
        assert not any("binding" in name for name in wire.sent)
        is_cut = False
        outcomes = await task
    assert all(isinstance(each, BindSuccess) for each in outcomes)
    await check(cluster, placements, outcomes)


@run_by(run_scenario)
async def test_a_lost_lease_ends_all_bindings_that_share_a_write(cluster: BindingCluster) -> None:
    placements = await cluster.placements(5, SHARED)
    done: list[str] = []
    wire = Wire(cluster.client, lambda method, path: Cut(lambda: LeaseLostError("lost")))
    binder = PodBinder(ApiWriter(cluster.client), cluster.on_claim, lambda p, o: done.append(p.node))
    with wire.attached():
        for placement in placements:
            binder.start(placement)
        assert await binder.drain(5) == 0
    assert done == []


@run_by(run_scenario)
async def test_a_cancelled_binding_does_not_take_others_along(cluster: BindingCluster) -> None:
    placements = await cluster.placements(4, SHARED)
    writer = ApiWriter(cluster.client)
    tasks = [asyncio.create_task(bind_pod(each, writer, cluster.on_claim)) for each in placements]
    await asyncio.sleep(0)
    tasks[0].cancel()
    outcomes = await asyncio.gather(*tasks[1:])
    assert all(isinstance(each, BindSuccess) for each in outcomes)
    await check(cluster, placements[1:], outcomes)
