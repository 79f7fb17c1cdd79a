"""Checks of claims and pods: reservations, leftovers, pods without their claims, limits."""

from __future__ import annotations

import pytest

from plimsoll.tools.findings import Severity
from tests.unit.tools.audit.build import (
    NOW,
    V1,
    Tree,
    api_object,
    claim,
    found,
    node,
    only,
    pod,
    result,
    well,
)

DELETED = "2026-11-15T00:30:00Z"


# -- reservations


@pytest.mark.parametrize(
    ("pods", "why"),
    [
        ([pod("other")], "was deleted"),
        ([pod("p", phase="Succeeded")], "has terminated (Succeeded)"),
    ],
)
def test_a_reservation_for_no_pod(pods: list[Tree], why: str) -> None:
    finding = only("PLM040", claim("c", result()), *pods)
    assert finding.message == f"is reserved for 1 pod that {why}, and holds 1 device"
    assert finding.evidence == (f"Pod/work/p (pod-p): {why}",)


def test_a_reservation_for_a_pod_that_was_replaced() -> None:
    tree = pod("p", claims="c")
    tree["metadata"]["uid"] = "another"
    assert "was replaced by one with UID another" in only("PLM040", claim("c", result()), tree).evidence[0]


def test_a_reservation_for_a_pod_deleted_before_it_had_a_node() -> None:
    tree = pod("p", claims="c", on="", phase="Pending")
    tree["metadata"]["deletionTimestamp"] = DELETED
    assert "was deleted before it was scheduled" in only("PLM040", claim("c", result()), tree).evidence[0]


def test_valid_reservations() -> None:
    assert found("PLM040", *well()) == []
    group = claim("c", result(), pods=())
    group["status"]["reservedFor"] = [{"apiGroup": "x", "resource": "podgroups", "name": "g", "uid": "1"}]
    assert found("PLM040", group, pod()) == []


def test_a_dump_without_pods_yields_no_reservation_findings() -> None:
    with pytest.raises(AssertionError):  # the check is not made at all
        found("PLM040", node(), claim("c", result()), live=False)


# -- leftovers


def test_a_claim_whose_pod_is_gone() -> None:
    finding = only("PLM041", claim("c", result(), pods=(), owner="p"), pod("other"))
    assert finding.severity is Severity.WARNING
    assert finding.message == "was created for pod p, which was deleted; it holds 1 device"
    assert finding.fix == "kubectl delete resourceclaim -n work c"
    empty = only("PLM041", claim("c", owner="p"), pod("other"))
    assert empty.severity is Severity.INFO


def test_a_claim_whose_pod_has_ended() -> None:
    tree = claim("c", result(), pods=(), owner="p")
    assert "which has terminated" in only("PLM041", tree, pod("p", phase="Failed")).message


def test_a_claim_allocated_without_consumer() -> None:
    finding = only("PLM041", claim("c", result(), pods=()), pod("other"))
    assert finding.severity is Severity.INFO
    assert "but not used by any pod" in finding.message
    fresh = NOW - 3600 + 60  # a minute after it was allocated
    assert found("PLM041", claim("c", result(), pods=()), pod("other"), now=fresh) == []


def test_claims_that_are_in_use() -> None:
    assert found("PLM041", *well()) == []
    assert found("PLM041", claim("c", owner="p"), pod("p", on="", phase="Pending")) == []
    assert found("PLM041", claim("c", result(), pods=()), pod("p", claims="c", on="")) == []


def test_a_stuck_terminating_claim() -> None:
    tree = claim("c", result(), pods=())
    tree["metadata"] |= {
        "deletionTimestamp": DELETED,
        "finalizers": ["resource.kubernetes.io/delete-protection"],
    }
    finding = only("PLM042", tree, pod("other"))
    assert finding.severity is Severity.WARNING
    assert finding.message == "has been terminating for 30 minutes and holds 1 device"
    assert found("PLM042", tree, pod("other"), now=NOW - 1800 + 60) == []
    assert found("PLM041", tree, pod("other")) == []


def test_a_terminating_claim_in_use() -> None:
    tree = claim("c", result())
    tree["metadata"] |= {"deletionTimestamp": DELETED}
    finding = only("PLM042", tree, pod("p", claims="c"))
    assert finding.severity is Severity.INFO
    assert finding.fix == "delete its pods first: kubectl delete pod -n work p"


# -- pods without their claims


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ([], "is bound, but its claim c does not exist"),
        ([claim("c")], "is bound, but its claim c is not allocated"),
        (
            [claim("c", result(), pods=("q", "r"))],
            "is bound, but its claim c is not reserved for it (2 others in reservedFor)",
        ),
    ],
)
def test_a_pod_without_its_claim(claims: list[Tree], expected: str) -> None:
    finding = only("PLM043", node(), pod("p", claims="c"), *claims)
    assert finding.message == expected
    assert finding.severity is Severity.ERROR


def test_a_pod_whose_claim_was_never_generated() -> None:
    finding = only("PLM043", node(), pod("p", template="t"))
    assert finding.message == "has no claim for made: none was created from its template"


def test_a_pod_with_the_claim_of_another() -> None:
    tree = pod("p", template="t")
    tree["status"]["resourceClaimStatuses"] = [{"name": "made", "resourceClaimName": "c"}]
    theirs = claim("c", result(), owner="q")
    assert only("PLM043", tree, theirs).message == "uses claim c, which was created for another pod"
    assert found("PLM043", tree, claim("c", result(), owner="p")) == []


def test_a_pod_with_the_claim_of_its_pod_group() -> None:
    tree = pod("p", template="t")
    tree["status"]["resourceClaimStatuses"] = [{"name": "made", "resourceClaimName": "c"}]
    shared = claim("c", result())
    group = {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "name": "g", "uid": "1"}
    shared["metadata"]["ownerReferences"] = [{**group, "controller": True}]
    reference = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "1"}
    shared["status"]["reservedFor"] = [reference]
    assert found("PLM043", tree, shared)
    tree["spec"]["schedulingGroup"] = {"podGroupName": "g"}
    assert found("PLM043", tree, shared) == []


def test_a_just_bound_pod_is_not_reported() -> None:
    tree = pod("p", claims="c")
    since = "2026-11-15T00:59:50Z"
    tree["status"]["conditions"] = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": since}]
    assert found("PLM043", tree, claim("c")) == []
    assert len(found("PLM043", tree, claim("c"), now=NOW + 60)) == 1


def test_pending_pods_are_not_reported() -> None:
    assert found("PLM043", pod("p", claims="c", on="", phase="Pending")) == []
    assert found("PLM043", *well()) == []


def test_a_pod_on_another_node_than_its_devices() -> None:
    trees = [node("n1"), node("n2"), claim("c", result(), on="n2"), pod("p", claims="c", on="n1")]
    finding = only("PLM044", *trees)
    assert finding.message == "runs on n1, but claim c is allocated for n2"
    assert found("PLM044", *well()) == []


# -- limits


def test_a_claim_of_many_pods() -> None:
    full = only("PLM045", claim("c", result(), pods=[f"p{n}" for n in range(256)]))
    assert full.severity is Severity.WARNING
    assert full.message == "is reserved for 256 of at most 256 pods"
    near = only("PLM045", claim("c", result(), pods=[f"p{n}" for n in range(240)]))
    assert near.severity is Severity.INFO
    assert near.evidence == ("16 reservations left",)
    assert found("PLM045", claim("c", result(), pods=[f"p{n}" for n in range(200)])) == []


def test_a_template_for_more_devices_than_a_claim_can_have() -> None:
    request = {
        "name": "r",
        "exactly": {"deviceClassName": "any", "allocationMode": "ExactCount", "count": 64},
    }
    template = api_object(
        V1, "ResourceClaimTemplate", "t", "work", spec={"spec": {"devices": {"requests": [request]}}}
    )
    finding = only("PLM045", template)
    assert finding.subject == "ResourceClaimTemplate/work/t"
    assert finding.message == "requests 64 of at most 32 devices, 32 over: it cannot be allocated"
    request["exactly"]["count"] = 32  # type: ignore[index]
    assert found("PLM045", template) == []
