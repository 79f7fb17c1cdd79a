"""Nodes whose free amounts or devices may differ after changes, so that the others are not computed again.

A pod affects its node; a claim affects the nodes of its devices and of the pods that it is charged to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Any, TypeVar

from plimsoll.api.core import Node, Pod
from plimsoll.api.identity import PoolId
from plimsoll.api.resource import ResourceClaim, ResourceClaimTemplate
from plimsoll.api.scheduling import PodGroup
from plimsoll.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from plimsoll.scheduler.snapshot.snapshot import Snapshot

T = TypeVar("T")

#: Kinds that neither ledgers nor devices depend on.
_WITHOUT_EFFECT = (ResourceClaimTemplate, PodGroup, PersistentVolume, PersistentVolumeClaim, StorageClass)


def find_affected_nodes(versions: Iterable[Any], snapshot: Snapshot) -> set[str] | None:
    """Return the nodes that changes affect, from all old and new versions of the changed objects.

    None if any node may be affected: devices of several nodes, or objects that all nodes depend on.
    """
    found: set[str] = set()
    for thing in versions:
        if isinstance(thing, Pod):
            found.add(thing.spec.node_name or "")
        elif isinstance(thing, Node):
            found.add(thing.metadata.name)
        elif isinstance(thing, ResourceClaim):
            nodes = _nodes_of_claim(thing, snapshot)
            if "" in nodes:
                return None
            found |= nodes
        elif not isinstance(thing, _WITHOUT_EFFECT):
            return None
    return found - {""}


def _nodes_of_claim(claim: ResourceClaim, snapshot: Snapshot) -> set[str]:
    """Return the nodes of a claim's devices, "" for devices of no single node, and those of its pods."""
    users = (snapshot.find_pod(key) for key in snapshot.claim_users(*claim.metadata.key))
    found = {snapshot.node(user[0]).metadata.name for user in users if user is not None}
    for result in claim.allocation_results:
        views = snapshot.inventory.slices_of(PoolId(result.driver, result.pool))
        nodes = {view.slice.spec.node_name or "" for view in views}
        found |= nodes if len(nodes) < 2 else {""}
    return found


def keep_unaffected(known: Mapping[str, T], affected: Set[str] | None) -> dict[str, T]:
    """Return what is known of the nodes that are not affected."""
    return {} if affected is None else {name: each for name, each in known.items() if name not in affected}
