"""Plan for a claim: reservations, deallocation and deletion."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.client.endpoints import RESOURCE_CLAIMS
from plimsoll.controllers.actions import EMPTY_PLAN, ActionPlan, DeleteAction, PatchAction
from plimsoll.controllers.resource_claim.claim_plan import FINALIZER, find_uncertain_consumers, plan_claim
from tests.unit.controllers.makers import claim, claim_tree, owner, pod, view

DELETED = {"deletionTimestamp": "2025-01-01T00:00:00Z"}


def plan(of: Any, *pods: Any, **options: Any) -> ActionPlan:
    return plan_claim(of, {item.metadata.name: item for item in pods}, **options)


def statuses(result: ActionPlan) -> list[Any]:
    return [
        a.patch["status"] for a in result.actions if isinstance(a, PatchAction) and a.subresource == "status"
    ]


def finalizers(result: ActionPlan) -> list[Any]:
    return [
        a.patch["metadata"]["finalizers"]
        for a in result.actions
        if isinstance(a, PatchAction) and "finalizers" in a.patch.get("metadata", {})
    ]


def reserved(*names: str) -> list[dict[str, str]]:
    return [{"resource": "pods", "name": name, "uid": f"uid-{name}"} for name in names]


def test_a_running_pod_keeps_its_claim() -> None:
    assert plan(claim(pods=["p"], allocated=True), pod("p", node="w", phase="Running")) == EMPTY_PLAN


def test_the_last_pod_releases_the_allocation_and_the_finalizer() -> None:
    result = plan(claim(pods=["p"], allocated=True), pod("p", node="w", phase="Succeeded"))
    assert result.actions == (
        PatchAction(
            RESOURCE_CLAIMS,
            "c",
            {
                "metadata": {"resourceVersion": "7"},
                "status": {"reservedFor": None, "allocation": None},
            },
            namespace="n",
            subresource="status",
        ),
        PatchAction(RESOURCE_CLAIMS, "c", {"metadata": {"finalizers": None}}, namespace="n", chained=True),
    )


def test_other_finalizers_stay() -> None:
    of = claim(pods=["p"], allocated=True, finalizers=["example.com/mine"])
    assert finalizers(plan(of, pod("p", phase="Failed"))) == [["example.com/mine"]]


def test_one_of_two_pods_leaves_the_allocation() -> None:
    of = claim(pods=["p", "q"], allocated=True)
    result = plan(of, pod("p", phase="Succeeded"), pod("q", node="w"))
    assert statuses(result) == [{"reservedFor": reserved("q")}]
    assert len(result.actions) == 1


def test_pods_that_count_as_gone() -> None:
    of = claim(pods=["p"], allocated=True)
    deleted = {"deletionTimestamp": "2025-01-01T00:00:00Z"}
    assert plan(of, pod("p", node="w", **deleted)) == EMPTY_PLAN, "it still runs"
    assert plan(of, pod("p", **deleted)), "deleted before it had a node"
    assert plan(of, deleted=frozenset({"uid-p"})), "seen to go"
    assert plan(of, live={"p": ""}), "the API has none of this name"
    assert plan(of, live={"p": "uid-other"}), "the API has another of this name"
    assert plan(of, live={"p": "uid-p"}) == EMPTY_PLAN, "only the cache lies behind"
    assert plan(of, pod("p", uid="uid-old"), live={"p": "uid-p"}) == EMPTY_PLAN, (
        "the cache has the one before"
    )


def test_pods_missing_from_the_cache_are_read_from_the_api() -> None:
    of = claim(pods=["known", "replaced", "unknown", "seen"])
    pods = {"known": pod("known"), "replaced": pod("replaced", uid="uid-new")}
    assert find_uncertain_consumers(of, pods, frozenset({"uid-seen"})) == ["replaced", "unknown"]


def test_consumers_of_other_kinds_stay() -> None:
    tree = claim_tree(allocated=True)
    other = {"apiGroup": "example.com", "resource": "jobs", "name": "j", "uid": "u"}
    foreign = {"apiGroup": "example.com", "resource": "pods", "name": "f", "uid": "v"}
    tree["status"]["reservedFor"] = [other, foreign, *reserved("p")]
    result = plan(view(tree, type(claim())), deleted=frozenset({"uid-p"}))
    assert statuses(result) == [{"reservedFor": [other, foreign]}]


def test_an_allocation_that_was_never_reserved_stays() -> None:
    assert plan(claim(allocated=True)) == EMPTY_PLAN


def test_a_deleted_claim_is_deallocated_and_its_finalizer_removed() -> None:
    result = plan(claim(allocated=True, **DELETED))
    assert statuses(result) == [{"reservedFor": None, "allocation": None}]
    assert finalizers(result) == [None]


def test_a_deleted_claim_without_allocation_loses_its_finalizer() -> None:
    result = plan(claim(protected=True, **DELETED))
    assert statuses(result) == []
    assert finalizers(result) == [None]
    assert result.actions[0].patch["metadata"]["resourceVersion"] == "7"  # type: ignore[union-attr]


def test_a_deleted_claim_in_use_stays() -> None:
    assert plan(claim(allocated=True, pods=["p"], **DELETED), pod("p", node="w")) == EMPTY_PLAN


def test_a_claim_without_the_finalizer_was_allocated_by_someone_else() -> None:
    result = plan(claim(allocated=True, protected=False, pods=["p"]), live={"p": ""})
    assert statuses(result) == [{"reservedFor": None}]
    assert finalizers(result) == []


def test_a_leftover_finalizer_is_removed_from_an_idle_claim() -> None:
    """After a crash between deallocation and removal of the finalizer; just before an allocation it looks the
    same.
    """
    of = claim(protected=True)
    early = plan(of, unchanged_for=20.0)
    assert not early.actions
    assert early.requeue_after == 40.0
    assert finalizers(plan(of, unchanged_for=60.0)) == [None]


def test_a_claim_made_for_a_pod_that_is_done_is_deleted() -> None:
    delete = DeleteAction(RESOURCE_CLAIMS, "c", "n", uid="uid-c")
    assert plan(claim(of="p"), pod("p", phase="Succeeded")).actions == (delete,)
    assert plan(claim(of="p"), pod("p", uid="uid-new")).actions == (delete,), "the pod was replaced"
    assert plan(claim(of="p"), pod("p")) == EMPTY_PLAN
    assert plan(claim(of="p")) == EMPTY_PLAN, "a pod that is gone is for the garbage collector"
    assert plan(claim(of="p", **DELETED), pod("p", phase="Failed")) == EMPTY_PLAN, "deleted already"
    assert plan(claim(), pod("p", phase="Failed")) == EMPTY_PLAN, "made by a user"
    for other in ({"kind": "Job"}, {"apiVersion": "example.com/v1"}, {"controller": False}):
        owners = [{**owner("p", controller=True), **other}]
        assert plan(claim(ownerReferences=owners), pod("p", phase="Failed")) == EMPTY_PLAN, other


def test_a_generated_claim_is_deallocated_and_deleted_at_once() -> None:
    result = plan(claim(of="p", pods=["p"], allocated=True), pod("p", node="w", phase="Succeeded"))
    assert [type(action) for action in result.actions] == [PatchAction, PatchAction, DeleteAction]


def test_a_generated_claim_that_others_still_use_is_not_deleted() -> None:
    result = plan(claim(of="p", pods=["p", "q"], allocated=True), pod("p", phase="Succeeded"), pod("q"))
    assert [type(action) for action in result.actions] == [PatchAction]


@given(
    pods=st.lists(st.sampled_from("pqr"), unique=True),
    gone=st.sets(st.sampled_from("pqr")),
    allocated=st.booleans(),
    protected=st.booleans(),
    deleting=st.booleans(),
)
def test_the_plan_agrees_with_the_rules(
    pods: list[str], gone: set[str], allocated: bool, protected: bool, deleting: bool
) -> None:
    """The rules of the module's docstring, one by one."""
    of = claim(pods=pods, allocated=allocated, protected=protected, **(DELETED if deleting else {}))
    live = {name: "" if name in gone else f"uid-{name}" for name in pods}
    result = plan(of, live=live)
    left = [name for name in pods if name not in gone]
    changed = len(left) < len(pods)
    freed = not left and protected and (changed or deleting)
    (status,) = statuses(result) or [None]
    assert (status is not None) == (changed or (freed and allocated))
    if status is not None:
        assert status["reservedFor"] == (reserved(*left) or None)
        assert ("allocation" in status) == (freed and allocated)
    unhooked = bool(finalizers(result))
    assert unhooked == (protected and (freed or (changed and not allocated)))
    assert all(FINALIZER not in (kept or ()) for kept in finalizers(result))
