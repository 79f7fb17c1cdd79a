"""What happens in a cluster, as far as it can help a pod that has no place.

Owns `Happening` and `classify`, which makes one of an object's two states. A change that can help nobody (a
heartbeat, a condition, a finalizer) is no happening at all. Which pods a happening helps is the business of
`wakeups`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from plimsoll.api.core import Namespace, Node, Pod
from plimsoll.api.policy import PodDisruptionBudget
from plimsoll.api.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from plimsoll.api.storage import (
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from plimsoll.ledger.requests import Options, pod_requests
from plimsoll.ledger.units import CPU, PODS, units_of
from plimsoll.scheduler.snapshot.snapshot import TERMINAL_PHASES, Snapshot


class EventKind(Enum):
    """What happened. Where only `_CHANGED` is there it means new ones, too."""

    NODE_ADDED = "NodeAdded"
    NODE_CHANGED = "NodeChanged"
    NODE_REMOVED = "NodeRemoved"
    POD_ASSIGNED = "PodAssigned"  #: a pod is on a node now
    POD_UPDATED = "PodUpdated"  #: a pod on a node has changed: see the aspects
    POD_DELETED = "PodDeleted"  #: a pod left its node, finished, or gave up the node it was promised
    CLAIM_CHANGED = "ClaimChanged"  #: concerns the pods that use the claim
    CLAIM_FREED = "ClaimFreed"  #: devices came free: concerns all that wait for devices
    CLASS_CHANGED = "ClassChanged"
    SLICE_CHANGED = "SliceChanged"
    TAINT_RULE_CHANGED = "TaintRuleChanged"
    NAMESPACE_CHANGED = "NamespaceChanged"
    VOLUME_CLAIM_CHANGED = "VolumeClaimChanged"  #: concerns the pods that use the claim
    VOLUME_CHANGED = "VolumeChanged"
    STORAGE_CLASS_CHANGED = "StorageClassChanged"
    CSI_NODE_CHANGED = "CSINodeChanged"
    VOLUME_DETACHED = "VolumeDetached"
    OTHER = "Other"  #: an object whose meaning for pods is not known here


class UpdateType(Enum):
    """What of a node or a pod has changed."""

    LABELS = "labels"
    TAINTS = "taints"
    SCHEDULABLE = "schedulable"  #: a node takes pods again
    ALLOCATABLE = "allocatable"  #: a node has more of something
    FEATURES = "features"  #: a node declares other features
    SCALED_DOWN = "scaled down"  #: a pod takes less of something
    TERMINATING = "terminating"  #: a pod is about to go


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """What there is on the node a happening is about, right after it."""

    node: Node
    allocatable: Mapping[str, int]  #: what it has in all, in whole units
    free: Mapping[str, int]  #: what is left below the line
    lowest_priority: int | None = (
        None  #: the priority of the least important pod there; None if there is no pod
    )

    def can_fit(self, demand: Mapping[str, int], priority: int) -> bool:
        """Whether a pod that requests so much might fit, if need be with less important pods gone.

        Names of devices and other extended resources do not count: they may come from elsewhere.
        """
        capacity = self._for(priority)
        if capacity.get(PODS, 1) < 1:
            return False
        return all(
            amount <= capacity.get(name, 0) for name, amount in demand.items() if amount and "/" not in name
        )

    def cpu_for(self, priority: int) -> int:
        """The most of the commonest resource that such a pod might find."""
        return max(0, self._for(priority).get(CPU, 0))

    def _for(self, priority: int) -> Mapping[str, int]:
        return (
            self.allocatable
            if self.lowest_priority is not None and self.lowest_priority < priority
            else self.free
        )


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """Something happened to an object: what it was before and what it is now (None: it was, is not there)."""

    kind: EventKind
    old: Any = None
    new: Any = None
    updates: frozenset[UpdateType] = frozenset()
    capacity: NodeCapacity | None = None  #: of pods that left a node: what is there now, where it is known

    @property
    def object(self) -> Any:
        """The object, as it is or was."""
        return self.old if self.new is None else self.new


def node_capacity(snapshot: Snapshot, node: str) -> NodeCapacity | None:
    """The room on a node as it is now; None if the node is not known."""
    row = snapshot.row_of(node)
    if row is None:
        return None
    ledger = snapshot.ledger(row)
    least = min((entry.pod.spec.priority or 0 for entry in ledger.entries.values()), default=None)
    return NodeCapacity(snapshot.node(row), ledger.allocatable, ledger.headroom(), least)


def make_release_event(pod: Pod, capacity: NodeCapacity | None = None) -> ClusterEvent:
    """A pod that was assumed on a node is not going there after all."""
    return ClusterEvent(EventKind.POD_DELETED, old=pod, capacity=capacity)


def classify_change(
    old: Any | None, new: Any | None, capacity: NodeCapacity | None = None
) -> ClusterEvent | None:
    """What the change of an object from one state to another comes to; None if it can help nobody."""
    known = new if new is not None else old
    read = _READERS.get(type(known))
    if read is not None:
        return read(old, new, capacity)
    if known is None or (old is not None and new is not None and _means_the_same(old, new)):
        return None
    return ClusterEvent(EventKind.OTHER, old, new)


# -- nodes


def _read_node(old: Node | None, new: Node | None, capacity: NodeCapacity | None) -> ClusterEvent | None:
    if old is None or new is None:
        return ClusterEvent(EventKind.NODE_ADDED if old is None else EventKind.NODE_REMOVED, old, new)
    updates = set()
    if old.metadata.labels != new.metadata.labels:
        updates.add(UpdateType.LABELS)
    if old.spec.taints != new.spec.taints:
        updates.add(UpdateType.TAINTS)
    if old.spec.unschedulable and not new.spec.unschedulable:
        updates.add(UpdateType.SCHEDULABLE)
    if old.status.declared_features != new.status.declared_features:
        updates.add(UpdateType.FEATURES)
    before, after = old.status.allocatable, new.status.allocatable
    if before != after and any(name not in before or before[name] < have for name, have in after.items()):
        updates.add(UpdateType.ALLOCATABLE)
    return ClusterEvent(EventKind.NODE_CHANGED, old, new, frozenset(updates)) if updates else None


# -- pods


def _read_pod(old: Pod | None, new: Pod | None, capacity: NodeCapacity | None) -> ClusterEvent | None:
    was, is_now = _holds_room(old), _holds_room(new)
    if was and (not is_now or _gave_up(old, new)):
        return ClusterEvent(EventKind.POD_DELETED, old, capacity=capacity)
    if new is None or not is_now or not new.spec.node_name:
        return None
    if old is None or not old.spec.node_name:
        return ClusterEvent(EventKind.POD_ASSIGNED, old, new)
    updates = set()
    if old.metadata.labels != new.metadata.labels:
        updates.add(UpdateType.LABELS)
    if old.metadata.deletion_timestamp is None and new.metadata.deletion_timestamp is not None:
        updates.add(UpdateType.TERMINATING)
    if _took(old) != _took(new) and _shrank(old, new):
        updates.add(UpdateType.SCALED_DOWN)
    return ClusterEvent(EventKind.POD_UPDATED, old, new, frozenset(updates), capacity) if updates else None


def _holds_room(pod: Pod | None) -> bool:
    """Whether a pod is on a node, or was promised one."""
    if pod is None or pod.status.phase in TERMINAL_PHASES:
        return False
    return bool(pod.spec.node_name or pod.status.nominated_node_name)


def _gave_up(old: Pod | None, new: Pod | None) -> bool:
    """Whether a pod without a node was promised one and now goes elsewhere."""
    if old is None or new is None or old.spec.node_name:
        return False
    promised = old.status.nominated_node_name
    return bool(promised) and promised != (new.spec.node_name or new.status.nominated_node_name)


def _took(pod: Pod) -> tuple[object, ...]:
    """Everything that decides how much a pod on a node takes."""
    spec, status = pod.spec, pod.status
    return (
        [(each.resources, each.restart_policy) for each in (*spec.init_containers, *spec.containers)],
        spec.resources,
        spec.overhead,
        status.resources,
        status.allocated_resources,
        [(c.allocated_resources, c.resources) for c in (*status.init_container_statuses,
                                                        *status.container_statuses)],
        status.node_allocatable_resource_claim_statuses,
        status.native_resource_claim_status,
        [each for each in status.conditions if each.type.startswith("PodResize")],
    )  # fmt: skip


_ON_NODES = Options(count_claims=True, use_status=True, in_place_pod_level=True)


def _shrank(old: Pod, new: Pod) -> bool:
    before, after = (units_of(pod_requests(pod, _ON_NODES)) for pod in (old, new))
    return any(after.get(name, 0) < amount for name, amount in before.items())


# -- claims


def _read_claim(
    old: ResourceClaim | None, new: ResourceClaim | None, capacity: NodeCapacity | None
) -> ClusterEvent | None:
    before = None if old is None else old.status.allocation
    after = None if new is None else new.status.allocation
    if before is not None and before != after:
        return ClusterEvent(EventKind.CLAIM_FREED, old, new)
    if new is None:
        return None
    if old is None or _claim_view(old) != _claim_view(new):
        return ClusterEvent(EventKind.CLAIM_CHANGED, old, new)
    return None


def _claim_view(claim: ResourceClaim) -> tuple[object, ...]:
    """What of a claim decides whether its pods can be placed; drivers' reports and finalizers do not."""
    meta, status = claim.metadata, claim.status
    return (
        meta.uid, meta.deletion_timestamp is None, meta.owner_references, claim.spec, status.allocation,
        status.reserved_for,
    )  # fmt: skip


# -- everything else


def _means_the_same(old: Any, new: Any) -> bool:
    """Whether two states differ in nothing but what changes with every write."""
    if type(old) is not type(new):
        return False
    fields = (name for name in old.__struct_fields__ if name not in ("metadata", "status"))
    if any(getattr(old, name) != getattr(new, name) for name in fields):
        return False
    one, other = old.metadata, new.metadata
    if (one.uid, one.labels, one.annotations) != (other.uid, other.labels, other.annotations):
        return False
    return (one.deletion_timestamp is None) == (other.deletion_timestamp is None) and (
        getattr(old, "status", None) == getattr(new, "status", None)
    )


_Reader = Callable[[Any, Any, NodeCapacity | None], ClusterEvent | None]


def _changes(kind: EventKind, gone: bool = False) -> _Reader:
    """Reads objects whose coming and changing counts, and (if `gone`) whose going does, too."""

    def read(old: Any, new: Any, capacity: NodeCapacity | None) -> ClusterEvent | None:
        if new is None and not gone:
            return None
        if old is not None and new is not None and _means_the_same(old, new):
            return None
        return ClusterEvent(kind, old, new)

    return read


_READERS: Mapping[type[Any], _Reader] = {
    Node: _read_node,
    Pod: _read_pod,
    ResourceClaim: _read_claim,
    Namespace: _changes(EventKind.NAMESPACE_CHANGED),
    DeviceClass: _changes(EventKind.CLASS_CHANGED),
    ResourceSlice: _changes(EventKind.SLICE_CHANGED, gone=True),
    DeviceTaintRule: _changes(EventKind.TAINT_RULE_CHANGED, gone=True),
    PersistentVolumeClaim: _changes(EventKind.VOLUME_CLAIM_CHANGED),
    PersistentVolume: _changes(EventKind.VOLUME_CHANGED),
    StorageClass: _changes(EventKind.STORAGE_CLASS_CHANGED),
    CSINode: _changes(EventKind.CSI_NODE_CHANGED),
    VolumeAttachment: lambda old, new, capacity: (
        None if new else ClusterEvent(EventKind.VOLUME_DETACHED, old)
    ),
    PodDisruptionBudget: lambda old, new, capacity: None,  # makes evictions dearer or cheaper, not possible
}
