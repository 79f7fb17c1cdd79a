"""`apply_change`: update a cluster state and compute what the change affects.

Every node whose row may have changed is reported; heartbeats are not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from plimsoll.api.core import Node, Pod
from plimsoll.api.identity import DeviceId, PoolId
from plimsoll.api.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from plimsoll.tools.cluster_state import ClusterState


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """Current version of an object, or (`gone`) its deletion."""

    thing: Any
    gone: bool = False


@dataclass(slots=True)
class ChangeScope:
    """Scope of a change: nodes by name (`everywhere`: all), kinds, and device pools."""

    nodes: set[str] = field(default_factory=set)
    everywhere: bool = False
    kinds: set[str] = field(default_factory=set)
    pools: set[PoolId] = field(default_factory=set)
    all_pools: bool = False

    def __bool__(self) -> bool:
        return bool(self.kinds)

    def merge(self, other: ChangeScope) -> None:
        self.nodes |= other.nodes
        self.everywhere |= other.everywhere
        self.kinds |= other.kinds
        self.pools |= other.pools
        self.all_pools |= other.all_pools


def apply_change(cluster_state: ClusterState, change: ObjectChange, scope: ChangeScope) -> None:
    """Update the cluster state and record what the change affects."""
    thing = change.thing
    meta = thing.metadata
    old = cluster_state.objects.find(type(thing), meta.namespace, meta.name)
    if change.gone:
        if old is None:
            return
    elif old is not None and _looks_the_same(old, thing):
        cluster_state.set(thing)
        return
    scope.kinds.add(type(thing).__name__)
    if "snapshot" not in cluster_state.__dict__:  # not computed yet
        scope.everywhere = scope.all_pools = True
        (cluster_state.remove if change.gone else cluster_state.set)(thing)
        return
    _note(cluster_state, old, scope)
    if change.gone:
        cluster_state.remove(old)
    else:
        if old is not None and old.metadata.uid != thing.metadata.uid:
            cluster_state.remove(old)  # another object of the same name: a list shows only the current one
        cluster_state.set(thing)
        _note(cluster_state, thing, scope)


def _note(cluster_state: ClusterState, thing: Any | None, scope: ChangeScope) -> None:
    if isinstance(thing, Pod):
        if thing.spec.node_name:
            scope.nodes.add(thing.spec.node_name)
    elif isinstance(thing, Node):
        scope.nodes.add(thing.metadata.name)
    elif isinstance(thing, ResourceClaim):
        scope.nodes |= _nodes_of_claim(cluster_state, thing)
        scope.pools |= {DeviceId.of(result).pool_id for result in thing.allocation_results}
    elif isinstance(thing, ResourceSlice):
        scope.pools.add(PoolId(thing.spec.driver, thing.spec.pool.name))
        if thing.spec.node_name:
            scope.nodes.add(thing.spec.node_name)
        else:
            scope.everywhere = True
    elif isinstance(thing, DeviceClass | DeviceTaintRule):
        scope.everywhere = scope.all_pools = True


def _nodes_of_claim(cluster_state: ClusterState, claim: ResourceClaim) -> set[str]:
    """Return the nodes of the pods that use a claim and of its device pools."""
    snapshot, namespace = cluster_state.snapshot, claim.metadata.namespace
    found = set()
    for key in snapshot.claim_users(namespace, claim.metadata.name):
        if (booked := snapshot.find_pod(key)) is not None:
            found.add(snapshot.node(booked[0]).metadata.name)
    for consumer in claim.status.reserved_for:
        pod = cluster_state.objects.find(Pod, namespace, consumer.name)
        if pod is not None and pod.spec.node_name:
            found.add(pod.spec.node_name)
    for result in claim.allocation_results:
        found.add(result.pool)  # most pools belong to one node and have its name
    return found


def _looks_the_same(old: Any, new: Any) -> bool:
    """Return whether nothing shown differs: kubelets update their nodes frequently."""
    was, is_now = old.metadata, new.metadata
    if was.resource_version and (was.uid, was.resource_version) == (is_now.uid, is_now.resource_version):
        return True
    return isinstance(new, Node) and _shown(old) == _shown(new)


def _shown(node: Node) -> tuple[object, ...]:
    conditions = [(each.type, each.status) for each in node.status.conditions]
    meta, status = node.metadata, node.status
    return (
        meta.labels,
        meta.annotations,
        node.spec,
        status.capacity,
        status.allocatable,
        status.node_info,
        conditions,
    )
