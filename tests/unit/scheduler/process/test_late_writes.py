"""Delayed writes that take effect after the binding has ended, on an API in memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.api.resource import ResourceClaim
from plimsoll.client.endpoints import RESOURCE_CLAIMS
from plimsoll.errors import ApiError
from plimsoll.scheduler.binding.bind import bind_pod, release_claim
from plimsoll.scheduler.binding.result import BindFailure, BindSuccess
from tests.coroutines import run_by
from tests.sizes import examples
from tests.unit.scheduler.process.binding_cluster import (
    BEGUN,
    NEW,
    NODE,
    SHARED,
    WRITES,
    BindingCluster,
    FaultyWriter,
    lost,
    refusal,
    results,
    run_scenario,
)

#: Everything that takes or releases something. `reserve` only adds a consumer, and may land at any time.
CONDITIONAL = ("write_allocation", "write_charges", "bind", "unreserve", "clear_charges")


@dataclass
class DelayingWriter(FaultyWriter):
    """Writer whose nth calls of some methods get no definite answer and are delivered by `land`."""

    delays: dict[tuple[str, int], Callable[[], ApiError]] = field(default_factory=dict)
    delayed: list[tuple[str, Callable[[], Awaitable[Any]]]] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        call = super().__getattr__(name)

        async def delaying(*args: Any, **named: Any) -> Any:
            error = self.delays.get((name, self.calls.count(name) + 1))
            if error is None:
                return await call(*args, **named)
            self.calls.append(name)
            self.delayed.append((name, lambda: getattr(self.inner, name)(*args, **named)))
            raise error()

        return delaying if name in CONDITIONAL else call

    async def land(self) -> list[str]:
        """Deliver the delayed writes; return those that the API accepted."""
        taken = []
        for name, call in self.delayed:
            with suppress(ApiError):
                await call()
                taken.append(name)
        return taken


async def check(cluster: BindingCluster, outcome: BindSuccess | BindFailure) -> None:
    if isinstance(outcome, BindSuccess):
        await cluster.check_bound()
        return
    assert outcome.settled
    pod = await cluster.pod()
    assert pod is None or pod.spec.node_name != NODE
    await cluster.check_undone()


@pytest.mark.parametrize("method", CONDITIONAL[:3])
@pytest.mark.parametrize("error", [refusal(500), refusal(504)])
@run_by(run_scenario)
async def test_an_abandoned_write_cannot_take_effect_later(
    cluster: BindingCluster, *, method: str, error: Callable[[], ApiError]
) -> None:
    """A gateway answers 504 to every attempt while the writes are delayed behind it."""
    delays = {(method, count): error for count in range(1, 100)}
    writer = DelayingWriter(cluster, delays=delays)
    outcome = await bind_pod(await cluster.placement(), writer, cluster.on_claim)
    assert isinstance(outcome, BindFailure)
    await check(cluster, outcome)
    assert await writer.land() == []
    await check(cluster, outcome)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.dictionaries(
        st.tuples(st.sampled_from(CONDITIONAL), st.integers(1, 6)),
        st.sampled_from([lost, refusal(500), refusal(504)]),
        max_size=8,
    ),
    st.sampled_from(["", "bind", "write_charges"]),
)
def test_delayed_writes_never_change_the_outcome(delays: dict[Any, Any], refused: str) -> None:
    async def scenario(cluster: BindingCluster) -> None:
        faults = []
        if refused:
            from tests.unit.scheduler.process.binding_cluster import Fault  # noqa: PLC0415

            faults = [Fault(refused, nth=3, error=refusal(403), times=99)]
        writer = DelayingWriter(cluster, faults, delays=delays)
        outcome = await bind_pod(await cluster.placement(), writer, cluster.on_claim)
        await check(cluster, outcome)
        await writer.land()
        await check(cluster, outcome)

    run_scenario(scenario)


@run_by(run_scenario)
async def test_an_existing_reservation_is_confirmed_by_a_write(cluster: BindingCluster) -> None:
    """An earlier attempt's release is in flight while the pod is bound with its reservation."""
    placement = await cluster.placement()
    assert isinstance(await bind_pod(placement, FaultyWriter(cluster), cluster.on_claim), BindSuccess)
    claim = await cluster.claim(NEW)
    release = FaultyWriter(cluster).inner
    consumer = claim.status.reserved_for[0]
    # The pod is tried again, by another process, with all its claims reserved already.
    again = await cluster.placement()
    assert not again.pod_info.unallocated_claims
    assert isinstance(await bind_pod(again, FaultyWriter(cluster), cluster.on_claim), BindSuccess)
    with pytest.raises(ApiError) as refused:
        await release.unreserve(claim, consumer, deallocate=True)
    assert refused.value.code == 409
    await cluster.check_bound()


@pytest.mark.parametrize("stale", [NEW, SHARED])
@run_by(run_scenario)
async def test_a_lost_reservation_is_detected(cluster: BindingCluster, *, stale: str) -> None:
    """A reservation in the cache was released meanwhile: the pod is not bound without devices."""
    placement = await cluster.placement()
    assert isinstance(await bind_pod(placement, FaultyWriter(cluster), cluster.on_claim), BindSuccess)
    again = await cluster.placement()
    nothing = {"status": {"allocation": None, "reservedFor": None, "devices": None}}
    await cluster.client.patch(RESOURCE_CLAIMS, stale, nothing, "default", subresource="status")
    outcome = await bind_pod(again, FaultyWriter(cluster), cluster.on_claim)
    assert isinstance(outcome, BindFailure)
    assert "got deallocated elsewhere in the meantime" in outcome.error


# -- releases


async def reallocate(cluster: BindingCluster, name: str, device: str) -> None:
    nothing = {"status": {"allocation": None, "reservedFor": None, "devices": None}}
    await cluster.client.patch(RESOURCE_CLAIMS, name, nothing, "default", subresource="status")
    status = {"status": {"allocation": results(device)}}
    await cluster.client.patch(RESOURCE_CLAIMS, name, status, "default", subresource="status")


@run_by(run_scenario)
async def test_a_release_leaves_another_allocation_alone(cluster: BindingCluster) -> None:
    """The claim was released and allocated again while our release was in flight."""
    await reallocate(cluster, BEGUN, "gpu-1")
    pod = await cluster.pod()
    assert pod is not None
    claim = await cluster.claim(BEGUN)
    await reallocate(cluster, BEGUN, "gpu-2")
    notified: list[ResourceClaim] = []
    assert await release_claim(claim, pod, FaultyWriter(cluster), notified.append)
    kept = (await cluster.claim(BEGUN)).status.allocation
    assert kept is not None
    assert kept.devices.results[0].device == "gpu-2"
    assert notified[-1].status.allocation == kept, "the snapshot knows what it is now"


@run_by(run_scenario)
async def test_a_release_follows_its_allocation_through_other_changes(cluster: BindingCluster) -> None:
    await reallocate(cluster, BEGUN, "gpu-1")
    pod = await cluster.pod()
    assert pod is not None
    claim = await cluster.claim(BEGUN)
    await cluster.client.patch(RESOURCE_CLAIMS, BEGUN, {"metadata": {"labels": {"a": "b"}}}, "default")
    assert await release_claim(claim, pod, FaultyWriter(cluster), cluster.on_claim)
    assert (await cluster.claim(BEGUN)).status.allocation is None


# -- holders


@run_by(run_scenario)
async def test_a_pod_is_not_bound_to_devices_held_by_others(cluster: BindingCluster) -> None:
    seen: list[list[str]] = []

    def conflict(claims: Any) -> str:
        seen.append(sorted(claim.metadata.name for claim in claims))
        return "dra.example.com/node-1/gpu-new"

    writer = FaultyWriter(cluster)
    outcome = await bind_pod(await cluster.placement(), writer, cluster.on_claim, find_conflict=conflict)
    assert isinstance(outcome, BindFailure)
    assert "device dra.example.com/node-1/gpu-new is allocated to another claim as well" in outcome.error
    assert seen == [sorted((NEW, BEGUN, SHARED))]
    assert "bind" not in writer.calls
    await check(cluster, outcome)


def test_every_conditional_write_is_among_those_tested() -> None:
    assert {*WRITES} - {"add_finalizer", "reserve"} <= {*CONDITIONAL}
