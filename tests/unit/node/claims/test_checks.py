"""Checks of a pod's claims: the kubelet's, in its order and with its messages."""

from __future__ import annotations

import msgspec
import pytest

from plimsoll.api.core import (
    ExtendedResourceClaimStatus,
    Pod,
    PodResourceClaim,
    PodResourceClaimStatus,
    PodSchedulingGroup,
    PodStatus,
)
from plimsoll.api.meta import OwnerReference
from plimsoll.api.resource import DeviceRequestAllocationResult, ResourceClaim, ResourceClaimConsumerReference
from plimsoll.node.claim_info import AllocatedDevice
from plimsoll.node.claims.checks import read_claims
from tests.unit.node.claims.fake_drivers import GPU, NIC, make_claim, make_pod

replace = msgspec.structs.replace


def generated(status: str | None = "made", *, recorded: bool = True) -> Pod:
    """Return a pod whose claim is generated from a template."""
    pod = make_pod("p")
    reference = PodResourceClaim(name="mine", resource_claim_template_name="t")
    statuses = (PodResourceClaimStatus(name="mine", resource_claim_name=status),) if recorded else ()
    return replace(
        pod,
        spec=replace(pod.spec, resource_claims=(reference,)),
        status=PodStatus(resource_claim_statuses=statuses),
    )


def grouped(pod: Pod) -> Pod:
    return replace(pod, spec=replace(pod.spec, scheduling_group=PodSchedulingGroup(pod_group_name="g")))


def owned(claim: ResourceClaim, **owner: object) -> ResourceClaim:
    reference = msgspec.convert({"controller": True, **owner}, OwnerReference)
    return replace(claim, metadata=replace(claim.metadata, owner_references=(reference,)))


def unallocated(claim: ResourceClaim) -> ResourceClaim:
    return replace(claim, status=replace(claim.status, allocation=None))


CLAIM = make_claim("a", users=["p"])
MADE = make_claim("made", users=["p"])


@pytest.mark.parametrize(
    ("pod", "claims", "code", "text"),
    [
        (generated(recorded=False), {}, "NotCreated", 'pod "default/p": ResourceClaim not created yet'),
        (
            replace(
                make_pod("p"), spec=replace(make_pod("p").spec, resource_claims=(PodResourceClaim(name="x"),))
            ),
            {},
            "Unsupported",
            'pod "default/p", spec.resourceClaim "x": none of the supported fields are set',
        ),
        (
            make_pod("p", "a"),
            {},
            "NotFound",
            'fetch ResourceClaim a: resourceclaims.resource.k8s.io "a" not found',
        ),
        (
            make_pod("p", "a"),
            {"a": MADE},
            "NotFound",
            'fetch ResourceClaim a: resourceclaims.resource.k8s.io "a" not found',
        ),
        (
            make_pod("p", "a"),
            {"a": make_claim("a", users=["p"], namespace="other")},
            "WrongPod",
            "ResourceClaim other/a is not in the same namespace as Pod default/p",
        ),
        (
            generated(),
            {"mine": MADE},
            "WrongPod",
            "ResourceClaim default/made was not created for Pod default/p (Pod is not owner)",
        ),
        (
            generated(),
            {"mine": owned(MADE, uid="other")},
            "WrongPod",
            "ResourceClaim default/made was not created for Pod default/p (Pod is not owner)",
        ),
        (
            generated(),
            {"mine": owned(MADE, uid="p", controller=False)},
            "WrongPod",
            "ResourceClaim default/made was not created for Pod default/p (Pod is not owner)",
        ),
        (
            grouped(generated()),
            {"mine": owned(MADE, name="g", kind="PodGroup", apiVersion="apps/v1")},
            "WrongPod",
            "ResourceClaim default/made was not created for Pod default/p "
            "(neither Pod nor PodGroup g is the owner)",
        ),
        (
            make_pod("p", "a"),
            {"a": make_claim("a", users=["q"])},
            "NotReserved",
            "pod p (p) is not allowed to use ResourceClaim a (uid-a)",
        ),
        (
            make_pod("p", "a"),
            {"a": unallocated(make_claim("a"))},
            "NotReserved",
            "pod p (p) is not allowed to use ResourceClaim a (uid-a)",
        ),
        (make_pod("p", "a"), {"a": unallocated(CLAIM)}, "NotAllocated", "ResourceClaim a: not allocated"),
    ],
)
def test_refusals(pod: Pod, claims: dict[str, ResourceClaim], code: str, text: str) -> None:
    wanted, (fault,) = read_claims(pod, claims)
    assert wanted == ()
    assert (fault.code, fault.message) == (code, text)


GROUP = ResourceClaimConsumerReference(api_group="scheduling.k8s.io", resource="podgroups", name="g", uid="?")


@pytest.mark.parametrize(
    ("pod", "claim"),
    [
        (generated(), owned(MADE, uid="p")),
        (
            grouped(generated()),
            owned(MADE, name="g", kind="PodGroup", apiVersion="scheduling.k8s.io/v1alpha2", uid="?"),
        ),
        (
            grouped(make_pod("p", "mine")),
            replace(make_claim("mine"), status=replace(CLAIM.status, reserved_for=(GROUP,))),
        ),
        # A claim that is on its way out is still there for those it is reserved for.
        (
            make_pod("p", "mine"),
            replace(
                make_claim("mine", users=["p"]),
                metadata=replace(
                    make_claim("mine").metadata, deletion_timestamp="2026-01-01T00:00:00Z", uid="uid-mine"
                ),
            ),
        ),
    ],
)
def test_valid_claims_are_accepted(pod: Pod, claim: ResourceClaim) -> None:
    (wanted,), faults = read_claims(pod, {"mine": claim})
    assert faults == ()
    assert wanted.ref.uid == claim.metadata.uid


def test_reservations_for_other_objects_do_not_count() -> None:
    claim = replace(make_claim("a"), status=replace(CLAIM.status, reserved_for=(GROUP,)))
    _, (fault,) = read_claims(make_pod("p", "a"), {"a": claim})
    assert fault.code == "NotReserved"


def test_an_unneeded_claim_is_skipped() -> None:
    assert read_claims(generated(None), {}) == ((), ())


def test_every_claim_is_checked() -> None:
    pod = make_pod("p", "a", "b", "c")
    wanted, faults = read_claims(pod, {"a": CLAIM})
    assert [each.ref.name for each in wanted] == ["a"]
    assert [fault.claim for fault in faults] == ["b", "c"]


def test_claims_and_their_drivers_are_listed_once() -> None:
    results = [
        DeviceRequestAllocationResult(driver=NIC, pool="n", device="x"),
        DeviceRequestAllocationResult(driver=GPU, pool="n", device="x", share_id="s"),
        DeviceRequestAllocationResult(driver=GPU, pool="n", device="y", admin_access=True),
    ]
    claim = make_claim("a", users=["p"], results=results)
    pod = make_pod("p")
    names = tuple(PodResourceClaim(name=name, resource_claim_name="a") for name in ("one", "two"))
    pod = replace(pod, spec=replace(pod.spec, resource_claims=names))
    (wanted,), faults = read_claims(pod, {"one": claim, "two": claim})
    assert faults == ()
    assert wanted.drivers == {
        GPU: {AllocatedDevice("n", "x", "s"), AllocatedDevice("n", "y")},
        NIC: {AllocatedDevice("n", "x")},
    }
    assert wanted.exclusive == {GPU: {AllocatedDevice("n", "x", "s")}, NIC: {AllocatedDevice("n", "x")}}


def test_the_claim_for_extended_resources_has_no_name() -> None:
    pod = make_pod("p")
    status = ExtendedResourceClaimStatus(resource_claim_name="made")
    pod = replace(pod, status=PodStatus(extended_resource_claim_status=status))
    (wanted,), _ = read_claims(pod, {"": MADE})
    assert wanted.ref.name == "made"
    _, (fault,) = read_claims(pod, {})
    assert fault.code == "NotFound"
