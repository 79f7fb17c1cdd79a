"""Binding of a pod whose extended resources devices serve, with faults at every step."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from plimsoll.api.codec import convert, decode
from plimsoll.api.core import Pod
from plimsoll.api.forms import read_pod
from plimsoll.api.pod_claims import find_requesting_pod
from plimsoll.api.resource import AllocationResult, ResourceClaim
from plimsoll.client.endpoints import PODS, RESOURCE_CLAIMS
from plimsoll.ledger.claims import ChargedClaim
from plimsoll.ledger.requests import PodResourcesOptions
from plimsoll.scheduler.binding.bind import bind_pod, release_claim
from plimsoll.scheduler.binding.result import BindFailure, BindStep, BindSuccess
from plimsoll.scheduler.binding.writer import FINALIZER
from plimsoll.scheduler.extended_resources import build_claim
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.result import Placement
from tests.coroutines import run_by
from tests.sizes import examples
from tests.unit.apiserver.build import ApiHarness, run
from tests.unit.scheduler.process.binding_cluster import (
    NODE,
    BindingCluster,
    Fault,
    FaultyWriter,
    charge,
    lost,
    refusal,
    results,
)

GPU = "example.com/gpu"
WRITES = ("create_claim", "write_allocation", "write_claim_status", "write_charges", "bind")
STEPS = {
    "create_claim": BindStep.CREATION,
    "write_allocation": BindStep.ALLOCATION,
    "write_claim_status": BindStep.CLAIM_STATUS,
    "write_charges": BindStep.CHARGES,
    "bind": BindStep.BINDING,
}


class ExtendedCluster(BindingCluster):
    """Pod with an extended resource that a class serves."""

    async def build(self) -> ExtendedCluster:
        resources = {"requests": {GPU: "1"}, "limits": {GPU: "1"}}
        spec = {"containers": [{"name": "main", "image": "i", "resources": resources}]}
        await self.client.create(PODS, {"metadata": {"name": "p"}, "spec": spec}, "default")
        return self

    async def placement(self, *, charges: bool = True, provided: bool = False, **more: Any) -> Placement:
        pod = await self.pod()
        assert pod is not None
        claimed, built = build_claim(pod, {} if provided else {GPU: "gpu"})
        claims = () if built is None else (built,)
        pod_info = PodInfo(claimed, claims, PodResourcesOptions(), stored=pod)
        name = "" if built is None else built.metadata.name
        request = {"request": "container-0-request-0", **more}
        allocations = {name: convert(results("gpu-0", **request), AllocationResult)} if name else {}
        charged = (ChargedClaim(charge(name, "2")),) if charges and name else ()
        return Placement(pod_info, 0, NODE, allocations, charged)

    async def claims(self) -> list[ResourceClaim]:
        listing = await self.client.list(RESOURCE_CLAIMS, "default")
        return [decode(raw, ResourceClaim) for raw in listing.items]

    async def check_bound(self) -> None:
        pod = await self.pod()
        assert pod is not None
        (claim,) = await self.claims()
        assert claim.metadata.name.startswith("p-extended-resources-")
        assert len(claim.metadata.name) == len("p-extended-resources-") + 5
        assert claim.metadata.finalizers == (FINALIZER,)
        owner = find_requesting_pod(claim)
        assert owner is not None
        assert (owner.name, owner.uid) == ("p", pod.metadata.uid)
        assert claim.status.allocation is not None
        assert [each.uid for each in claim.status.reserved_for] == [pod.metadata.uid]
        assert pod.spec.node_name == NODE
        status = pod.status.extended_resource_claim_status
        assert status is not None
        assert status.resource_claim_name == claim.metadata.name
        (mapping,) = status.request_mappings
        assert (mapping.container_name, mapping.resource_name, mapping.request_name) == (
            "main", GPU, "container-0-request-0",
        )  # fmt: skip
        (charged,) = read_pod(pod)
        assert charged.claim == claim.metadata.name

    async def check_undone(self) -> None:
        pod = await self.pod()
        if pod is not None:
            assert read_pod(pod) == ()
            assert pod.status.extended_resource_claim_status is None
        assert await self.claims() == []


def bind_with(*faults: Fault) -> tuple[BindSuccess | BindFailure, FaultyWriter]:
    """Bind the pod with faults and check the result against the API."""

    async def scenario(harness: ApiHarness) -> tuple[BindSuccess | BindFailure, FaultyWriter]:
        cluster = await ExtendedCluster(harness).build()
        writer = SyncNames(cluster, list(faults))
        outcome = await bind_pod(await cluster.placement(), writer, cluster.on_claim)
        if isinstance(outcome, BindSuccess):
            await cluster.check_bound()
        elif outcome.settled:
            pod = await cluster.pod()
            assert pod is None or pod.spec.node_name != NODE
            await cluster.check_undone()
        return outcome, writer

    return run(scenario)


class SyncNames(FaultyWriter):
    """`FaultyWriter` whose names are chosen without a call."""

    def name_claim(self, claim: ResourceClaim) -> ResourceClaim:
        return self.inner.name_claim(claim)


def test_a_claim_for_extended_resources_is_created_with_its_finalizer() -> None:
    outcome, writer = bind_with()
    assert isinstance(outcome, BindSuccess)
    assert writer.calls == list(WRITES)
    assert writer.inner.requests == len(WRITES)


@pytest.mark.parametrize("method", WRITES)
@pytest.mark.parametrize("code", [403, 404, 422])
def test_a_refused_step_leaves_nothing(method: str, code: int) -> None:
    outcome, _ = bind_with(Fault(method, error=refusal(code)))
    assert isinstance(outcome, BindFailure)
    assert outcome.settled
    assert outcome.step is STEPS[method]
    assert f"refused with {code}" in outcome.error


@pytest.mark.parametrize("method", WRITES)
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("times", [1, 7])
def test_a_lost_response_is_retried(method: str, after: bool, times: int) -> None:
    """A creation that was carried out is found by its name: there is one claim."""
    outcome, writer = bind_with(Fault(method, error=lost, after=after, times=times))
    assert isinstance(outcome, BindSuccess)
    assert 1 <= writer.pauses <= times


@pytest.mark.parametrize("method", WRITES)
@pytest.mark.parametrize("after", [False, True])
def test_retries_end_if_the_server_keeps_failing(method: str, after: bool) -> None:
    outcome, _ = bind_with(Fault(method, error=refusal(500), after=after, times=99))
    done = after and method in ("create_claim", "write_allocation", "write_claim_status", "bind")
    assert isinstance(outcome, BindSuccess if done else BindFailure)
    assert done or (isinstance(outcome, BindFailure) and outcome.settled)


@pytest.mark.parametrize("undo", ["remove_finalizer", "delete_claim", "clear_charges"])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("error", [lost, refusal(500), refusal(409)])
def test_the_undo_survives_faults(undo: str, after: bool, error: Any) -> None:
    outcome, _ = bind_with(Fault("bind", error=refusal(403)), Fault(undo, error=error, after=after))
    assert isinstance(outcome, BindFailure)
    assert outcome.settled


@given(
    st.lists(
        st.builds(
            Fault,
            st.sampled_from([*WRITES, "remove_finalizer", "delete_claim", "find_claim", "read_pod"]),
            nth=st.integers(1, 2),
            error=st.sampled_from([lost, refusal(409), refusal(500)]),
            after=st.booleans(),
        ),
        max_size=3,
    )
)
@settings(max_examples=examples(30), deadline=None)
def test_any_faults_leave_a_bound_pod_or_nothing(faults: list[Fault]) -> None:
    bind_with(*faults)


@run_by(run)
async def test_a_taken_name_is_replaced_by_another(harness: ApiHarness) -> None:
    async def take(cluster: BindingCluster) -> None:
        for letter in "bcdf":
            spec: Any = {"devices": {"requests": []}}
            tree = {"metadata": {"name": f"other-{letter}"}, "spec": spec}
            await cluster.client.create(RESOURCE_CLAIMS, tree, "default")

    cluster = await ExtendedCluster(harness).build()
    await take(cluster)
    names = iter(["other-b", "other-c", "p-extended-resources-free1"])

    class Taken(SyncNames):
        def name_claim(self, claim: ResourceClaim) -> ResourceClaim:
            tree = self.inner.name_claim(claim)
            return convert_name(tree, next(names))

    outcome = await bind_pod(await cluster.placement(), Taken(cluster), cluster.on_claim)
    assert isinstance(outcome, BindSuccess)
    (claim,) = outcome.claims
    assert claim.metadata.name == "p-extended-resources-free1"


def convert_name(claim: ResourceClaim, name: str) -> ResourceClaim:
    return replace(claim, metadata=replace(claim.metadata, name=name))


@run_by(run)
async def test_a_failed_binding_leaves_no_claim_status(harness: ApiHarness) -> None:
    cluster = await ExtendedCluster(harness).build()
    failing = SyncNames(cluster, [Fault("bind", error=refusal(403))])
    outcome = await bind_pod(await cluster.placement(), failing, cluster.on_claim)
    assert isinstance(outcome, BindFailure)
    await cluster.check_undone()
    # What a killed process left is removed as well, if the next node provides the resource itself.
    status = {
        "resourceClaimName": "gone",
        "requestMappings": [{"containerName": "main", "resourceName": GPU, "requestName": "r"}],
    }
    patch = {"status": {"extendedResourceClaimStatus": status}}
    await cluster.client.patch(PODS, "p", patch, "default", subresource="status")
    placement = await cluster.placement(provided=True)
    assert isinstance(await bind_pod(placement, SyncNames(cluster), cluster.on_claim), BindSuccess)
    pod = await cluster.pod()
    assert pod is not None
    assert pod.spec.node_name == NODE
    assert pod.status.extended_resource_claim_status is None


@run_by(run)
async def test_a_server_that_drops_the_status_is_noticed(harness: ApiHarness) -> None:
    """A pod without it would be rejected by its node."""
    cluster = await ExtendedCluster(harness).build()

    class Dropping(SyncNames):
        async def write_claim_status(self, pod: Pod, status: Any) -> Pod:
            return pod

    outcome = await bind_pod(await cluster.placement(), Dropping(cluster), cluster.on_claim)
    assert isinstance(outcome, BindFailure)
    assert "feature gate DRAExtendedResource" in outcome.error
    await cluster.check_undone()


@pytest.mark.parametrize("deleted", [False, True])
@run_by(run)
async def test_a_left_claim_is_deleted(harness: ApiHarness, *, deleted: bool) -> None:
    cluster = await ExtendedCluster(harness).build()
    placement = await cluster.placement(charges=False)
    writer = SyncNames(cluster)
    assert isinstance(await bind_pod(placement, writer, cluster.on_claim), BindSuccess)
    (claim,) = await cluster.claims()
    if deleted:
        await cluster.client.delete(RESOURCE_CLAIMS, claim.metadata.name, "default")
    assert await release_claim(claim, placement.pod_info.stored, writer, cluster.on_claim)
    assert await cluster.claims() == []
