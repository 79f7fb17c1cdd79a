"""Cluster events that can make an unschedulable pod schedulable.

`classify_change` compares two states of an object. A change that cannot help any pod (a heartbeat, a
condition, a finalizer) is not an event. Each scheduling rule declares the events that can change its result
(`filters.queueing_hint`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

from plimsoll.api.core import Namespace, Node, Pod
from plimsoll.api.pod_claims import find_requesting_pod, pod_group_of, resolve_claim_names, uses_claims
from plimsoll.api.policy import PodDisruptionBudget
from plimsoll.api.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from plimsoll.api.scheduling import PodGroup
from plimsoll.api.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from plimsoll.api.workloads import ReplicaSet, ReplicationController, Service, StatefulSet
from plimsoll.ledger.requests import PodResourcesOptions, pod_requests
from plimsoll.ledger.units import CPU, PODS, to_units
from plimsoll.scheduler.snapshot.snapshot import Snapshot


class EventKind(Enum):
    """Kinds of cluster events; kinds with `_CHANGED` but without `_ADDED` include new objects."""

    NODE_ADDED = "NodeAdded"
    NODE_CHANGED = "NodeChanged"  #: see `NodeUpdate` for the changed parts
    NODE_REMOVED = "NodeRemoved"
    POD_ASSIGNED = "PodAssigned"  #: a pod was bound to or assumed on a node
    POD_UPDATED = "PodUpdated"  #: a pod on a node changed: see `PodUpdate` for the changed parts
    POD_DELETED = "PodDeleted"  #: a pod left its node, terminated, or lost its nomination
    CLAIM_CHANGED = "ClaimChanged"  #: affects only pods that use the claim
    CLAIM_FREED = "ClaimFreed"  #: devices were deallocated: affects all pods that need devices
    CLASS_CHANGED = "ClassChanged"
    SLICE_CHANGED = "SliceChanged"
    TAINT_RULE_CHANGED = "TaintRuleChanged"
    NAMESPACE_CHANGED = "NamespaceChanged"
    VOLUME_CLAIM_CHANGED = "VolumeClaimChanged"  #: affects only pods that use the PersistentVolumeClaim
    VOLUME_CHANGED = "VolumeChanged"
    STORAGE_CLASS_CHANGED = "StorageClassChanged"
    CSI_NODE_CHANGED = "CSINodeChanged"
    CSI_DRIVER_CHANGED = "CSIDriverChanged"
    STORAGE_CAPACITY_CHANGED = "StorageCapacityChanged"
    VOLUME_DETACHED = "VolumeDetached"
    GROUP_CHANGED = "PodGroupChanged"  #: a PodGroup was added or got claims, or a pod was added to it
    OTHER = "Other"  #: an object of any other kind changed


class NodeUpdate(Enum):
    """Changes of a node that can help a pod."""

    LABELS = "labels"
    TAINTS = "taints"
    SCHEDULABLE = "schedulable"  #: the node was uncordoned
    #: The allocatable amount of a resource grew, or a node leaves an extended resource to devices now.
    ALLOCATABLE = "allocatable"
    FEATURES = "features"  #: the declared features changed


class PodUpdate(Enum):
    """Changes of a pod on a node that can help another pod."""

    LABELS = "labels"
    SCALED_DOWN = "scaled down"  #: the pod consumes less of a resource
    TERMINATING = "terminating"  #: the pod got a deletion timestamp


#: An event that a rule declares: a kind, or one of the changes of NODE_CHANGED and POD_UPDATED.
DeclaredEvent: TypeAlias = EventKind | NodeUpdate | PodUpdate


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """Capacity of a node right after an event."""

    node: Node
    allocatable: Mapping[str, int]  #: in base units
    free: Mapping[str, int]  #: allocatable minus requested
    lowest_priority: int | None = None  #: lowest priority of the node's pods; None if it has no pods

    @staticmethod
    def of_empty(node: Node) -> NodeCapacity:
        """Return the capacity of a node without pods."""
        allocatable = to_units(node.status.allocatable)
        if PODS in node.status.allocatable:
            allocatable[PODS] = node.status.allocatable[PODS].value()
        return NodeCapacity(node, allocatable, allocatable)

    def can_fit(self, requests: Mapping[str, int], priority: int) -> bool:
        """Return whether a pod with these requests may fit, possibly by preempting lower-priority pods.

        Extended resources are ignored: devices may provide them.
        """
        capacity = self._for(priority)
        if capacity.get(PODS, 1) < 1:
            return False
        return all(
            amount <= capacity.get(name, 0) for name, amount in requests.items() if amount and "/" not in name
        )

    def cpu_for(self, priority: int) -> int:
        """Return the largest CPU request that may fit at a priority."""
        return max(0, self._for(priority).get(CPU, 0))

    def _for(self, priority: int) -> Mapping[str, int]:
        preempts = self.lowest_priority is not None and self.lowest_priority < priority
        return self.allocatable if preempts else self.free


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """Change of one object, with its states before (None: added) and after (None: deleted)."""

    kind: EventKind
    old: Any = None
    new: Any = None
    updates: frozenset[NodeUpdate | PodUpdate] = frozenset()
    capacity: NodeCapacity | None = None  #: of POD_DELETED and POD_UPDATED, if known

    @property
    def object(self) -> Any:
        """Latest known state of the object."""
        return self.old if self.new is None else self.new

    @property
    def types(self) -> Set[DeclaredEvent]:
        """Declared events that this event matches."""
        return self.updates if self.kind in _UPDATED else {self.kind}

    @property
    def node_name(self) -> str:
        """Name of the only node that changed, or "" if there may be several."""
        match self.kind:
            case EventKind.NODE_ADDED | EventKind.NODE_CHANGED:
                return str(self.new.metadata.name)
            case EventKind.POD_DELETED | EventKind.POD_UPDATED:
                nominated = self.capacity.node.metadata.name if self.capacity else ""
                return str(self.old.spec.node_name or nominated)
            case EventKind.SLICE_CHANGED:
                nodes = {each.spec.node_name or "" for each in (self.old, self.new) if each is not None}
                return nodes.pop() if len(nodes) == 1 else ""
        return ""

    @property
    def capacity_after(self) -> NodeCapacity | None:
        """Upper bound of the capacity of `node_name` after the event; None if unknown or unchanged."""
        if self.kind in (EventKind.NODE_ADDED, EventKind.NODE_CHANGED):
            return NodeCapacity.of_empty(self.new)
        return self.capacity if self.kind in (EventKind.POD_DELETED, EventKind.POD_UPDATED) else None

    @property
    def releases_devices(self) -> bool:
        """True if a removed pod's devices are free at once; those of a bound pod stay allocated to claims."""
        return uses_claims(self.old) and not self.old.spec.node_name

    @property
    def claims(self) -> list[tuple[str, str]]:
        """Namespace and name of the changed claim, or of the claims of a released pod."""
        if self.kind in (EventKind.CLAIM_CHANGED, EventKind.CLAIM_FREED, EventKind.VOLUME_CLAIM_CHANGED):
            return [self.object.metadata.key]
        if self.kind is EventKind.POD_DELETED and self.releases_devices:
            names = dict.fromkeys(resolve_claim_names(self.old).values())
            return [(self.old.metadata.namespace, name) for name in names]
        return []

    @property
    def group(self) -> tuple[str, str] | None:
        """Namespace and name of the PodGroup of GROUP_CHANGED."""
        if self.kind is not EventKind.GROUP_CHANGED:
            return None
        namespace, name = self.object.metadata.key
        return (namespace, pod_group_of(self.object)) if isinstance(self.object, Pod) else (namespace, name)


_UPDATED = frozenset({EventKind.NODE_CHANGED, EventKind.POD_UPDATED})


def node_capacity(snapshot: Snapshot, node: str) -> NodeCapacity | None:
    """Return the current capacity of a node, or None if the node is unknown."""
    row = snapshot.row_of(node)
    if row is None:
        return None
    ledger = snapshot.ledger(row)
    lowest = min((entry.pod.priority for entry in ledger.entries.values()), default=None)
    return NodeCapacity(snapshot.node(row), ledger.allocatable, ledger.headroom(), lowest)


def make_release_event(pod: Pod, capacity: NodeCapacity | None = None) -> ClusterEvent:
    """Return the event for an assumed pod that will not be bound."""
    return ClusterEvent(EventKind.POD_DELETED, old=pod, capacity=capacity)


def classify_change(
    old: Any | None, new: Any | None, capacity: NodeCapacity | None = None
) -> ClusterEvent | None:
    """Return the event for a change of an object, or None if it cannot help any pod."""
    known = new if new is not None else old
    classify = _CLASSIFIERS.get(type(known))
    if classify is not None:
        return classify(old, new, capacity)
    if known is None or (old is not None and new is not None and _is_unchanged(old, new)):
        return None
    return ClusterEvent(EventKind.OTHER, old, new)


# -- nodes


def _classify_node(old: Node | None, new: Node | None, capacity: NodeCapacity | None) -> ClusterEvent | None:
    if old is None or new is None:
        return ClusterEvent(EventKind.NODE_ADDED if old is None else EventKind.NODE_REMOVED, old, new)
    updates = set()
    if old.metadata.labels != new.metadata.labels:
        updates.add(NodeUpdate.LABELS)
    if old.spec.taints != new.spec.taints:
        updates.add(NodeUpdate.TAINTS)
    if old.spec.unschedulable and not new.spec.unschedulable:
        updates.add(NodeUpdate.SCHEDULABLE)
    if old.status.declared_features != new.status.declared_features:
        updates.add(NodeUpdate.FEATURES)
    before, after = old.status.allocatable, new.status.allocatable
    if before != after and (
        any(name not in before or before[name] < have for name, have in after.items())
        or any("/" in name and (name not in after or after[name].is_zero()) for name in before)
    ):
        updates.add(NodeUpdate.ALLOCATABLE)
    return ClusterEvent(EventKind.NODE_CHANGED, old, new, frozenset(updates)) if updates else None


# -- pods


def _classify_pod(old: Pod | None, new: Pod | None, capacity: NodeCapacity | None) -> ClusterEvent | None:
    was, is_now = _occupies_node(old), _occupies_node(new)
    if was and (not is_now or _lost_nomination(old, new)):
        return ClusterEvent(EventKind.POD_DELETED, old, capacity=capacity)
    if old is None and new is not None and not new.spec.node_name and pod_group_of(new):
        return ClusterEvent(EventKind.GROUP_CHANGED, new=new)
    if new is None or not is_now or not new.spec.node_name:
        return None
    if old is None or not old.spec.node_name:
        return ClusterEvent(EventKind.POD_ASSIGNED, old, new)
    updates = set()
    if old.metadata.labels != new.metadata.labels:
        updates.add(PodUpdate.LABELS)
    if old.metadata.deletion_timestamp is None and new.metadata.deletion_timestamp is not None:
        updates.add(PodUpdate.TERMINATING)
    if _consumption(old) != _consumption(new) and _shrinks(old, new):
        updates.add(PodUpdate.SCALED_DOWN)
    return ClusterEvent(EventKind.POD_UPDATED, old, new, frozenset(updates), capacity) if updates else None


def _occupies_node(pod: Pod | None) -> bool:
    """Return whether a pod is assigned or nominated to a node."""
    if pod is None or pod.has_terminated:
        return False
    return bool(pod.spec.node_name or pod.status.nominated_node_name)


def _lost_nomination(old: Pod | None, new: Pod | None) -> bool:
    """Return whether an unassigned pod lost or changed its nominated node."""
    if old is None or new is None or old.spec.node_name:
        return False
    nominated = old.status.nominated_node_name
    return bool(nominated) and nominated != (new.spec.node_name or new.status.nominated_node_name)


def _consumption(pod: Pod) -> tuple[object, ...]:
    """Return the fields that determine what an assigned pod consumes."""
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


_ON_NODES = PodResourcesOptions(count_claims=True, use_status=True, in_place_pod_level=True)


def _shrinks(old: Pod, new: Pod) -> bool:
    before, after = (to_units(pod_requests(pod, _ON_NODES)) for pod in (old, new))
    return any(after.get(name, 0) < amount for name, amount in before.items())


# -- claims


def _classify_claim(
    old: ResourceClaim | None, new: ResourceClaim | None, capacity: NodeCapacity | None
) -> ClusterEvent | None:
    before = None if old is None else old.status.allocation
    after = None if new is None else new.status.allocation
    if before is not None and before != after:
        return ClusterEvent(EventKind.CLAIM_FREED, old, new)
    if old is not None and new is None and find_requesting_pod(old) is not None:
        return ClusterEvent(EventKind.CLAIM_FREED, old)  # its pod may be scheduled again
    if new is None:
        return None
    if old is None or _claim_view(old) != _claim_view(new):
        return ClusterEvent(EventKind.CLAIM_CHANGED, old, new)
    return None


def _claim_view(claim: ResourceClaim) -> tuple[object, ...]:
    """Return the parts of a claim that scheduling reads; device status and finalizers are not among them."""
    meta, status = claim.metadata, claim.status
    return (
        meta.uid, meta.deletion_timestamp is None, meta.owner_references, claim.spec, status.allocation,
        status.reserved_for,
    )  # fmt: skip


# -- pod groups


def _classify_group(
    old: PodGroup | None, new: PodGroup | None, capacity: NodeCapacity | None
) -> ClusterEvent | None:
    """Return the event of a new group or of new claims; the spec is immutable, conditions are our own."""
    if new is None:
        return None
    if old is not None and (old.metadata.uid, old.status.resource_claim_statuses) == (
        new.metadata.uid,
        new.status.resource_claim_statuses,
    ):
        return None
    return ClusterEvent(EventKind.GROUP_CHANGED, old, new)


# -- everything else


def _is_unchanged(old: Any, new: Any) -> bool:
    """Return whether two states differ only in metadata that changes with every write."""
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


_Classifier = Callable[[Any, Any, NodeCapacity | None], ClusterEvent | None]


def _classifier(kind: EventKind, deleted: bool = False) -> _Classifier:
    """Return a classifier for additions and changes, and for deletions if `deleted`."""

    def classify(old: Any, new: Any, capacity: NodeCapacity | None) -> ClusterEvent | None:
        if new is None and not deleted:
            return None
        if old is not None and new is not None and _is_unchanged(old, new):
            return None
        return ClusterEvent(kind, old, new)

    return classify


_CLASSIFIERS: Mapping[type[Any], _Classifier] = {
    Node: _classify_node,
    Pod: _classify_pod,
    ResourceClaim: _classify_claim,
    Namespace: _classifier(EventKind.NAMESPACE_CHANGED),
    DeviceClass: _classifier(EventKind.CLASS_CHANGED),
    ResourceSlice: _classifier(EventKind.SLICE_CHANGED, deleted=True),
    DeviceTaintRule: _classifier(EventKind.TAINT_RULE_CHANGED, deleted=True),
    PodGroup: _classify_group,
    PersistentVolumeClaim: _classifier(EventKind.VOLUME_CLAIM_CHANGED),
    PersistentVolume: _classifier(EventKind.VOLUME_CHANGED),
    StorageClass: _classifier(EventKind.STORAGE_CLASS_CHANGED),
    CSINode: _classifier(EventKind.CSI_NODE_CHANGED),
    CSIDriver: _classifier(EventKind.CSI_DRIVER_CHANGED),
    CSIStorageCapacity: _classifier(EventKind.STORAGE_CAPACITY_CHANGED),
    VolumeAttachment: lambda old, new, _: None if new else ClusterEvent(EventKind.VOLUME_DETACHED, old),
    # Selectors decide how pods are spread; no event wakes a pod for them, as in kube-scheduler.
    Service: lambda old, new, _: None,
    ReplicationController: lambda old, new, _: None,
    ReplicaSet: lambda old, new, _: None,
    StatefulSet: lambda old, new, _: None,
    PodDisruptionBudget: lambda old, new, _: None,  # decides which pods are victims, not whether a pod fits
}
