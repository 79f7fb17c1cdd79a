"""Checks of a pod's claims before any node is considered."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.api.core import Pod
from plimsoll.api.gates import Gates
from plimsoll.scheduler.pod_claims import RESERVED_MAX, ClaimMessage, find_claims, read_pod_info
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.reasons import NodeReason, render
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from tests.build import claim, device_class, exactly, first_available, node, pod
from tests.unit.scheduler.snapshots import snapshot_of


def refusal(pod: Pod, snapshot: Snapshot) -> str:
    found = read_pod_info(pod, snapshot)
    assert isinstance(found, NodeReason)
    assert not found.resolvable
    return render(found)


def from_template(made: str | None, name: str = "p", status: bool = True) -> Pod:
    statuses = [{"name": "r", "resourceClaimName": made} if made else {"name": "r"}]
    return pod(
        name,
        resource_claims=[{"name": "r", "resourceClaimTemplateName": "t"}],
        status={"resourceClaimStatuses": statuses} if status else {},
    )


def owned(name: str, uid: str = "uid-p", **fields: Any) -> Any:
    owners = [{"kind": "Pod", "name": "p", "uid": uid, "controller": True}]
    return claim(name, exactly(), metadata={"ownerReferences": owners, **fields})


def test_a_pod_without_claims_needs_nothing() -> None:
    found = read_pod_info(pod("p"), snapshot_of())
    assert isinstance(found, PodInfo)
    assert found.claims == ()


def test_named_claims_are_found_once_each() -> None:
    mine = claim("c", exactly())
    snapshot = snapshot_of(mine, device_class())
    found = read_pod_info(pod("p", claims={"one": "c", "two": "c"}), snapshot)
    assert isinstance(found, PodInfo)
    assert found.claims == (mine,)
    assert found.unallocated_claims == (mine,)


def test_a_missing_claim() -> None:
    assert refusal(pod("p", claims=["c"]), snapshot_of()) == 'could not find ResourceClaim "c"'


def test_a_claim_that_is_not_generated_yet() -> None:
    found = read_pod_info(from_template(None, status=False), snapshot_of())
    assert isinstance(found, NodeReason)
    assert found.message is ClaimMessage.NOT_CREATED


def test_an_entry_without_a_claim_is_skipped() -> None:
    found = read_pod_info(from_template(None), snapshot_of())
    assert isinstance(found, PodInfo)
    assert found.claims == ()


def test_a_generated_claim_must_belong_to_the_pod() -> None:
    assert isinstance(read_pod_info(from_template("c"), snapshot_of(owned("c"), device_class())), PodInfo)
    text = refusal(from_template("c"), snapshot_of(owned("c", uid="another"), device_class()))
    assert text == "ResourceClaim default/c was not created for Pod default/p (Pod is not owner)"


def test_a_named_claim_may_belong_to_anyone() -> None:
    snapshot = snapshot_of(owned("c", uid="another"), device_class())
    assert isinstance(read_pod_info(pod("p", claims=["c"]), snapshot), PodInfo)


def test_a_claim_being_deleted() -> None:
    gone = claim("c", exactly(), metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    assert refusal(pod("p", claims=["c"]), snapshot_of(gone)) == 'resourceclaim "c" is being deleted'


@pytest.mark.parametrize(
    ("request_", "where"),
    [
        (exactly("r", device_class="no-such"), "r"),
        (first_available("r", exactly("a", device_class="no-such")), "r/a"),
    ],
)
def test_an_unknown_class(request_: Any, where: str) -> None:
    snapshot = snapshot_of(claim("c", request_))
    text = f"request {where}: device class no-such does not exist"
    assert refusal(pod("p", claims=["c"]), snapshot) == text


def test_a_claim_has_at_most_256_consumers() -> None:
    users = [f"user-{number}" for number in range(RESERVED_MAX)]
    results = [{"request": "r", "driver": "d", "pool": "p", "device": "x"}]
    full = claim("c", exactly(), results=results, reserved=users)
    assert refusal(pod("p", claims=["c"]), snapshot_of(full)) == "resourceclaim in use"
    assert isinstance(read_pod_info(pod("user-3", claims=["c"]), snapshot_of(full)), PodInfo)


def test_allocated_claims_need_no_class() -> None:
    results = [{"request": "r", "driver": "d", "pool": "p", "device": "x"}]
    held = claim("c", exactly(), results=results)
    found = read_pod_info(pod("p", claims=["c"]), snapshot_of(held))
    assert isinstance(found, PodInfo)
    assert found.unallocated_claims == ()


def test_without_the_gate_claims_are_ignored() -> None:
    gates = Gates.parse("DynamicResourceAllocation=false")
    found = read_pod_info(pod("p", claims=["c"]), snapshot_of(node("n"), gates=gates))
    assert isinstance(found, PodInfo)
    assert found.claims == ()


def test_missing_claims_are_reported_before_an_attempt() -> None:
    assert isinstance(find_claims(pod("p", claims=["c"]), snapshot_of()), NodeReason)
