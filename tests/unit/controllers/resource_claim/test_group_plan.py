"""Plan for a PodGroup: claims from templates; and its part in the plans of pods and claims."""

from __future__ import annotations

from typing import Any

from plimsoll.api.pod_claims import group_consumer
from plimsoll.api.resource import ResourceClaim
from plimsoll.api.scheduling import PodGroup
from plimsoll.client.endpoints import POD_GROUPS, PODS
from plimsoll.client.event_recorder import EventRecord
from plimsoll.controllers.actions import EMPTY_PLAN, CreateAction, PatchAction
from plimsoll.controllers.resource_claim.claim_plan import find_uncertain_groups, plan_claim
from plimsoll.controllers.resource_claim.group_plan import plan_group
from plimsoll.controllers.resource_claim.pod_plan import plan_pod
from tests.unit.controllers.makers import BY_TEMPLATE, claim_tree, metadata, owner, pod, template, view

TEMPLATES = {"t": template()}
MEMBER = {"schedulingGroup": {"podGroupName": "g"}}


def group(recorded: dict[str, str | None] | None = None, **fields: Any) -> PodGroup:
    statuses = [
        {"name": entry, **({"resourceClaimName": name} if name else {})}
        for entry, name in (recorded or {}).items()
    ]
    return view(
        {
            "metadata": metadata("g", **fields),
            "spec": {"resourceClaims": [{"name": "a", BY_TEMPLATE: "t"}]},
            "status": {"resourceClaimStatuses": statuses},
        },
        PodGroup,
    )


def group_claim(name: str = "g-a-1", entry: str = "a", **fields: Any) -> ResourceClaim:
    tree = claim_tree(name, entry=entry, **fields)
    reference = owner("g", "PodGroup", "scheduling.k8s.io/v1alpha2", controller=True)
    tree["metadata"]["ownerReferences"] = [reference]
    return view(tree, ResourceClaim)


def test_a_claim_is_created_for_the_group_and_recorded() -> None:
    (create,) = plan_group(group(), (), TEMPLATES).actions
    assert isinstance(create, CreateAction)
    meta = create.tree["metadata"]
    assert meta["generateName"] == "g-a-"
    assert meta["ownerReferences"] == [owner("g", "PodGroup", "scheduling.k8s.io/v1alpha2", controller=True)]
    (record,) = plan_group(group(), [group_claim()], TEMPLATES).actions
    assert isinstance(record, PatchAction)
    assert (record.endpoint, record.subresource) == (POD_GROUPS, "status")
    assert record.patch["status"] == {"resourceClaimStatuses": [{"name": "a", "resourceClaimName": "g-a-1"}]}
    assert plan_group(group({"a": "g-a-1"}), [group_claim()], TEMPLATES) == EMPTY_PLAN
    two = [group_claim(), group_claim("g-a-2")]
    (record,) = plan_group(group(), two, TEMPLATES).actions
    assert isinstance(record, PatchAction)
    assert record.patch["metadata"]["resourceVersion"] == group().metadata.resource_version
    assert plan_group(group({"a": "g-a-2"}), two, TEMPLATES) == EMPTY_PLAN


def test_a_missing_template_is_reported_and_a_deleted_group_gets_nothing() -> None:
    plan = plan_group(group(), (), {})
    assert isinstance(plan.actions[0], EventRecord)
    assert plan.error.startswith("PodGroupResourceClaim a: resource claim template")
    assert plan_group(group(deletionTimestamp="2025-01-01T00:00:00Z"), (), TEMPLATES) == EMPTY_PLAN
    assert plan_group(group({"a": None}), (), TEMPLATES) == EMPTY_PLAN


def test_a_pod_uses_the_claim_of_its_group() -> None:
    member = pod(claims={"a": (BY_TEMPLATE, "t")}, spec=MEMBER)
    assert plan_pod(member, {}, (), TEMPLATES, group()) == EMPTY_PLAN, "the group creates it"
    (record,) = plan_pod(member, {}, (), TEMPLATES, group(), [group_claim()]).actions
    assert isinstance(record, PatchAction)
    assert record.endpoint == PODS
    assert record.patch["status"]["resourceClaimStatuses"] == [{"name": "a", "resourceClaimName": "g-a-1"}]
    other = pod(claims={"a": (BY_TEMPLATE, "other")}, spec=MEMBER)
    (create,) = plan_pod(other, {}, (), {"other": template("other")}, group(), [group_claim()]).actions
    assert isinstance(create, CreateAction), "another source is a claim of the pod itself"


def test_a_bound_pod_reserves_the_claim_for_its_group() -> None:
    member = pod(claims={"a": (BY_TEMPLATE, "t")}, statuses={"a": "g-a-1"}, node="w", spec=MEMBER)
    claim = group_claim(allocated=True)
    (reserve,) = plan_pod(member, {"g-a-1": claim}, (), TEMPLATES, group(), [claim]).actions
    assert isinstance(reserve, PatchAction)
    assert reserve.patch["status"]["reservedFor"] == [
        {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "uid-g"}
    ]


def reserved_for_group() -> ResourceClaim:
    tree = claim_tree("c", allocated=True)
    consumer = group_consumer(group())
    tree["status"]["reservedFor"] = [
        {"apiGroup": consumer.api_group, "resource": consumer.resource, "name": "g", "uid": "uid-g"}
    ]
    return view(tree, ResourceClaim)


def test_the_reservation_of_a_group_ends_with_the_group() -> None:
    claim = reserved_for_group()
    assert plan_claim(claim, {}) == EMPTY_PLAN, "PodGroups are not served"
    assert plan_claim(claim, {}, live_groups={"g": "uid-g"}) == EMPTY_PLAN
    for live in ({"g": ""}, {"g": "uid-of-another"}):
        status, finalizer = plan_claim(claim, {}, live_groups=live).actions
        assert isinstance(status, PatchAction)
        assert status.patch["status"] == {"reservedFor": None, "allocation": None}
        assert isinstance(finalizer, PatchAction)
    assert find_uncertain_groups(claim, {}, frozenset()) == ["g"]
    assert find_uncertain_groups(claim, {"g": group()}, frozenset()) == []
    assert find_uncertain_groups(claim, {}, frozenset({"uid-g"})) == []
