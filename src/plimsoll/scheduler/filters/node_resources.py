"""Whether a node has room for what a pod requests by itself, and for one more pod.

Owns kube-scheduler's NodeResourcesFit over the unified ledger: what other pods' claims charge is taken off
the node as their requests are. Resources that claims may charge under Max or ConsumeFrom cannot be judged by
the pod's spec (P24 of the accounting semantics): what the pod takes of them is known only with its devices.
For pods with claims they are left to the exact question about devices and books, which comes last.

DIFF: an extended resource that only a DeviceClass serves is one that nodes are short of; upstream makes a
claim for it (test_extended_resources_are_those_of_nodes).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from plimsoll.api.forms import Policy, read_device, read_device_class
from plimsoll.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from plimsoll.ledger.claims import effective_policy
from plimsoll.ledger.columns import Mask, NodeColumns
from plimsoll.ledger.fit import request_shortages
from plimsoll.ledger.requests import is_pod_level_resource
from plimsoll.ledger.units import PLAIN, PODS
from plimsoll.ledger.verdict import Cause, Reason
from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.reasons import NodeReason, ReasonMessage, Rule
from plimsoll.scheduler.snapshot.index import SnapshotIndex
from plimsoll.scheduler.snapshot.node_answers import NodeQuery, NodeQueryCache, Rows
from plimsoll.scheduler.snapshot.snapshot import Snapshot

_DELEGATED = (Policy.MAX, Policy.CONSUME_FROM)


class DelegatedResources(SnapshotIndex):
    """The resources that some device, or some class, has under a policy that the spec says nothing about."""

    def __init__(self) -> None:
        self._of_devices: Counter[str] = Counter()
        self._of_classes: dict[str, frozenset[str]] = {}

    def object_set(self, new: Any, old: Any) -> None:
        if isinstance(new, ResourceSlice):
            if old is not None:
                self._count(old, -1)
            self._count(new, 1)
        elif isinstance(new, DeviceClass):
            self._of_classes[new.metadata.name] = of_class(new)

    def object_removed(self, old: Any) -> None:
        if isinstance(old, ResourceSlice):
            self._count(old, -1)
        elif isinstance(old, DeviceClass):
            self._of_classes.pop(old.metadata.name, None)

    def _count(self, slice: ResourceSlice, sign: int) -> None:
        for device in slice.spec.devices or ():
            for name, rule in read_device(device).items():
                if effective_policy(rule.policy) in _DELEGATED:
                    self._of_devices[name] += sign
                    if not self._of_devices[name]:
                        del self._of_devices[name]

    def resources(self, claims: Sequence[ResourceClaim]) -> frozenset[str]:
        """The resources that these claims may charge under such a policy."""
        found = frozenset(self._of_devices)
        if self._of_classes:
            for name in requested_classes(claims):
                found |= self._of_classes.get(name, frozenset())
        return found


def of_class(device_class: DeviceClass) -> frozenset[str]:
    """The resources a class has under such a policy, whether its annotation is heeded or not."""
    said = read_device_class(device_class)
    policies = [*said.policies.items(), *((name, rule.policy) for name, rule in said.rules.items())]
    return frozenset(name for name, policy in policies if effective_policy(policy) in _DELEGATED)


def requested_classes(claims: Sequence[ResourceClaim]) -> Iterator[str]:
    """The classes that claims name, alternatives included."""
    for claim in claims:
        for request in claim.spec.devices.requests:
            if request.exactly is not None:
                yield request.exactly.device_class_name
            for alternative in request.first_available:
                yield alternative.device_class_name


def delegated_resources(pod_info: PodInfo, snapshot: Snapshot) -> Collection[str]:
    """The resources that cannot be judged by the pod's spec."""
    if not pod_info.claims or not snapshot.options.count_claims:
        return ()
    skip: frozenset[str] = frozenset()
    if snapshot.profile.policies:
        skip = snapshot.index(DelegatedResources).resources(pod_info.claims)
    if snapshot.profile.share_per_claim and pod_info.pod.spec.resources is not None:
        # What the claims of other pods hold inside a pod-level request is not charged again.
        skip |= {name for name in pod_info.pod.spec.resources.requests if is_pod_level_resource(name)}
    return skip


@dataclass(frozen=True, slots=True)
class FitsRequests(NodeQuery):
    """Whether there is room for one more pod, and for what it asks for."""

    asked: tuple[tuple[str, int], ...]
    dtype: ClassVar[type[np.generic]] = np.bool_

    def at(self, columns: NodeColumns, row: int) -> int:
        if columns.free(PODS)[row] < 1:
            return False
        return all(bool(columns.free(name)[row] >= wanted) for name, wanted in self.asked)

    def over(self, columns: NodeColumns, rows: Rows) -> Mask:
        return columns.fits_requests(dict(self.asked), places=rows)


class NodeResourcesFilter(Filter):
    """Nodes with room for a pod's requests."""

    rule = Rule.RESOURCES

    def __init__(self, pod_info: PodInfo, snapshot: Snapshot) -> None:
        super().__init__(pod_info, snapshot)
        self.skip = delegated_resources(pod_info, snapshot)

    @classmethod
    def pre_filter(cls, pod_info: PodInfo, snapshot: Snapshot) -> Self:
        return cls(pod_info, snapshot)

    def filter(self) -> Mask:
        demand, skip = self.pod_info.requests, self.skip
        asked = tuple((name, demand[name]) for name in demand if demand[name] > 0 and name not in skip)
        return self.snapshot.index(NodeQueryCache).column(FitsRequests(asked), self.snapshot)

    def filter_node(self, row: int) -> tuple[NodeReason, ...]:
        book = self.snapshot.ledger(row)
        short = request_shortages(
            self.pod_info.requests, book.allocatable, book.requested, len(book), self.skip
        )
        return tuple(map(shortage_reason, short))

    def count_reasons(self, removed: Mask) -> Sequence[tuple[NodeReason, int]]:
        found = []
        for name, wanted in self._asked():
            short = removed & (self.snapshot.columns.free(name) < wanted)
            count = int(np.count_nonzero(short))
            if count:
                found.append((self._reason(name, int(short.argmax())), count))
        return found

    def _reason(self, name: str, row: int) -> NodeReason:
        """What is said about one resource at a place where it is short."""
        reasons = (reason for reason in self.filter_node(row) if isinstance(reason.cause, Reason))
        return next(r for r in reasons if isinstance(r.cause, Reason) and r.cause.resource == name)

    def resolvable_nodes(self, removed: Mask) -> Mask:
        mask = removed.copy()
        for name, wanted in self._asked():
            if name != PODS:
                line, free = self.snapshot.columns.line(name), self.snapshot.columns.free(name)
                mask &= (free >= wanted) | (line >= wanted)
        return mask

    def _asked(self) -> list[tuple[str, int]]:
        """What is compared, in the order shortages are told."""
        demand = self.pod_info.requests
        names = [*(name for name in PLAIN if name in demand), *sorted(demand.keys() - {*PLAIN})]
        return [(PODS, 1), *((n, demand[n]) for n in names if demand[n] > 0 and n not in self.skip)]


def shortage_reason(reason: Reason) -> NodeReason:
    """What the ledger found short, as a reason of this rule."""
    if reason.cause is Cause.TOO_MANY_PODS:
        return NodeReason(Rule.RESOURCES, ReasonMessage.TOO_MANY_PODS, reason.code, cause=reason)
    facts = {"resource": reason.resource}
    return NodeReason(Rule.RESOURCES, ReasonMessage.INSUFFICIENT, reason.code, facts, reason)
