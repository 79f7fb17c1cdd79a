"""What becomes of objects whose owners go.

Owns the decision for one object (upstream's garbage collector):

* it has an owner that is there: it stays, and references to owners that are gone are taken off it;
* all its owners are gone: it is deleted, in the background, or as the finalizers it already has say;
* no owner is there to stay and one waits for what it owns to go: it is deleted in the foreground if it owns
  something itself, so that the whole tree goes before its root;
* it is deleted and waits for what it owns: it is let go when nothing that blocks it is left;
* it is deleted and what it owns is to stay: it is taken off what it owns and then let go.

An owner is there only if the API has an object of that kind and name, where the object could name it, with
that UID. A cluster-scoped object cannot have an owner in a namespace; nothing is done about one that claims
to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

from plimsoll.api import codec
from plimsoll.api.meta import ObjectReference, OwnerReference
from plimsoll.client.event_recorder import WARNING, Report
from plimsoll.controllers.actions import NOTHING, Action, Delete, Patch, Plan
from plimsoll.controllers.plans.graph import DELETE_DEPENDENTS, ORPHAN_DEPENDENTS, Graph, Item

if TYPE_CHECKING:
    from plimsoll.client.client import Propagation

COMPONENT = "garbage-collector-controller"


class Owner(Enum):
    """What is known about the owner that a reference names."""

    SOLID = "there"
    WAITING = "deleted, waits for what it owns"
    GONE = "gone"
    UNKNOWN = "of a kind that is not served"
    INVALID = "in a namespace, of a cluster-scoped object"


def look_up(graph: Graph, item: Item, reference: OwnerReference) -> Owner | None:
    """What the graph alone tells of an owner: that it is there to stay; None if the API must be asked."""
    owner = graph.get(reference.uid)
    if owner is None or owner.is_deleting or not is_named(owner, item, reference):
        return None
    return Owner.SOLID


def is_named(owner: Item, item: Item, reference: OwnerReference) -> bool:
    """Whether a reference says where its owner is: kind, name, and a namespace the object can refer to."""
    endpoint, metadata = owner.endpoint, owner.metadata
    group, _, _ = reference.api_version.rpartition("/")
    return (
        (group, reference.kind, reference.name) == (endpoint.group, endpoint.kind, metadata.name)
        and reference.uid == metadata.uid
        and (not endpoint.namespaced or metadata.namespace == item.metadata.namespace)
    )


def plan_dependent(item: Item, owners: Mapping[OwnerReference, Owner], graph: Graph) -> Plan:
    """What to do about an object that has owners and is not being deleted; `item` is as the API has it."""
    references = item.metadata.owner_references
    states = [owners[reference] for reference in references]
    for reference, state in zip(references, states, strict=True):
        if state is Owner.INVALID:
            return NOTHING
        if state is Owner.UNKNOWN:
            return Plan(trouble=f"owner of unknown kind {reference.api_version} {reference.kind}")
    if Owner.SOLID in states:
        kept = [owner for owner, state in zip(references, states, strict=True) if state is Owner.SOLID]
        return NOTHING if len(kept) == len(references) else Plan((_own(item, kept),))
    actions: list[Action] = list(_report_misplaced(item, graph))
    dependents = graph.dependents(item.metadata.uid)
    if Owner.WAITING in states and dependents:
        # An object that waits for this one is a sign of a circle: nobody in it would ever go.
        circle = any(dependent.is_waiting for dependent in dependents)
        if circle and any(owner.block_owner_deletion for owner in references):
            actions.append(_own(item, [_unblocked(owner) for owner in references]))
            actions.append(_delete(item, "Foreground", pinned=False))
        else:
            actions.append(_delete(item, "Foreground"))
    elif ORPHAN_DEPENDENTS in item.metadata.finalizers:
        actions.append(_delete(item, "Orphan"))
    elif DELETE_DEPENDENTS in item.metadata.finalizers:
        actions.append(_delete(item, "Foreground"))
    else:
        actions.append(_delete(item, "Background"))
    return Plan(tuple(actions))


def plan_waiting(item: Item, graph: Graph) -> Plan:
    """Let an object go that waits for what it owns, if nothing that blocks it is left."""
    if any(dependent.blocks(item.metadata.uid) for dependent in graph.dependents(item.metadata.uid)):
        return NOTHING
    return Plan((_unhook(item, DELETE_DEPENDENTS),))


def plan_orphaning(item: Item, dependents: Sequence[Item]) -> Plan:
    """Take an object off what it owns, then let it go."""
    uid = item.metadata.uid
    actions: list[Action] = []
    for dependent in dependents:
        kept = [owner for owner in dependent.metadata.owner_references if owner.uid != uid]
        actions.append(_own(dependent, kept))
    return Plan((*actions, _unhook(item, ORPHAN_DEPENDENTS)))


def _report_misplaced(item: Item, graph: Graph) -> list[Report]:
    """Owners that are there, but in another namespace: their objects are lost by mistake."""
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
        regarding = ObjectReference(
            api_version=item.endpoint.api_version,
            kind=item.endpoint.kind,
            namespace=metadata.namespace,
            name=metadata.name,
            uid=metadata.uid,
        )
        text = f'ownerRef {named} does not exist in namespace "{metadata.namespace}"'
        reports.append(Report(regarding, "OwnerRefInvalidNamespace", text, COMPONENT, WARNING))
    return reports


def _unblocked(owner: OwnerReference) -> OwnerReference:
    return codec.convert({**codec.to_tree(owner), "blockOwnerDeletion": False}, OwnerReference)


def _own(item: Item, owners: Sequence[OwnerReference]) -> Patch:
    return _patch(item, "ownerReferences", [codec.to_tree(owner) for owner in owners])


def _unhook(item: Item, finalizer: str) -> Patch:
    return _patch(item, "finalizers", [kept for kept in item.metadata.finalizers if kept != finalizer])


def _patch(item: Item, field: str, value: list[Any]) -> Patch:
    metadata = item.metadata
    patch = {"metadata": {"resourceVersion": metadata.resource_version, field: value or None}}
    return Patch(item.endpoint, metadata.name, patch, namespace=metadata.namespace)


def _delete(item: Item, propagation: Propagation, *, pinned: bool = True) -> Delete:
    metadata = item.metadata
    return Delete(
        item.endpoint,
        metadata.name,
        metadata.namespace,
        uid=metadata.uid,
        revision=metadata.resource_version if pinned else "",
        propagation=propagation,
    )
