"""NodeResourcesFit: headroom for a pod's own requests and for one more pod.

It reads the unified ledger: charges of other pods' claims reduce headroom like requests. Resources that
claims may charge under Max or ConsumeFrom cannot be checked by the pod's spec, because their consumption
depends on the devices (docs/spec/accounting.md, "Accounting policies"). For pods with claims they are
delegated to the device search, which comes last.

DIFF: an extended resource that only a DeviceClass provides is insufficient on all nodes; upstream creates a
claim for it (test_extended_resources_are_those_of_nodes).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from plimsoll.api.core import Node, Pod
from plimsoll.api.forms import AccountingPolicy, read_device, read_device_class
from plimsoll.api.pod_claims import device_requests
from plimsoll.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from plimsoll.ledger.claims import effective_policy
from plimsoll.ledger.columns import Mask, NodeColumns
from plimsoll.ledger.fit import find_request_shortages
from plimsoll.ledger.requests import is_pod_level_resource, pod_requests
from plimsoll.ledger.units import CPU, PODS, STANDARD_RESOURCES, to_units
from plimsoll.ledger.verdict import Cause, Reason
from plimsoll.scheduler.events import ClusterEvent, EventKind, NodeCapacity, NodeUpdate, PodUpdate
from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.filters.queueing_hint import WaitingPod
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.reasons import NodeReason, ReasonMessage, Rule
from plimsoll.scheduler.snapshot.index import SnapshotIndex
from plimsoll.scheduler.snapshot.node_query_cache import NodeQuery, NodeQueryCache, Rows
from plimsoll.scheduler.snapshot.snapshot import Snapshot


class NodeResourcesMessage(ReasonMessage):
    """Messages of NodeResourcesFit."""

    INSUFFICIENT = "Insufficient {resource}"
    TOO_MANY_PODS = "Too many pods"


#: Prefix of the extended resource that every DeviceClass has implicitly.
_CLASS_RESOURCE = "deviceclass.resource.kubernetes.io/"
_DELEGATED = (AccountingPolicy.MAX, AccountingPolicy.CONSUME_FROM)


class DelegatedResources(SnapshotIndex):
    """Index of the resources that devices and classes charge under Max or ConsumeFrom."""

    def __init__(self) -> None:
        self._of_devices: Counter[str] = Counter()
        self._of_classes: dict[str, frozenset[str]] = {}

    def object_changed(self, old: Any, new: Any) -> None:
        if isinstance(old, ResourceSlice):
            self._count(old, -1)
        elif isinstance(old, DeviceClass):
            del self._of_classes[old.metadata.name]
        if isinstance(new, ResourceSlice):
            self._count(new, 1)
        elif isinstance(new, DeviceClass):
            self._of_classes[new.metadata.name] = class_resources(new)

    def _count(self, slice: ResourceSlice, sign: int) -> None:
        for device in slice.spec.devices or ():
            for name, rule in read_device(device).items():
                if effective_policy(rule.policy) in _DELEGATED:
                    self._of_devices[name] += sign
                    if not self._of_devices[name]:
                        del self._of_devices[name]

    def resources(self, claims: Sequence[ResourceClaim]) -> frozenset[str]:
        """Return the resources that these claims may charge under those policies."""
        found = frozenset(self._of_devices)
        if self._of_classes:
            for claim in claims:
                for _, request in device_requests(claim):
                    found |= self._of_classes.get(request.device_class_name, frozenset())
        return found


def class_resources(device_class: DeviceClass) -> frozenset[str]:
    """Return the resources a class charges under those policies, whether or not its annotation is honored."""
    declared = read_device_class(device_class)
    policies = [*declared.policies.items(), *((name, rule.policy) for name, rule in declared.rules.items())]
    return frozenset(name for name, policy in policies if effective_policy(policy) in _DELEGATED)


def delegated_resources(pod_info: PodInfo, snapshot: Snapshot) -> Collection[str]:
    """Return the resources that cannot be checked by the pod's spec."""
    if not pod_info.claims or not snapshot.options.count_claims:
        return ()
    skip: frozenset[str] = frozenset()
    if snapshot.profile.policies:
        skip = snapshot.index(DelegatedResources).resources(pod_info.claims)
    if snapshot.profile.share_per_claim and pod_info.pod.spec.resources is not None:
        # Claims of other pods inside a pod-level request are not charged again.
        skip |= {name for name in pod_info.pod.spec.resources.requests if is_pod_level_resource(name)}
    return skip


@dataclass(frozen=True, slots=True)
class FitsRequests(NodeQuery):
    """Query whether a node has headroom for requests and for one more pod."""

    requests: tuple[tuple[str, int], ...]
    dtype: ClassVar[type[np.generic]] = np.bool_

    def evaluate_row(self, columns: NodeColumns, row: int) -> int:
        if columns.free(PODS)[row] < 1:
            return False
        return all(bool(columns.free(name)[row] >= wanted) for name, wanted in self.requests)

    def evaluate(self, columns: NodeColumns, rows: Rows) -> Mask:
        return columns.fits_requests(dict(self.requests), rows=rows)


class NodeResourcesFilter(Filter):
    """Filter by headroom for a pod's own requests."""

    rule = Rule.RESOURCES
    depends_on_pods = True
    events = frozenset(
        {
            EventKind.NODE_ADDED,
            NodeUpdate.ALLOCATABLE,
            EventKind.POD_DELETED,
            PodUpdate.SCALED_DOWN,
            EventKind.CLASS_CHANGED,
            EventKind.SLICE_CHANGED,
        }
    )
    pod_fields = frozenset({"containers", "init_containers", "resources", "overhead"})

    def __init__(self, pod_info: PodInfo, snapshot: Snapshot) -> None:
        super().__init__(pod_info, snapshot)
        self.skip = delegated_resources(pod_info, snapshot)

    def filter(self) -> Mask:
        requests, skip = self.pod_info.requests, self.skip
        checked = tuple(
            (name, requests[name]) for name in requests if requests[name] > 0 and name not in skip
        )
        return self.snapshot.index(NodeQueryCache).column(FitsRequests(checked), self.snapshot)

    def filter_node(self, row: int) -> tuple[NodeReason, ...]:
        ledger = self.snapshot.ledger(row)
        short = find_request_shortages(
            self.pod_info.requests, ledger.allocatable, ledger.requested, len(ledger), self.skip
        )
        return tuple(map(shortage_reason, short))

    def count_reasons(self, removed: Mask) -> Sequence[tuple[NodeReason, int]]:
        found = []
        for name, wanted in self._checked_requests():
            short = removed & (self.snapshot.columns.free(name) < wanted)
            count = int(np.count_nonzero(short))
            if count:
                found.append((self._reason(name, int(short.argmax())), count))
        return found

    def _reason(self, name: str, row: int) -> NodeReason:
        """Return the reason for one resource on a node where it is short."""
        reasons = self.filter_node(row)
        return next(r for r in reasons if isinstance(r.cause, Reason) and r.cause.resource == name)

    def resolvable_nodes(self, removed: Mask) -> Mask:
        mask = removed.copy()
        for name, wanted in self._checked_requests():
            if name != PODS:
                line, free = self.snapshot.columns.allocatable(name), self.snapshot.columns.free(name)
                mask &= (free >= wanted) | (line >= wanted)
        return mask

    def _checked_requests(self) -> list[tuple[str, int]]:
        """Return the checked requests in the order in which shortages are reported."""
        requests = self.pod_info.requests
        names = [
            *(name for name in STANDARD_RESOURCES if name in requests),
            *sorted(requests.keys() - {*STANDARD_RESOURCES}),
        ]
        return [(PODS, 1), *((n, requests[n]) for n in names if requests[n] > 0 and n not in self.skip)]

    @classmethod
    def queueing_hint(cls, event: ClusterEvent, waiting_pod: WaitingPod) -> bool:
        match event.kind:
            case EventKind.NODE_CHANGED if not _grew_enough(waiting_pod, event.old, event.new):
                return False
            case EventKind.POD_DELETED | EventKind.POD_UPDATED:
                capacity = event.capacity
                return capacity is None or not waiting_pod.is_rejected(capacity.node, capacity)
            case EventKind.CLASS_CHANGED:
                device_class = event.new
                names = {
                    _CLASS_RESOURCE + device_class.metadata.name,
                    device_class.spec.extended_resource_name,
                }
                own = waiting_pod.value(own_requests)
                return bool(waiting_pod.pod.spec.resource_claims) or not names.isdisjoint(own)
            case EventKind.SLICE_CHANGED:
                # Devices may provide what the pod requests.
                return bool(waiting_pod.pod.spec.resource_claims)
        return super().queueing_hint(event, waiting_pod)

    @classmethod
    def rejects_node(cls, waiting_pod: WaitingPod, node: Node, capacity: NodeCapacity | None) -> bool:
        if waiting_pod.pod.spec.resource_claims:
            return False  # claims may provide what the pod requests
        capacity = capacity or NodeCapacity.of_empty(node)
        return not capacity.can_fit(waiting_pod.value(own_requests), waiting_pod.priority)


def own_requests(pod: Pod) -> Mapping[str, int]:
    """Return the requests of a pod without its claims, in base units."""
    return to_units(pod_requests(pod))


def minimum_cpu(pod: Pod) -> int:
    """Return the CPU that a pod needs on any node; 0 if claims may provide it."""
    return 0 if pod.spec.resource_claims else own_requests(pod).get(CPU, 0)


def _grew_enough(waiting_pod: WaitingPod, old: Node, new: Node) -> bool:
    """Return whether a node has more of a resource that a pod requests."""
    before, after = NodeCapacity.of_empty(old).allocatable, NodeCapacity.of_empty(new).allocatable
    names = (PODS, *waiting_pod.value(own_requests))
    return any(after.get(name, 0) > before.get(name, 0) for name in names)


def shortage_reason(reason: Reason) -> NodeReason:
    """Convert a shortage reported by the ledger into a reason of this rule."""
    if reason.cause is Cause.TOO_MANY_PODS:
        return NodeReason(Rule.RESOURCES, NodeResourcesMessage.TOO_MANY_PODS, reason.code, cause=reason)
    facts = {"resource": reason.resource}
    return NodeReason(Rule.RESOURCES, NodeResourcesMessage.INSUFFICIENT, reason.code, facts, reason)
