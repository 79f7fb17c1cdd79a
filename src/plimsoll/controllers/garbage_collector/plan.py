"""Garbage collection of one object, by the state of its owners (as kube-controller-manager).

* If one owner is solid, the object stays; references to absent owners are removed.
* If all owners are absent, the object is deleted, in the background unless its finalizers forbid that.
* If no owner is solid and one is in foreground deletion, the object is deleted, in the foreground if it has
  dependents itself, so that a tree is removed before its root.
* If it is in foreground deletion, its finalizer is removed when no dependent blocks it.
* If it is deleted with orphaning, it is removed from its dependents' references and then finalized.

An owner exists only if the API has an object of that kind, name and UID in a namespace that the object can
refer to. A cluster-scoped object cannot have a namespaced owner; such references are left alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

from plimsoll.api import codec
from plimsoll.api.meta import ObjectReference, OwnerReference
from plimsoll.client.event_recorder import WARNING, EventRecord
from plimsoll.controllers.actions import EMPTY_PLAN, Action, ActionPlan, DeleteAction, PatchAction
from plimsoll.controllers.garbage_collector.dependency_graph import (
    DELETE_DEPENDENTS,
    ORPHAN_DEPENDENTS,
    DependencyGraph,
    GraphNode,
)

if TYPE_CHECKING:
    from plimsoll.client.client import Propagation

COMPONENT = "garbage-collector-controller"


class OwnerState(Enum):
    """State of the owner that a reference names."""

    SOLID = "exists"
    DELETING_DEPENDENTS = "in foreground deletion"
    DANGLING = "absent"
    UNKNOWN = "kind not served"
    INVALID = "namespaced owner of a cluster-scoped object"


def find_solid_owner(graph: DependencyGraph, item: GraphNode, reference: OwnerReference) -> OwnerState | None:
    """Resolve an owner from the graph alone; None if the API must be asked."""
    owner = graph.get(reference.uid)
    if owner is None or owner.is_deleting or not is_reference_to(owner, item, reference):
        return None
    return OwnerState.SOLID


def is_reference_to(owner: GraphNode, item: GraphNode, reference: OwnerReference) -> bool:
    """Return whether a reference matches an owner's kind, name, UID and reachable namespace."""
    endpoint, metadata = owner.endpoint, owner.metadata
    group, _, _ = reference.api_version.rpartition("/")
    return (
        (group, reference.kind, reference.name) == (endpoint.group, endpoint.kind, metadata.name)
        and reference.uid == metadata.uid
        and (not endpoint.namespaced or metadata.namespace == item.metadata.namespace)
    )


def plan_dependent(
    item: GraphNode, owners: Mapping[OwnerReference, OwnerState], graph: DependencyGraph
) -> ActionPlan:
    """Plan for an object that has owners and is not being deleted; `item` is the live object."""
    references = item.metadata.owner_references
    states = [owners[reference] for reference in references]
    for reference, state in zip(references, states, strict=True):
        if state is OwnerState.INVALID:
            return EMPTY_PLAN
        if state is OwnerState.UNKNOWN:
            return ActionPlan(error=f"owner of unknown kind {reference.api_version} {reference.kind}")
    if OwnerState.SOLID in states:
        kept = [owner for owner, state in zip(references, states, strict=True) if state is OwnerState.SOLID]
        return EMPTY_PLAN if len(kept) == len(references) else ActionPlan((_set_owners(item, kept),))
    actions: list[Action] = list(_report_wrong_namespace(item, graph))
    dependents = graph.dependents(item.metadata.uid)
    if OwnerState.DELETING_DEPENDENTS in states and dependents:
        # A dependent in foreground deletion indicates a cycle, whose objects would block each other.
        has_cycle = any(dependent.is_deleting_dependents for dependent in dependents)
        if has_cycle and any(owner.block_owner_deletion for owner in references):
            actions.append(_set_owners(item, [_without_blocking(owner) for owner in references]))
            actions.append(_delete(item, "Foreground", check_revision=False))
        else:
            actions.append(_delete(item, "Foreground"))
    elif ORPHAN_DEPENDENTS in item.metadata.finalizers:
        actions.append(_delete(item, "Orphan"))
    elif DELETE_DEPENDENTS in item.metadata.finalizers:
        actions.append(_delete(item, "Foreground"))
    else:
        actions.append(_delete(item, "Background"))
    return ActionPlan(tuple(actions))


def plan_deleting_dependents(item: GraphNode, graph: DependencyGraph) -> ActionPlan:
    """Plan for an object in foreground deletion: finalize it if no dependent blocks it."""
    if any(dependent.blocks(item.metadata.uid) for dependent in graph.dependents(item.metadata.uid)):
        return EMPTY_PLAN
    return ActionPlan((_remove_finalizer(item, DELETE_DEPENDENTS),))


def plan_orphaning(item: GraphNode, dependents: Sequence[GraphNode]) -> ActionPlan:
    """Plan for an object deleted with orphaning: remove it from its dependents, then finalize it."""
    uid = item.metadata.uid
    actions: list[Action] = []
    for dependent in dependents:
        kept = [owner for owner in dependent.metadata.owner_references if owner.uid != uid]
        actions.append(_set_owners(dependent, kept))
    return ActionPlan((*actions, _remove_finalizer(item, ORPHAN_DEPENDENTS)))


def _report_wrong_namespace(item: GraphNode, graph: DependencyGraph) -> list[EventRecord]:
    """Report owners that exist in another namespace than their dependent."""
    reports = []
    metadata = item.metadata
    for reference in metadata.owner_references:
        owner = graph.get(reference.uid)
        if owner is None or not owner.endpoint.namespaced or owner.metadata.namespace == metadata.namespace:
            continue
        named = (
            f"[{reference.api_version}/{reference.kind}, namespace: {metadata.namespace}, "
            f"name: {reference.name}, uid: {reference.uid}]"
        )
        regarding = ObjectReference.to(metadata, item.endpoint.kind, item.endpoint.api_version)
        text = f'ownerRef {named} does not exist in namespace "{metadata.namespace}"'
        reports.append(EventRecord(regarding, "OwnerRefInvalidNamespace", text, COMPONENT, WARNING))
    return reports


def _without_blocking(owner: OwnerReference) -> OwnerReference:
    return codec.convert({**codec.to_tree(owner), "blockOwnerDeletion": False}, OwnerReference)


def _set_owners(item: GraphNode, owners: Sequence[OwnerReference]) -> PatchAction:
    return _patch(item, "ownerReferences", [codec.to_tree(owner) for owner in owners])


def _remove_finalizer(item: GraphNode, finalizer: str) -> PatchAction:
    return _patch(item, "finalizers", [kept for kept in item.metadata.finalizers if kept != finalizer])


def _patch(item: GraphNode, field: str, value: list[Any]) -> PatchAction:
    metadata = item.metadata
    patch = {"metadata": {"resourceVersion": metadata.resource_version, field: value or None}}
    return PatchAction(item.endpoint, metadata.name, patch, namespace=metadata.namespace)


def _delete(item: GraphNode, propagation: Propagation, *, check_revision: bool = True) -> DeleteAction:
    metadata = item.metadata
    return DeleteAction(
        item.endpoint,
        metadata.name,
        metadata.namespace,
        uid=metadata.uid,
        revision=metadata.resource_version if check_revision else "",
        propagation=propagation,
    )
