"""Plan for a pod: claims from templates."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.client.endpoints import PODS, RESOURCE_CLAIMS
from plimsoll.client.event_recorder import EventRecord
from plimsoll.controllers.actions import EMPTY_PLAN, ActionPlan, CreateAction, PatchAction
from plimsoll.controllers.resource_claim.pod_plan import plan_pod
from plimsoll.controllers.resource_claim.template_claims import generate_name_prefix
from tests.unit.controllers.makers import BY_NAME, BY_TEMPLATE, claim, pod, template

TWO = {"a": (BY_TEMPLATE, "t"), "b": (BY_TEMPLATE, "t")}
ONE = {"a": (BY_TEMPLATE, "t")}
TEMPLATES = {"t": template(labels={"l": "1"}, annotations={"note": "x"})}


def plan(of: Any, *claims: Any, templates: Any = TEMPLATES) -> ActionPlan:
    known = {item.metadata.name: item for item in claims}
    owned = [
        item
        for item in claims
        if any(owner.uid == of.metadata.uid for owner in item.metadata.owner_references)
    ]
    return plan_pod(of, known, owned, templates)


def test_a_claim_for_each_template() -> None:
    first, second = plan(pod(claims=TWO)).actions
    assert isinstance(first, CreateAction)
    assert first.endpoint == RESOURCE_CLAIMS
    assert first.namespace == "n"
    assert first.tree == {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "generateName": "p-a-",
            "namespace": "n",
            "labels": {"l": "1"},
            "annotations": {"note": "x", "resource.kubernetes.io/pod-claim-name": "a"},
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p", "controller": True}
            ],
        },
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}},
    }
    assert isinstance(second, CreateAction)
    assert second.tree["metadata"]["generateName"] == "p-b-"
    assert TEMPLATES["t"].spec.metadata.annotations == {"note": "x"}


def test_long_names_are_cut_in_proportion() -> None:
    assert generate_name_prefix("p" * 50, "c" * 4) == f"{'p' * 50}-cccc-"
    long = generate_name_prefix("p" * 100, "c" * 50)
    assert long == "p" * (100 * 57 // 152) + "-" + "c" * (50 * 57 // 152)


@given(st.integers(1, 253), st.integers(1, 63))
def test_base_names_leave_room_for_five_characters(pod_length: int, entry_length: int) -> None:
    base = generate_name_prefix("p" * pod_length, "c" * entry_length)
    assert len(base) <= 58
    assert base.startswith("p") or pod_length * 57 < pod_length + entry_length + 2


def test_entries_are_recorded_once_the_claims_are_there() -> None:
    made = claim("p-a-1", of="p", entry="a"), claim("p-b-1", of="p", entry="b")
    (action,) = plan(pod(claims=TWO), *made).actions
    assert action == PatchAction(
        PODS,
        "p",
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p", "namespace": "n", "uid": "uid-p"},
            "status": {
                "resourceClaimStatuses": [
                    {"name": "a", "resourceClaimName": "p-a-1"},
                    {"name": "b", "resourceClaimName": "p-b-1"},
                ]
            },
        },
        namespace="n",
        subresource="status",
        type="apply",
        field_manager="ResourceClaimController",
    )


def test_a_claim_made_before_its_name_was_recorded_is_found_again() -> None:
    actions = plan(pod(claims=TWO), claim("p-a-1", of="p", entry="a")).actions
    assert [type(action) for action in actions] == [CreateAction]
    assert actions[0].tree["metadata"]["generateName"] == "p-b-"  # type: ignore[union-attr]


def test_of_several_claims_the_recorded_one_stays() -> None:
    """A create request without a response may have made a claim, too."""
    two = (claim("p-a-1", of="p", entry="a"), claim("p-a-2", of="p", entry="a"))
    (action,) = plan(pod(claims=ONE), *two).actions
    assert isinstance(action, PatchAction)
    assert action.patch["metadata"]["resourceVersion"] == pod().metadata.resource_version
    for name in ("p-a-1", "p-a-2"):
        recorded = {"resourceClaimStatuses": [{"name": "a", "resourceClaimName": name}]}
        assert plan(pod(claims=ONE, status=recorded), *two) == EMPTY_PLAN


def test_entries_are_applied_together() -> None:
    """Entries left out of an apply are removed."""
    of = pod(claims=TWO, statuses={"a": "p-a-1", "b": "p-b-1"})
    made = claim("p-a-2", of="p", entry="a"), claim("p-b-1", of="p", entry="b")
    (action,) = plan(of, *made).actions
    assert isinstance(action, PatchAction)
    assert action.patch["status"] == {
        "resourceClaimStatuses": [
            {"name": "a", "resourceClaimName": "p-a-2"},
            {"name": "b", "resourceClaimName": "p-b-1"},
        ]
    }


def test_entries_without_a_claim_are_kept() -> None:
    of = pod(claims=TWO, statuses={"a": None})
    (action,) = plan(of, claim("p-b-1", of="p", entry="b")).actions
    assert isinstance(action, PatchAction)
    assert action.patch["status"] == {
        "resourceClaimStatuses": [{"name": "a"}, {"name": "b", "resourceClaimName": "p-b-1"}]
    }


def test_a_claim_that_was_deleted_is_made_again() -> None:
    (action,) = plan(pod(claims=ONE, statuses={"a": "p-a-1"})).actions
    assert isinstance(action, CreateAction)


def test_a_recorded_claim_of_another_owner_is_replaced() -> None:
    (action,) = plan(pod(claims=ONE, statuses={"a": "p-a-1"}), claim("p-a-1", of="q")).actions
    assert isinstance(action, CreateAction)


def test_an_entry_without_a_claim_needs_none() -> None:
    assert plan(pod(claims=ONE, statuses={"a": None})) == EMPTY_PLAN


def test_named_claims_are_not_managed() -> None:
    assert plan(pod(claims={"a": (BY_NAME, "mine")})) == EMPTY_PLAN


def test_a_missing_template_is_reported_and_retried() -> None:
    result = plan(pod(claims=ONE), templates={})
    assert result.error == (
        'PodResourceClaim a: resource claim template "t": resourceclaimtemplate.resource.k8s.io "t" not found'
    )
    (report,) = result.actions
    assert isinstance(report, EventRecord)
    assert (report.type, report.reason, report.component) == (
        "Warning",
        "FailedResourceClaimCreation",
        "resource_claim",
    )
    assert report.message == result.error
    assert report.regarding.uid == "uid-p"


def test_claims_before_a_missing_template_are_made() -> None:
    of = pod(claims={"a": (BY_TEMPLATE, "t"), "b": (BY_TEMPLATE, "missing")})
    result = plan(of)
    assert [type(action) for action in result.actions] == [CreateAction, EventRecord]
    assert result.error


def test_a_finished_pod_gets_nothing() -> None:
    for phase in ("Succeeded", "Failed"):
        of = pod(claims=ONE, phase=phase, node="w", statuses={"a": "p-a-1"})
        assert plan(of) == EMPTY_PLAN
        assert plan(of, claim("p-a-1", of="p", entry="a", allocated=True, pods=["other"])) == EMPTY_PLAN


def test_a_deleted_pod_gets_nothing() -> None:
    assert plan(pod(claims=ONE, node="w", deletionTimestamp="2025-01-01T00:00:00Z")) == EMPTY_PLAN


def test_a_pod_bound_without_the_scheduler_is_added_to_reserved_for() -> None:
    of = pod(claims={"a": (BY_NAME, "mine")}, node="w")
    (action,) = plan(of, claim("mine", allocated=True, pods=["q"])).actions
    assert action == PatchAction(
        RESOURCE_CLAIMS,
        "mine",
        {
            "metadata": {"resourceVersion": "7"},
            "status": {
                "reservedFor": [
                    {"resource": "pods", "name": "q", "uid": "uid-q"},
                    {"resource": "pods", "name": "p", "uid": "uid-p"},
                ]
            },
        },
        namespace="n",
        subresource="status",
    )
    assert plan(of) == EMPTY_PLAN, "not there"
    assert plan(of, claim("mine")) == EMPTY_PLAN, "not allocated"
    assert plan(of, claim("mine", allocated=True, pods=["p"])) == EMPTY_PLAN, "reserved already"
    assert plan(pod(claims={"a": (BY_NAME, "mine")}), claim("mine", allocated=True)) == EMPTY_PLAN, "no node"


def test_a_generated_claim_is_reserved_for_its_own_pod_only() -> None:
    of = pod(claims=ONE, node="w", statuses={"a": "p-a-1"})
    mine = claim("p-a-1", of="p", entry="a", allocated=True)
    assert [type(action) for action in plan(of, mine).actions] == [PatchAction]


@given(st.data())
def test_plans_reach_a_fixed_point(data: st.DataObject) -> None:
    """From any state, carrying out the plan leads to a state without one."""
    entries = data.draw(st.lists(st.sampled_from("abc"), unique=True, min_size=1))
    recorded = data.draw(st.dictionaries(st.sampled_from(entries), st.sampled_from(["x", "y"])))
    there = {
        name: claim(name, of=data.draw(st.sampled_from(["p", "q"])), entry=data.draw(st.sampled_from("abc")))
        for name in data.draw(st.lists(st.sampled_from(["x", "y", "z"]), unique=True))
    }
    for step in range(10):
        result = plan(pod(claims=dict.fromkeys(entries, ONE["a"]), statuses=recorded), *there.values())
        if result == EMPTY_PLAN:
            break
        for action in result.actions:
            if isinstance(action, CreateAction):
                entry = action.tree["metadata"]["annotations"]["resource.kubernetes.io/pod-claim-name"]
                made = claim(f"{action.tree['metadata']['generateName']}{step}", of="p", entry=entry)
                there[made.metadata.name] = made
            else:
                assert isinstance(action, PatchAction)
                applied = action.patch["status"]["resourceClaimStatuses"]
                recorded = {item["name"]: item["resourceClaimName"] for item in applied}
    assert set(recorded) == set(entries)
    for name in recorded.values():
        assert there[name].metadata.owner_references[0].uid == "uid-p"
