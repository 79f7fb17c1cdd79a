"""Bindings with faults at every step, on an API in memory."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.api.codec import convert
from plimsoll.api.core import Pod
from plimsoll.api.forms import POD_KEY, read_pod
from plimsoll.api.resource import ResourceClaim
from plimsoll.client.endpoints import PODS, RESOURCE_CLAIMS
from plimsoll.errors import ApiError, UnreachableError
from plimsoll.ledger.requests import PodResourcesOptions
from plimsoll.scheduler.binding.bind import bind_pod, release_claim
from plimsoll.scheduler.binding.recovery import plan_recovery
from plimsoll.scheduler.binding.result import BindFailure, BindStep, BindSuccess
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.process.api_writer import ApiWriter
from plimsoll.scheduler.process.binder import PodBinder
from plimsoll.scheduler.process.charge_writer import ChargeForm
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.result import Placement
from tests.coroutines import run_by
from tests.sizes import examples
from tests.unit.apiserver.build import ApiHarness, run
from tests.unit.scheduler.process.binding_cluster import (
    BEGUN,
    KEEP,
    NEW,
    NODE,
    SHARED,
    WRITES,
    BindingCluster,
    Crash,
    Fault,
    FaultyWriter,
    lost,
    pod_tree,
    refusal,
    run_scenario,
)
from tests.waiting import until

STEPS = {
    "add_finalizer": BindStep.FINALIZER,
    "write_allocation": BindStep.ALLOCATION,
    "reserve": BindStep.RESERVATION,
    "write_charges": BindStep.CHARGES,
    "bind": BindStep.BINDING,
}


def bind_with(*faults: Fault, **options: Any) -> tuple[BindSuccess | BindFailure, FaultyWriter]:
    """Bind the pod with faults and check the result against the API."""

    async def scenario(cluster: BindingCluster) -> tuple[BindSuccess | BindFailure, FaultyWriter]:
        writer = FaultyWriter(cluster, list(faults), **options)
        outcome = await bind_pod(await cluster.placement(), writer, cluster.on_claim)
        if isinstance(outcome, BindSuccess):
            await cluster.check_bound()
        elif outcome.settled:
            pod = await cluster.pod()
            assert pod is None or pod.spec.node_name != NODE
            await cluster.check_undone()
        return outcome, writer

    return run_scenario(scenario)


# -- successful bindings


def test_a_binding_takes_the_minimum_of_requests() -> None:
    outcome, writer = bind_with()
    assert isinstance(outcome, BindSuccess)
    assert outcome.node == NODE
    assert sorted(writer.calls) == sorted([*WRITES, "write_allocation"])
    assert writer.inner.requests == 6


def test_the_order_is_claims_then_charges_then_the_binding() -> None:
    _, writer = bind_with()
    assert writer.calls[-2:] == ["write_charges", "bind"]
    assert writer.calls.index("add_finalizer") < len(writer.calls) - 1 - writer.calls[::-1].index(
        "write_allocation"
    )


@run_by(run_scenario)
async def test_binding_again_what_is_bound_changes_nothing(cluster: BindingCluster) -> None:
    placement = await cluster.placement()
    assert isinstance(await bind_pod(placement, FaultyWriter(cluster), cluster.on_claim), BindSuccess)
    revisions = [(await cluster.claim(name)).metadata.resource_version for name in (NEW, BEGUN, SHARED)]
    again = FaultyWriter(cluster)
    assert isinstance(await bind_pod(placement, again, cluster.on_claim), BindSuccess)
    await cluster.check_bound()
    after = [(await cluster.claim(name)).metadata.resource_version for name in (NEW, BEGUN, SHARED)]
    assert after == revisions


# -- each step, each kind of failure


@pytest.mark.parametrize("method", WRITES)
@pytest.mark.parametrize("code", [403, 404, 422])
def test_a_refused_step_undoes_those_before_it(method: str, code: int) -> None:
    outcome, _ = bind_with(Fault(method, error=refusal(code)))
    assert isinstance(outcome, BindFailure)
    assert outcome.settled
    assert outcome.step is STEPS[method]
    assert f"refused with {code}" in outcome.error


@pytest.mark.parametrize("method", WRITES)
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("times", [1, 12])
def test_a_lost_response_is_retried(method: str, after: bool, times: int) -> None:
    outcome, writer = bind_with(Fault(method, error=lost, after=after, times=times))
    assert isinstance(outcome, BindSuccess)
    assert 1 <= writer.pauses <= times


@pytest.mark.parametrize("method", WRITES)
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("code", [429, 500])
def test_transient_errors_are_retried(method: str, after: bool, code: int) -> None:
    outcome, _ = bind_with(Fault(method, error=refusal(code), after=after, times=3))
    assert isinstance(outcome, BindSuccess)


@pytest.mark.parametrize("method", WRITES)
@pytest.mark.parametrize("after", [False, True])
def test_retries_end_if_the_server_keeps_failing(method: str, after: bool) -> None:
    """The result is read back: an applied write counts; otherwise everything is rolled back."""
    outcome, _ = bind_with(Fault(method, error=refusal(500), after=after, times=99))
    done = after and method in ("write_allocation", "reserve", "bind")
    assert isinstance(outcome, BindSuccess if done else BindFailure)
    assert done or (isinstance(outcome, BindFailure) and outcome.settled)


@pytest.mark.parametrize("method", WRITES)
def test_a_lost_response_and_a_refusal_are_rolled_back(method: str) -> None:
    outcome, _ = bind_with(
        Fault(method, error=lost, after=True), Fault(method, nth=2, error=refusal(403), times=99)
    )
    done = method in ("reserve", "bind")
    assert isinstance(outcome, BindSuccess if done else BindFailure)


UNDO = ("clear_charges", "unreserve", "read_claim", "read_pod")


@pytest.mark.parametrize("method", ["reserve", "write_charges", "bind"])
@pytest.mark.parametrize("undo", UNDO)
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("error", [lost, refusal(500), refusal(409, "Conflict")])
def test_undoing_survives_failures_too(method: str, undo: str, after: bool, error: Any) -> None:
    if undo.startswith("read") and error().code == 409:
        error = refusal(503)  # nothing is in the way of a read
    outcome, _ = bind_with(
        Fault(method, error=refusal(409), times=99), Fault(undo, error=error, after=after, times=2)
    )
    assert isinstance(outcome, BindFailure)
    assert outcome.settled


def test_failed_rollbacks_are_reported() -> None:
    outcome, writer = bind_with(
        Fault("bind", error=refusal(403)), Fault("unreserve", error=refusal(403), times=9)
    )
    assert isinstance(outcome, BindFailure)
    assert not outcome.settled
    assert writer.cluster.observed_claims[NEW].status.allocation is not None, (
        "the snapshot still holds the devices"
    )


# -- concurrent changes


async def touch(cluster: BindingCluster) -> None:
    label = {"touched": str(next(_NUMBERS))}
    for name in (NEW, BEGUN, SHARED):
        await cluster.client.patch(RESOURCE_CLAIMS, name, {"metadata": {"labels": label}}, "default")


_NUMBERS = itertools.count()


async def delete_pod(cluster: BindingCluster) -> None:
    await cluster.client.delete(PODS, "p", "default", grace=0)


async def bind_elsewhere(cluster: BindingCluster) -> None:
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "node-2"}}
    await cluster.client.post(PODS, "p", "binding", binding, "default")


@pytest.mark.parametrize("method", WRITES)
def test_a_claim_changed_by_others_is_retried(method: str) -> None:
    outcome, _ = bind_with(Fault(method, act=touch))
    assert isinstance(outcome, BindSuccess)


async def touch_all(cluster: BindingCluster) -> None:
    await touch(cluster)
    condition = {"type": "Reported", "status": "True", "message": str(next(_NUMBERS))}
    patch = {"status": {"conditions": [condition]}}
    await cluster.client.patch(PODS, "p", patch, "default", subresource="status")


@pytest.mark.parametrize("method", WRITES)
def test_objects_that_others_keep_changing_are_written_in_between(method: str) -> None:
    outcome, writer = bind_with(Fault(method, act=touch_all, times=60))
    assert isinstance(outcome, BindSuccess)
    assert writer.pauses == 0
    conditional = method not in ("add_finalizer", "reserve")
    assert (writer.calls.count(method) > 60) is conditional


@pytest.mark.parametrize("undo", ["unreserve", "clear_charges"])
def test_objects_that_others_keep_changing_are_undone_in_between(undo: str) -> None:
    outcome, _ = bind_with(Fault("bind", error=refusal(403)), Fault(undo, act=touch_all, times=60))
    assert isinstance(outcome, BindFailure)
    assert outcome.settled


@run_by(run_scenario)
async def test_a_fence_that_meets_writes_of_others_is_not_a_missing_object(cluster: BindingCluster) -> None:
    """kube-apiserver gives up a patch without a version after five conflicts."""
    writer = ApiWriter(cluster.client)
    claim, pod = await cluster.claim(NEW), await cluster.pod()
    assert pod is not None
    conflict = ApiError(409, "Conflict", "the object has been modified")
    with patch.object(writer.client, "call", busy(writer.client.call, conflict)):
        for fence in (lambda: writer.fence_claim(claim), lambda: writer.fence_pod(pod)):
            with pytest.raises(ApiError):
                await fence()
    await cluster.client.delete(PODS, "p", "default", grace=0)
    await cluster.client.create(PODS, pod_tree(), "default")
    assert await writer.fence_pod(pod) is None, "another pod has its name"


def busy(call: Any, error: ApiError) -> Any:
    async def refuse_patches(method: str, *args: Any, **named: Any) -> Any:
        if method == "PATCH":
            raise error
        return await call(method, *args, **named)

    return refuse_patches


@pytest.mark.parametrize("method", WRITES)
def test_a_deleted_pod_is_rolled_back(method: str) -> None:
    outcome, _ = bind_with(Fault(method, act=delete_pod))
    assert isinstance(outcome, BindFailure)
    assert (outcome.settled, outcome.final) == (True, True)


@pytest.mark.parametrize("method", WRITES)
def test_a_pod_bound_by_another_scheduler_is_left_alone(method: str) -> None:
    outcome, _ = bind_with(Fault(method, act=bind_elsewhere))
    assert isinstance(outcome, BindFailure)
    assert (outcome.step, outcome.settled, outcome.final) == (BindStep.BINDING, True, True)


def test_a_pod_of_the_same_name_is_another_pod() -> None:
    async def replace(cluster: BindingCluster) -> None:
        tree = await cluster.client.get(PODS, "p", "default")
        await delete_pod(cluster)
        meta = {"name": "p", "annotations": tree["metadata"]["annotations"]}
        await cluster.client.create(PODS, {**tree, "metadata": meta, "status": {}}, "default")

    for method in WRITES:
        outcome, _ = bind_with(Fault(method, act=replace))
        assert isinstance(outcome, BindFailure)
        assert (outcome.settled, outcome.final) == (True, True)
        assert "with UID" in outcome.error


@pytest.mark.parametrize("method", ["add_finalizer", "write_allocation"])
@run_by(run_scenario)
async def test_devices_allocated_by_others_are_left_alone(cluster: BindingCluster, *, method: str) -> None:
    async def allocate(cluster: BindingCluster) -> None:
        status: dict[str, Any] = {"allocation": {"devices": {"results": []}}}
        for name in (NEW, BEGUN):
            await cluster.client.patch(
                RESOURCE_CLAIMS, name, {"status": status}, "default", subresource="status"
            )

    writer = FaultyWriter(cluster, [Fault(method, act=allocate)])
    outcome = await bind_pod(await cluster.placement(), writer, cluster.on_claim)
    assert isinstance(outcome, BindFailure)
    assert outcome.settled
    assert "got allocated elsewhere in the meantime" in outcome.error
    for name in (NEW, BEGUN):
        claim = await cluster.claim(name)
        assert claim.status.allocation is not None
        assert claim.status.allocation.devices.results == ()
        assert claim.status.reserved_for == ()


@run_by(run_scenario)
async def test_a_claim_allocated_differently_is_not_used(cluster: BindingCluster) -> None:
    async def reallocate(cluster: BindingCluster) -> None:
        nothing = {"status": {"allocation": None, "reservedFor": None, "devices": None}}
        await cluster.client.patch(RESOURCE_CLAIMS, SHARED, nothing, "default", subresource="status")
        found = {"request": "r", "driver": "dra.example.com", "pool": "far", "device": "x"}
        status = {"status": {"allocation": {"devices": {"results": [found]}}}}
        await cluster.client.patch(RESOURCE_CLAIMS, SHARED, status, "default", subresource="status")

    writer = FaultyWriter(cluster, [Fault("reserve", act=reallocate)])
    outcome = await bind_pod(await cluster.placement(), writer, cluster.on_claim)
    assert isinstance(outcome, BindFailure)
    assert (outcome.step, outcome.settled) == (BindStep.RESERVATION, True)
    claim = await cluster.claim(SHARED)
    assert claim.status.reserved_for == ()
    assert claim.status.allocation is not None, "its devices were not ours to take away"


@run_by(run_scenario)
async def test_a_pod_whose_claims_were_replaced_is_not_bound(cluster: BindingCluster) -> None:
    async def name_claim(cluster: BindingCluster, claim: str = NEW) -> None:
        names = [{"name": "c", "resourceClaimName": claim}]
        status = {"status": {"resourceClaimStatuses": names}}
        await cluster.client.patch(PODS, "t", status, "default", subresource="status")

    tree = pod_tree("t", ("c",))
    tree["spec"]["resourceClaims"] = [{"name": "c", "resourceClaimTemplateName": "any"}]
    await cluster.client.create(PODS, tree, "default")
    await name_claim(cluster, SHARED)
    pod = convert(await cluster.client.get(PODS, "t", "default"), Pod)
    pod_info = PodInfo(pod, (await cluster.claim(SHARED),), PodResourcesOptions())
    writer = FaultyWriter(cluster, [Fault("bind", act=name_claim)])
    outcome = await bind_pod(Placement(pod_info, 0, NODE), writer, cluster.on_claim)
    assert isinstance(outcome, BindFailure)
    assert "claims of pod default/t got replaced in the meantime" in outcome.error
    assert not (await cluster.client.get(PODS, "t", "default"))["spec"].get("nodeName")
    assert [each.name for each in (await cluster.claim(SHARED)).status.reserved_for] == ["other"]


def test_a_claim_that_is_deleted_meanwhile_gets_no_devices() -> None:
    async def delete(cluster: BindingCluster) -> None:
        await cluster.client.delete(RESOURCE_CLAIMS, NEW, "default")

    for method in ("add_finalizer", "write_allocation"):
        outcome, _ = bind_with(Fault(method, act=delete, nth=1))
        assert isinstance(outcome, BindFailure)
        assert outcome.settled


@run_by(run_scenario)
async def test_a_failed_binding_releases_its_devices(cluster: BindingCluster) -> None:
    writer = FaultyWriter(cluster, [Fault("bind", error=refusal(403))])
    assert isinstance(await bind_pod(await cluster.placement(), writer, cluster.on_claim), BindFailure)
    await cluster.check_undone()
    again = await bind_pod(await cluster.placement(), FaultyWriter(cluster), cluster.on_claim)
    assert isinstance(again, BindSuccess)
    await cluster.check_bound()


@run_by(run_scenario)
async def test_devices_another_pod_has_reserved_meanwhile_stay(cluster: BindingCluster) -> None:
    async def join(cluster: BindingCluster) -> None:
        other = {"resource": "pods", "name": "q", "uid": "uid-q"}
        patch = {"status": {"reservedFor": [other]}}
        await cluster.client.patch(
            RESOURCE_CLAIMS, NEW, patch, "default", subresource="status", type="strategic"
        )

    writer = FaultyWriter(cluster, [Fault("bind", act=join, error=refusal(403))])
    outcome = await bind_pod(await cluster.placement(), writer, cluster.on_claim)
    assert isinstance(outcome, BindFailure)
    assert outcome.settled
    claim = await cluster.claim(NEW)
    assert claim.status.allocation is not None
    assert [each.uid for each in claim.status.reserved_for] == ["uid-q"]


# -- crashes


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(WRITES), st.booleans()), max_size=5))
def test_after_any_crashes_a_repeat_binds_exactly_once(crashes: list[tuple[str, bool]]) -> None:
    async def scenario(cluster: BindingCluster) -> None:
        for method, after in crashes:
            writer = FaultyWriter(cluster, [Fault(method, error=Crash, after=after)])
            with suppress(Crash):  # or that write was not needed any more
                await bind_pod(await cluster.placement(), writer, cluster.on_claim)
            cluster.observed_claims.clear()
            # what a restart finds is for this pod, and nothing of it is to be released
            pod = await cluster.pod()
            assert pod is not None
            claims = [await cluster.claim(name) for name in (NEW, BEGUN, SHARED)]
            found = plan_recovery(claims, [pod, other_pod(pod)])
            assert found.released == ()
            if pod.spec.node_name:
                break
        outcome = await bind_pod(await cluster.placement(), FaultyWriter(cluster), cluster.on_claim)
        assert isinstance(outcome, BindSuccess)
        await cluster.check_bound()
        events = await bound_times(cluster)
        assert events == 1

    run_scenario(scenario)


def other_pod(pod: Any) -> Any:
    from msgspec.structs import replace  # noqa: PLC0415

    return replace(pod, metadata=replace(pod.metadata, name="other", uid="uid-other"))


async def bound_times(cluster: BindingCluster) -> int:
    """Return the number of bindings in the pod's history."""
    listing = await cluster.client.list(PODS, "default")
    events = await cluster.harness.watch("/api/v1/namespaces/default/pods", 1, resourceVersion="0")
    assert listing.items
    return sum(1 for event in events if event["object"]["spec"].get("nodeName") == NODE)


# -- charges


def test_a_server_that_drops_charges_gets_them_with_the_binding() -> None:
    from plimsoll.api.gates import Gates  # noqa: PLC0415

    async def on(harness: ApiHarness) -> None:
        cluster = await BindingCluster(harness).build()
        writer = ApiWriter(cluster.client)
        placement = await cluster.placement()
        assert isinstance(await bind_pod(placement, writer, cluster.on_claim), BindSuccess)
        pod = await cluster.pod()
        assert pod is not None
        assert not pod.status.node_allocatable_resource_claim_statuses
        assert POD_KEY in pod.metadata.annotations
        await cluster.check_bound()

    run(on, Gates.of({"DRANodeAllocatableResources": False}))


@run_by(run_scenario)
async def test_a_server_that_keeps_charges_gets_them_in_the_status(cluster: BindingCluster) -> None:
    writer = ApiWriter(cluster.client)
    assert isinstance(await bind_pod(await cluster.placement(), writer, cluster.on_claim), BindSuccess)
    pod = await cluster.pod()
    assert pod is not None
    assert POD_KEY not in pod.metadata.annotations
    await cluster.check_bound()


@pytest.mark.parametrize("charge_form", list(ChargeForm))
def test_every_form_is_written_and_taken_back(charge_form: ChargeForm) -> None:
    outcome, _ = bind_with(charge_form=charge_form)
    assert isinstance(outcome, BindSuccess)
    outcome, _ = bind_with(Fault("bind", error=refusal(403)), charge_form=charge_form)
    assert isinstance(outcome, BindFailure)


@run_by(run_scenario)
async def test_stale_charges_are_cleared_before_binding(cluster: BindingCluster) -> None:
    forged = '[{"resourceClaimName":"new","containers":["main"],"resources":{"cpu":"1m"}}]'
    patch = {"metadata": {"annotations": {POD_KEY: forged}}}
    await cluster.client.patch(PODS, "p", patch, "default")
    placement = await cluster.placement(charges=False)
    assert isinstance(await bind_pod(placement, FaultyWriter(cluster), cluster.on_claim), BindSuccess)
    pod = await cluster.pod()
    assert pod is not None
    assert read_pod(pod) == ()
    assert pod.metadata.annotations == {KEEP: "pod"}


# -- giving up a claim


@run_by(run_scenario)
async def test_an_unused_claim_can_be_deallocated(cluster: BindingCluster) -> None:
    assert isinstance(
        await bind_pod(await cluster.placement(), FaultyWriter(cluster), cluster.on_claim), BindSuccess
    )
    pod = await cluster.pod()
    assert pod is not None
    assert await release_claim(await cluster.claim(NEW), pod, FaultyWriter(cluster), cluster.on_claim)
    assert (await cluster.claim(NEW)).status.allocation is None
    assert cluster.observed_claims[NEW].status.allocation is None
    assert await release_claim(await cluster.claim(SHARED), pod, FaultyWriter(cluster), cluster.on_claim)
    shared = await cluster.claim(SHARED)
    assert shared.status.allocation is not None
    assert [each.uid for each in shared.status.reserved_for] == ["uid-other"]


# -- many at a time


@run_by(run_scenario)
async def test_bindings_run_side_by_side_up_to_their_limit(cluster: BindingCluster) -> None:
    placements = await cluster.placements(8)
    running, most, done = 0, 0, []
    go = asyncio.Event()

    class Slow(FaultyWriter):
        def __getattr__(self, name: str) -> Any:
            method = super().__getattr__(name)

            async def call(*args: Any, **named: Any) -> Any:
                nonlocal running, most
                running += 1
                most = max(most, running)
                await go.wait()
                running -= 1
                return await method(*args, **named)

            return call if name == "bind" else method

    bindings = PodBinder(Slow(cluster), cluster.on_claim, lambda p, o: done.append(o), limit=3)
    for placement in placements:
        bindings.start(placement)
    assert len(bindings) == 8
    assert bindings.is_full
    await until(lambda: running >= 3)
    await asyncio.sleep(0.01)  # a fourth would show by now
    go.set()
    assert await bindings.drain(20) == 0
    assert len(done) == 8
    assert all(isinstance(each, BindSuccess) for each in done)
    assert most == 3


@run_by(run_scenario)
async def test_a_binding_that_hangs_is_broken_off_at_the_end(cluster: BindingCluster) -> None:
    async def hang(_: BindingCluster) -> None:
        await asyncio.Event().wait()

    writer = FaultyWriter(cluster, [Fault("bind", act=hang)])
    bindings = PodBinder(writer, cluster.on_claim, lambda p, o: None)
    bindings.start(await cluster.placement())
    await asyncio.sleep(0)
    assert await bindings.drain(0.01) == 1
    assert len(bindings) == 0
    outcome = await bind_pod(await cluster.placement(), FaultyWriter(cluster), cluster.on_claim)
    assert isinstance(outcome, BindSuccess)
    await cluster.check_bound()


@run_by(run_scenario)
async def test_an_internal_error_in_one_binding_is_reported_and_isolated(cluster: BindingCluster) -> None:
    done: list[tuple[Placement, BindSuccess | BindFailure]] = []
    writer = FaultyWriter(cluster, [Fault("bind", error=lambda: ValueError("a bug"))])
    bindings = PodBinder(writer, cluster.on_claim, lambda p, o: done.append((p, o)))
    placements = await cluster.placements(2)
    for placement in placements:
        bindings.start(placement)
    await bindings.drain(5)
    outcomes = {each.pod_info.key: outcome for each, outcome in done}
    first, second = (outcomes[each.pod_info.key] for each in placements)
    assert isinstance(first, BindFailure)
    assert (first.settled, first.error) == (False, "ValueError: a bug")
    assert isinstance(second, BindSuccess)


# -- devices that have to be made ready


def ready(claim: ResourceClaim, status: str, kind: str = "Attached") -> dict[str, Any]:
    assert claim.status.allocation is not None
    result = claim.status.allocation.devices.results[0]
    timestamp = "2026-01-01T00:00:00Z"
    condition = {"type": kind, "status": status, "reason": "Reported", "message": "so"}
    condition["lastTransitionTime"] = timestamp
    device = {"driver": result.driver, "pool": result.pool, "device": result.device}
    return {"status": {"devices": [{**device, "conditions": [condition]}]}}


@pytest.mark.parametrize(("kind", "notified"), list(itertools.product(["Attached", "Broken"], [False, True])))
@run_by(run_scenario)
async def test_devices_are_waited_for(cluster: BindingCluster, *, kind: str, notified: bool) -> None:
    """A claim informer reports changes; without one, claims are read again."""
    conditions: dict[str, Any] = {
        "bindingConditions": ["Attached"],
        "bindingFailureConditions": ["Broken"],
    }
    placement = await cluster.placement(**conditions)
    writer = ApiWriter(cluster.client, ChargeForm.V1_36, now=lambda: cluster.harness.now)
    writer.claim_waiters.poll = 0.01 if not notified else 60.0
    task = asyncio.create_task(bind_pod(placement, writer, cluster.on_claim))
    while len(writer.claim_waiters) == 0:
        await asyncio.sleep(0)
    for name in (NEW, BEGUN):
        patch = ready(await cluster.claim(name), "True", kind)
        await cluster.client.patch(RESOURCE_CLAIMS, name, patch, "default", subresource="status")
        if notified:
            await asyncio.sleep(0)
            writer.claim_waiters.notify(await cluster.claim(name))
            while not task.done() and len(writer.claim_waiters) == 0:
                await asyncio.sleep(0)
    outcome = await task
    if kind == "Attached":
        assert isinstance(outcome, BindSuccess)
        await cluster.check_bound()
    else:
        assert isinstance(outcome, BindFailure)
        assert (outcome.step, outcome.settled) == (BindStep.CONDITIONS, True)
        assert 'device binding failed: claim=new, reason=Reported, message="so"' in outcome.error
        await cluster.check_undone()
    assert len(writer.claim_waiters) == 0


@run_by(run_scenario)
async def test_devices_that_take_too_long_are_given_up(cluster: BindingCluster) -> None:
    placement = await cluster.placement(bindingConditions=["Attached"], bindingFailureConditions=["Broken"])
    writer = ApiWriter(cluster.client, ChargeForm.V1_36, now=lambda: cluster.harness.now)
    hasty = placement.pod_info.with_profile(SchedulerProfile(binding_timeout_ms=1000))
    outcome = await bind_pod(replace(placement, pod_info=hasty), writer, cluster.on_claim)
    assert isinstance(outcome, BindFailure)
    assert outcome.error.endswith("device binding timeout: claim=new")
    assert outcome.settled
    await cluster.check_undone()


@pytest.mark.parametrize("sets_timestamps", [True, False])
@run_by(run_scenario)
async def test_every_allocation_has_its_time(cluster: BindingCluster, *, sets_timestamps: bool) -> None:
    """kube-scheduler sets it while DRADeviceBindingConditions is on, whatever the devices need."""
    writer = ApiWriter(
        cluster.client,
        ChargeForm.V1_36,
        now=lambda: cluster.harness.now,
        sets_timestamps=sets_timestamps,
    )
    placement = await cluster.placement()
    assert isinstance(await bind_pod(placement, writer, cluster.on_claim), BindSuccess)
    claim = await cluster.claim(NEW)
    assert claim.status.allocation is not None
    timestamp = "2026-01-02T03:04:05Z" if sets_timestamps else None
    assert claim.status.allocation.allocation_timestamp == timestamp
    assert claim.status.allocation.devices == placement.allocations[NEW].devices


@run_by(run_scenario)
async def test_a_reservation_does_not_change_the_allocation(cluster: BindingCluster) -> None:
    before = (await cluster.claim(SHARED)).status.allocation
    assert before is not None
    assert before.allocation_timestamp is None
    outcome = await bind_pod(await cluster.placement(), FaultyWriter(cluster), cluster.on_claim)
    assert isinstance(outcome, BindSuccess)
    assert (await cluster.claim(SHARED)).status.allocation == before


def test_backoff_grows_and_is_reported() -> None:
    claim_waiters: list[float] = []

    async def sleep(seconds: float) -> None:
        claim_waiters.append(seconds)

    async def scenario(cluster: BindingCluster) -> None:
        writer = ApiWriter(cluster.client, sleep=sleep)
        for attempt in (1, 4, 8, 50):
            await writer.pause(attempt, UnreachableError("no answer", sent=True))

    run_scenario(scenario)
    assert claim_waiters[0] < claim_waiters[1] < claim_waiters[2]
    assert max(claim_waiters) <= 5.0


@run_by(run_scenario)
async def test_refusals_of_the_api_are_api_errors(cluster: BindingCluster) -> None:
    writer = ApiWriter(cluster.client)
    claim = await cluster.claim(NEW)
    await cluster.client.patch(RESOURCE_CLAIMS, NEW, {"metadata": {"finalizers": None}}, "default")
    await cluster.client.delete(RESOURCE_CLAIMS, NEW, "default")
    assert await writer.read_claim(claim) is None
    with pytest.raises(ApiError):
        await writer.add_finalizer(claim)
