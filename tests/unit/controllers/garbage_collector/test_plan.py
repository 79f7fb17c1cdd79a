"""Garbage collector: dependency graph and decisions."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.meta import ObjectMeta
from plimsoll.client.endpoints import CONFIG_MAPS, NODES, PODS, Endpoint
from plimsoll.client.event_recorder import EventRecord
from plimsoll.controllers.actions import EMPTY_PLAN, ActionPlan, DeleteAction, PatchAction
from plimsoll.controllers.garbage_collector.dependency_graph import DependencyGraph, GraphNode
from plimsoll.controllers.garbage_collector.plan import (
    OwnerState,
    find_solid_owner,
    plan_deleting_dependents,
    plan_dependent,
    plan_orphaning,
)
from tests.unit.controllers.makers import metadata, owner, view

DELETED: dict[str, Any] = {"deletionTimestamp": "2025-01-01T00:00:00Z"}
DELETING_DEPENDENTS: dict[str, Any] = {**DELETED, "finalizers": ["foregroundDeletion"]}
ORPHANING: dict[str, Any] = {**DELETED, "finalizers": ["orphan", "example.com/mine"]}


def item(
    name: str, *owners: str, endpoint: Endpoint = CONFIG_MAPS, blocks: bool = False, **fields: Any
) -> GraphNode:
    """Return an object; owners are config maps."""
    block: dict[str, Any] = {"blockOwnerDeletion": True} if blocks else {}
    references = [owner(of, "ConfigMap", **block) for of in owners]
    fields = {"ownerReferences": references} | fields
    namespace = fields.pop("namespace", "n" if endpoint.namespaced else "")
    return GraphNode(endpoint, view(metadata(name, namespace, **fields), ObjectMeta))


def graph(*items: GraphNode) -> DependencyGraph:
    made = DependencyGraph()
    for each in items:
        made.add(each)
    return made


def decide(of: GraphNode, states: dict[str, OwnerState], *others: GraphNode) -> ActionPlan:
    owners = {reference: states[reference.name] for reference in of.metadata.owner_references}
    return plan_dependent(of, owners, graph(of, *others))


def delete(propagation: Any, revision: str = "7", name: str = "x") -> DeleteAction:
    return DeleteAction(CONFIG_MAPS, name, "n", uid=f"uid-{name}", revision=revision, propagation=propagation)


# -- objects


def test_an_object_whose_owners_are_gone_is_deleted() -> None:
    assert decide(item("x", "o"), {"o": OwnerState.DANGLING}).actions == (delete("Background"),)
    both = decide(item("x", "o", "m"), {"o": OwnerState.DANGLING, "m": OwnerState.DANGLING})
    assert both.actions == (delete("Background"),)


def test_existing_finalizers_select_the_propagation_policy() -> None:
    orphan = item("x", "o", finalizers=["orphan"])
    assert decide(orphan, {"o": OwnerState.DANGLING}).actions == (delete("Orphan"),)
    foreground = item("x", "o", finalizers=["foregroundDeletion"])
    assert decide(foreground, {"o": OwnerState.DANGLING}).actions == (delete("Foreground"),)


def test_missing_owners_are_removed_while_one_exists() -> None:
    assert decide(item("x", "o"), {"o": OwnerState.SOLID}) == EMPTY_PLAN
    states = {"o": OwnerState.DANGLING, "m": OwnerState.SOLID, "w": OwnerState.DELETING_DEPENDENTS}
    assert decide(item("x", "o", "m", "w"), states).actions == (
        PatchAction(
            CONFIG_MAPS,
            "x",
            {"metadata": {"resourceVersion": "7", "ownerReferences": [owner("m", "ConfigMap")]}},
            namespace="n",
        ),
    )


def test_a_waiting_owner_deletes_leaves_at_once_and_branches_in_the_foreground() -> None:
    states = {"o": OwnerState.DELETING_DEPENDENTS}
    assert decide(item("x", "o"), states).actions == (delete("Background"),)
    assert decide(item("x", "o"), states, item("leaf", "x")).actions == (delete("Foreground"),)
    mixed = decide(
        item("x", "o", "m"),
        {"o": OwnerState.DELETING_DEPENDENTS, "m": OwnerState.DANGLING},
        item("leaf", "x"),
    )
    assert mixed.actions == (delete("Foreground"),)


def test_a_cycle_of_foreground_deletions_is_broken() -> None:
    of = item("x", "o", blocks=True)
    unblocked = owner("o", "ConfigMap", blockOwnerDeletion=False)
    assert decide(
        of, {"o": OwnerState.DELETING_DEPENDENTS}, item("o", "x", **DELETING_DEPENDENTS)
    ).actions == (
        PatchAction(
            CONFIG_MAPS,
            "x",
            {"metadata": {"resourceVersion": "7", "ownerReferences": [unblocked]}},
            namespace="n",
        ),
        delete("Foreground", revision=""),
    )


def test_an_owner_of_an_unknown_kind_keeps_the_object() -> None:
    result = decide(item("x", "o", "m"), {"o": OwnerState.UNKNOWN, "m": OwnerState.DANGLING})
    assert not result.actions
    assert result.error


def test_a_cluster_scoped_object_with_an_owner_in_a_namespace_is_left_alone() -> None:
    assert decide(item("x", "o", endpoint=NODES), {"o": OwnerState.INVALID}) == EMPTY_PLAN


def test_an_owner_in_another_namespace_is_reported() -> None:
    report, gone = decide(
        item("x", "o"), {"o": OwnerState.DANGLING}, item("o", namespace="elsewhere")
    ).actions
    assert isinstance(report, EventRecord)
    assert report.reason == "OwnerRefInvalidNamespace"
    assert report.message == (
        'ownerRef [v1/ConfigMap, namespace: n, name: o, uid: uid-o] does not exist in namespace "n"'
    )
    assert gone == delete("Background")


# -- actions that follow from the graph alone


def test_only_a_named_owner_that_stays_is_solid() -> None:
    of = item("x", "o")
    (reference,) = of.metadata.owner_references

    def look(*items: GraphNode) -> OwnerState | None:
        return find_solid_owner(graph(*items), of, reference)

    assert look(item("o")) is OwnerState.SOLID
    assert look() is None
    assert look(item("o", **DELETED)) is None
    assert look(item("o", uid="uid-new")) is None
    assert look(item("other", uid="uid-o")) is None, "another name"
    assert look(item("o", endpoint=PODS)) is None, "another kind"
    assert look(item("o", namespace="elsewhere")) is None, "another namespace"


def test_a_cluster_scoped_owner_may_own_anywhere() -> None:
    of = item("x", ownerReferences=[owner("w", "Node")])
    (reference,) = of.metadata.owner_references
    assert find_solid_owner(graph(item("w", endpoint=NODES)), of, reference) is OwnerState.SOLID


# -- owners that are deleted


def test_a_waiting_owner_is_deleted_when_nothing_blocks_it() -> None:
    of = item("o", **DELETING_DEPENDENTS)
    assert plan_deleting_dependents(of, graph(of, item("x", "o", blocks=True))) == EMPTY_PLAN
    assert plan_deleting_dependents(of, graph(of, item("x", "o"))).actions == (
        PatchAction(
            CONFIG_MAPS, "o", {"metadata": {"resourceVersion": "7", "finalizers": None}}, namespace="n"
        ),
    )


def test_an_owner_reference_is_removed_before_the_owner_is_deleted() -> None:
    first, second, last = plan_orphaning(
        item("o", **ORPHANING), [item("x", "o"), item("y", "m", "o")]
    ).actions
    assert isinstance(first, PatchAction)
    assert isinstance(second, PatchAction)
    assert isinstance(last, PatchAction)
    assert first.patch["metadata"]["ownerReferences"] is None
    assert second.patch["metadata"]["ownerReferences"] == [owner("m", "ConfigMap")]
    assert last.patch["metadata"]["finalizers"] == ["example.com/mine"]


# -- graph


@given(
    st.lists(
        st.tuples(st.booleans(), st.sampled_from("abcd"), st.lists(st.sampled_from("abcd"), max_size=3)),
        max_size=30,
    )
)
def test_the_graph_agrees_with_one_built_anew(steps: list[tuple[bool, str, list[str]]]) -> None:
    made = DependencyGraph()
    left: dict[str, GraphNode] = {}
    for add, name, owners in steps:
        if add:
            left[f"uid-{name}"] = item(name, *owners)
            made.add(left[f"uid-{name}"])
        else:
            assert made.remove(f"uid-{name}") == left.pop(f"uid-{name}", None)
        for asked in ("uid-a", "uid-b", "uid-c", "uid-d"):
            assert made.get(asked) == left.get(asked)
            naive = [
                each
                for uid, each in sorted(left.items())
                if any(o.uid == asked for o in each.metadata.owner_references)
            ]
            assert made.dependents(asked) == naive
        assert len(made) == len(left)
    for uid in list(left):
        made.remove(uid)
    assert not made.owned, "nothing is remembered of objects that are gone"
