"""NodeResourcesFit: headroom for a pod's own requests and for one more pod.

It reads the unified ledger: charges of other pods' claims reduce headroom like requests. Resources that
claims may charge under Max or ConsumeFrom cannot be checked by the pod's spec, because their consumption
depends on the devices (docs/spec/accounting.md, "Accounting policies"). For pods with claims they are
delegated to the device search, which comes last.

An extended resource that a DeviceClass serves is left to the device search on nodes that do not advertise it
themselves (`extended_resources`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar

import numpy as np

from plimsoll.api.core import Node, Pod
from plimsoll.api.forms import AccountingPolicy, read_device, read_device_class
from plimsoll.api.pod_claims import DEVICE_CLASS_RESOURCE, device_requests
from plimsoll.api.resource import Device, DeviceClass, ResourceClaim, ResourceSlice
from plimsoll.ledger.claims import effective_policy
from plimsoll.ledger.columns import Mask, NodeColumns
from plimsoll.ledger.fit import find_request_shortages
from plimsoll.ledger.requests import is_pod_level_resource, pod_requests
from plimsoll.ledger.units import CPU, PODS, STANDARD_RESOURCES, is_extended_resource, to_units
from plimsoll.ledger.verdict import Cause, Reason
from plimsoll.scheduler.events import ClusterEvent, EventKind, NodeCapacity, NodeUpdate, PodUpdate
from plimsoll.scheduler.extended_resources import served_resources
from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.filters.queueing_hint import WaitingPod
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.reasons import NodeReason, ReasonMessage, Rule
from plimsoll.scheduler.snapshot.index import SnapshotIndex
from plimsoll.scheduler.snapshot.node_query_cache import NodeQuery, NodeQueryCache, Rows
from plimsoll.scheduler.snapshot.snapshot import Snapshot


class NodeResourcesMessage(ReasonMessage):
    """Messages of NodeResourcesFit."""

    INSUFFICIENT = "Insufficient {resource}"
    TOO_MANY_PODS = "Too many pods"


_DELEGATED = (AccountingPolicy.MAX, AccountingPolicy.CONSUME_FROM)


#: Most lists of devices whose resources are remembered.
_MOST_KNOWN = 1024


class DelegatedResources(SnapshotIndex):
    """Index of the resources that devices and classes charge under Max or ConsumeFrom."""

    kinds = (ResourceSlice, DeviceClass)

    def __init__(self) -> None:
        self._of_devices: Counter[str] = Counter()
        self._of_classes: dict[str, frozenset[str]] = {}
        #: By the identity of devices, which is kept alive: machines of one type share their devices.
        self._known: dict[int, tuple[tuple[Device, ...], list[str]]] = {}

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
        for name in self._delegated(slice.spec.devices or ()):
            self._of_devices[name] += sign
            if not self._of_devices[name]:
                del self._of_devices[name]

    def _delegated(self, devices: tuple[Device, ...]) -> list[str]:
        """Return the resources that devices charge under those policies, one name per device."""
        known = self._known.get(id(devices))
        if known is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            names = [
                name
                for device in devices
                for name, rule in read_device(device).items()
                if effective_policy(rule.policy) in _DELEGATED
            ]
            known = self._known[id(devices)] = devices, names
        return known[1]

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


def unchecked_resources(pod_info: PodInfo, node: Node, delegated: Collection[str]) -> frozenset[str]:
    """Return the resources that are not compared with the headroom of a node: left to the device search
    (`delegated` only with claims there), or ignored by the profile.
    """
    at_node = pod_info.at_node(node)
    ignored = ignored_requests(pod_info.profile, pod_info.requests)
    return frozenset((*(delegated if at_node.claims else ()), *served_resources(at_node.pod), *ignored))


def ignored_requests(profile: SchedulerProfile, requests: Iterable[str]) -> list[str]:
    """Return the extended resources among these that a profile ignores."""
    names, groups = profile.ignored_resources, profile.ignored_resource_groups
    if not names and not groups:
        return []
    return [
        name
        for name in requests
        if is_extended_resource(name) and (name in names or name.partition("/")[0] in groups)
    ]


@dataclass(frozen=True, slots=True)
class FitsRequests(NodeQuery):
    """Query whether a node has headroom for requests and for one more pod.

    Requests for `served` resources are met by devices on nodes that have none of the resource.
    """

    requests: tuple[tuple[str, int], ...]
    served: tuple[tuple[str, int], ...] = ()
    dtype: ClassVar[type[np.generic]] = np.bool_

    def evaluate_row(self, columns: NodeColumns, row: int) -> int:
        if columns.free(PODS)[row] < 1:
            return False
        return all(bool(columns.free(name)[row] >= wanted) for name, wanted in self.requests) and all(
            bool(columns.allocatable(name)[row] == 0 or columns.free(name)[row] >= wanted)
            for name, wanted in self.served
        )

    def evaluate(self, columns: NodeColumns, rows: Rows) -> Mask:
        mask = columns.fits_requests(dict(self.requests), rows=rows)
        for name, wanted in self.served:
            mask &= (columns.allocatable(name)[rows] == 0) | (columns.free(name)[rows] >= wanted)
        return mask


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
        #: Resources that are left to the device search, on nodes where the pod has claims.
        self.skip = delegated_resources(pod_info, snapshot)
        self._ignored = frozenset(ignored_requests(pod_info.profile, pod_info.requests))
        #: Extended resources that devices serve: on all nodes, or on those that do not advertise them.
        self._served = frozenset(served_resources(pod_info.pod))
        self._by_class = self._served.intersection(pod_info.extended_classes)

    def filter(self) -> Mask:
        passed = self._fits(self.skip)
        if self.skip and not self._has_claims_everywhere:
            passed = np.where(self._has_claim(), passed, self._fits(()))
        return passed

    def _fits(self, skip: Collection[str]) -> Mask:
        requests = {
            name: wanted
            for name, wanted in self.pod_info.requests.items()
            if wanted > 0 and name not in self._ignored
        }
        checked = tuple(
            (name, wanted)
            for name, wanted in requests.items()
            if name not in skip and name not in self._served
        )
        served = tuple((name, requests[name]) for name in sorted(self._by_class & requests.keys()))
        return self.snapshot.index(NodeQueryCache).column(FitsRequests(checked, served), self.snapshot)

    @property
    def _has_claims_everywhere(self) -> bool:
        """True if the claims of the pod do not depend on the node."""
        return not self._by_class or len(self.pod_info.claims) > 1 or self._served != self._by_class

    def _has_claim(self) -> Mask:
        """Return the nodes on which the pod has a claim for extended resources."""
        mask = np.zeros(self.snapshot.size, dtype=np.bool_)
        for name in self._by_class:
            mask |= self.snapshot.columns.allocatable(name) == 0
        return mask

    def filter_node(self, row: int) -> tuple[NodeReason, ...]:
        ledger = self.snapshot.ledger(row)
        skip = unchecked_resources(self.pod_info, self.snapshot.node(row), self.skip)
        short = find_request_shortages(
            self.pod_info.requests, ledger.allocatable, ledger.requested, len(ledger), skip
        )
        return tuple(map(shortage_reason, short))

    def count_reasons(self, removed: Mask) -> Sequence[tuple[NodeReason, int]]:
        found = []
        for name, wanted in self._checked_requests():
            short = removed & self._is_short(name, wanted)
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
                mask &= ~self._is_short(name, wanted) | (self.snapshot.columns.allocatable(name) >= wanted)
        return mask

    def _is_short(self, name: str, wanted: int) -> Mask:
        """Return the nodes on which a request is checked and does not fit."""
        columns = self.snapshot.columns
        short = columns.free(name) < wanted
        if name in self._by_class:
            short &= columns.allocatable(name) > 0
        elif name in self.skip:
            short &= ~self._has_claim()
        return short

    def _checked_requests(self) -> list[tuple[str, int]]:
        """Return the checked requests in the order in which shortages are reported."""
        requests = self.pod_info.requests
        names = [
            *(name for name in STANDARD_RESOURCES if name in requests),
            *sorted(requests.keys() - {*STANDARD_RESOURCES}),
        ]
        left_out = {
            *(self.skip if self._has_claims_everywhere else ()),
            *(self._served - self._by_class),
        } | self._ignored
        return [(PODS, 1), *((n, requests[n]) for n in names if requests[n] > 0 and n not in left_out)]

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
                    DEVICE_CLASS_RESOURCE + device_class.metadata.name,
                    device_class.spec.extended_resource_name,
                }
                own = waiting_pod.value(own_requests)
                return may_have_claims(waiting_pod.pod) or not names.isdisjoint(own)
            case EventKind.SLICE_CHANGED:
                # Devices may provide what the pod requests.
                return may_have_claims(waiting_pod.pod)
        return super().queueing_hint(event, waiting_pod)

    @classmethod
    def rejects_node(cls, waiting_pod: WaitingPod, node: Node, capacity: NodeCapacity | None) -> bool:
        if may_have_claims(waiting_pod.pod):
            return False  # claims may provide what the pod requests
        capacity = capacity or NodeCapacity.of_empty(node)
        requests = waiting_pod.value(own_requests)
        ignored = ignored_requests(waiting_pod.profile, requests)
        if ignored:
            requests = {name: amount for name, amount in requests.items() if name not in ignored}
        return not capacity.can_fit(requests, waiting_pod.priority)


def own_requests(pod: Pod) -> Mapping[str, int]:
    """Return the requests of a pod without its claims, in base units."""
    return to_units(pod_requests(pod))


def minimum_cpu(pod: Pod) -> int:
    """Return the CPU that a pod needs on any node; 0 if claims may provide it."""
    return 0 if may_have_claims(pod) else own_requests(pod).get(CPU, 0)


def may_have_claims(pod: Pod) -> bool:
    """Return whether a pod has claims, or extended resources for which it may get one."""
    spec = pod.spec
    return bool(spec.resource_claims) or any(
        "/" in name
        for container in chain(spec.init_containers, spec.containers)
        for name in container.resources.requests
    )


def _grew_enough(waiting_pod: WaitingPod, old: Node, new: Node) -> bool:
    """Return whether a node has more of a resource that a pod requests, or leaves it to devices now."""
    before, after = NodeCapacity.of_empty(old).allocatable, NodeCapacity.of_empty(new).allocatable
    names = (PODS, *waiting_pod.value(own_requests))
    return any(
        after.get(name, 0) > before.get(name, 0)
        or ("/" in name and before.get(name, 0) > 0 and not after.get(name, 0))
        for name in names
    )


def shortage_reason(reason: Reason) -> NodeReason:
    """Convert a shortage reported by the ledger into a reason of this rule."""
    if reason.cause is Cause.TOO_MANY_PODS:
        return NodeReason(Rule.RESOURCES, NodeResourcesMessage.TOO_MANY_PODS, reason.code, cause=reason)
    facts = {"resource": reason.resource}
    return NodeReason(Rule.RESOURCES, NodeResourcesMessage.INSUFFICIENT, reason.code, facts, reason)
