"""DynamicResources filter: searches devices only on nodes without a cached result.

`candidates` are the nodes without a cached refusal; `search` runs the exact search on one node and caches its
result. Unlike other filters it is evaluated node by node, best score first (`node_selection`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from plimsoll.allocator import AllocationFault
from plimsoll.allocator.devices.usage import DeviceUsage
from plimsoll.api.core import NodeSelector, Pod
from plimsoll.api.node_selection import NAME_FIELD
from plimsoll.api.pod_claims import resolve_claim_names, uses_claims
from plimsoll.api.resource import ResourceClaim
from plimsoll.ledger.columns import Column, Mask
from plimsoll.ledger.verdict import Reason
from plimsoll.scheduler.devices.charging_nodes import can_charge
from plimsoll.scheduler.devices.exact import (
    MAX_SCORE,
    DeviceMessage,
    NewId,
    NodeFit,
    is_usable_on,
    reassign_reasons,
    try_node,
)
from plimsoll.scheduler.devices.search_cache import NEVER, NodeState, SearchCache
from plimsoll.scheduler.devices.usage import read_usage
from plimsoll.scheduler.events import ClusterEvent, EventKind, NodeUpdate, PodUpdate
from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.filters.mixed_advertisers import uses_device_plugin
from plimsoll.scheduler.filters.node_resources import delegated_resources
from plimsoll.scheduler.filters.queueing_hint import NamedObject, WaitingPod
from plimsoll.scheduler.pod_claims import ClaimMessage
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.profile import DeviceOrder, SchedulerProfile
from plimsoll.scheduler.reasons import NodeReason, ReasonCounts, Rule
from plimsoll.scheduler.result import FitError
from plimsoll.scheduler.snapshot.snapshot import Snapshot


class DynamicResourcesFilter(Filter):
    """Filter by the devices that claims need, and by their charges to the node."""

    rule = Rule.DEVICES
    depends_on_pods = True
    #: DIFF: a pod rejected for its devices is woken by the deletion of any pod, even one without claims,
    #: because the charges of its claims may fit then. Upstream wakes it only by changes of claims, so that it
    #: waits for the next flush (test_deleting_a_pod_without_claims_wakes_pods_that_need_devices).
    events = frozenset(
        {
            EventKind.NODE_ADDED,
            NodeUpdate.LABELS,
            NodeUpdate.FEATURES,
            NodeUpdate.ALLOCATABLE,
            EventKind.POD_DELETED,
            PodUpdate.SCALED_DOWN,
            EventKind.CLAIM_CHANGED,
            EventKind.CLAIM_FREED,
            EventKind.CLASS_CHANGED,
            EventKind.SLICE_CHANGED,
            EventKind.TAINT_RULE_CHANGED,
        }
    )
    pod_fields = frozenset(
        {"resource_claims", "claim_statuses", "containers", "init_containers", "resources", "overhead"}
    )

    def __init__(
        self,
        pod_info: PodInfo,
        snapshot: Snapshot,
        new_id: NewId = lambda: "",
        settings: SchedulerProfile | None = None,
    ) -> None:
        super().__init__(pod_info, snapshot)
        self._new_id = new_id
        self._settings = settings or SchedulerProfile.default()
        # A search with a higher step limit may succeed where another was aborted.
        key = pod_info.resource_signature + b" %d %d %s %s" % (
            self._settings.search_steps,
            self._settings.device_preemption,
            self._settings.device_order.value.encode(),
            self._settings.mixed_advertisers.value.encode(),
        )
        self._results = snapshot.index(SearchCache).results_for(key)
        self._owner = self._results.owner = self._results.owner or pod_info
        #: Whether requests of the pod are checked by the search and not by NodeResourcesFit.
        self._is_delegated = bool(delegated_resources(pod_info, snapshot))

    def candidates(self) -> Mask:
        """Return the nodes where a search may still succeed."""
        mask = self._results.refused_at < self.snapshot.generations.device_rows
        if self._settings.searches_all_nodes(len(self.snapshot)):
            return np.ones_like(mask)
        for claim in self.pod_info.claims:
            if claim.status.allocation is not None:
                mask &= self._usable(claim)
        return mask

    def ranks(self) -> Column:
        """Return the best rank that alternatives can get on each node."""
        current = self._results.ranked_at >= self.snapshot.generations.device_rows
        return np.where(current, self._results.ranks, MAX_SCORE)

    def search(self, row: int) -> NodeFit | tuple[NodeReason, ...]:
        """Search devices on one node and cache the result."""
        found = self.search_uncached(row)
        generation = int(self.snapshot.generations.device_rows[row])
        if isinstance(found, NodeFit):
            self._results.ranks[row] = found.rank
            self._results.ranked_at[row] = generation
        else:
            shared = reassign_reasons(found, self.pod_info, self._owner)
            self._results.refuse(row, generation if self._is_cacheable(found) else NEVER, shared)
        return found

    def _is_cacheable(self, reasons: tuple[NodeReason, ...]) -> bool:
        """Return whether a refusal holds until capacity is freed.

        If devices are chosen before the ledger is checked, it may not: once an expensive device is allocated,
        the next choice may be cheaper.
        """
        if self._settings.device_order is DeviceOrder.JOINT:
            return True
        return not any(isinstance(reason.cause, Reason) for reason in reasons)

    def search_uncached(self, row: int) -> NodeFit | tuple[NodeReason, ...]:
        """Search devices on one node; only results that hold for every node in the same state are cached."""
        state = self._state(row) if self._results.states else None
        known = self._results.states.get(state) if state is not None else None
        if known is not None:
            return reassign_reasons(known, self._owner, self.pod_info)
        found = try_node(self.pod_info, row, self.snapshot, self._new_id, self._settings)
        if not isinstance(found, NodeFit):
            state = state or self._state(row)
            if state is not None:
                self._results.add_state(state, reassign_reasons(found, self.pod_info, self._owner))
        return found

    def short_of_devices(self) -> Mask:
        """Return the nodes that are known to lack devices, regardless of headroom."""
        lacking = [
            any(r.message is DeviceMessage.CANNOT_ALLOCATE for r in each) for each in self._results.reasons
        ]
        current = self._results.refused_at >= self.snapshot.generations.device_rows
        return current & np.array([*lacking, False], dtype=np.bool_)[self._results.kinds]

    def filter(self) -> Mask:
        mask = self.candidates() & self.snapshot.alive
        for row in np.flatnonzero(mask).tolist():
            mask[row] = isinstance(self.search(row), NodeFit)
        return mask

    def filter_node(self, row: int) -> tuple[NodeReason, ...]:
        found = try_node(self.pod_info, row, self.snapshot, self._new_id, self._settings, explain=True)
        return () if isinstance(found, NodeFit) else found

    def count_reasons(self, removed: Mask) -> Sequence[tuple[NodeReason, int]]:
        self._search_missing(removed)
        counts = np.bincount(self._results.kinds[removed], minlength=len(self._results.reasons)).tolist()
        found = ReasonCounts()
        for reasons, count in zip(self._results.reasons, counts, strict=True):
            for reason in reassign_reasons(reasons, self._owner, self.pod_info) if count else ():
                found.add(reason, count)
        return found.items()

    def resolvable_nodes(self, removed: Mask) -> Mask:
        self._search_missing(removed)
        helps = [all(reason.resolvable for reason in reasons) for reasons in self._results.reasons]
        return removed & np.array([*helps, False], dtype=np.bool_)[self._results.kinds]

    def _state(self, row: int) -> NodeState | None:
        """Return the node state that determines a result for the resource signature, if it is known."""
        if len(self.pod_info.unallocated_claims) < len(self.pod_info.claims):
            return None
        state = node_state(self.snapshot, row, with_headroom=self._is_delegated)
        provided = self.pod_info.provided_by(self.snapshot.node(row))
        return (state[0], state[1], (state[2], provided)) if state is not None and provided else state

    def _search_missing(self, removed: Mask) -> None:
        """Search all of these nodes that have no cached result."""
        unknown = removed & (self._results.refused_at < self.snapshot.generations.device_rows)
        for row in np.flatnonzero(unknown).tolist():
            self.search(row)

    def _usable(self, claim: ResourceClaim) -> Mask:
        mask = np.zeros(self.snapshot.size, dtype=np.bool_)
        allocation = claim.status.allocation
        name = None if allocation is None else _only_node(allocation.node_selector)
        rows = self.snapshot.rows() if name is None else [self.snapshot.row_of(name)]
        for row in rows:
            if row is not None:
                mask[row] = is_usable_on(claim, self.snapshot.node(row))
        return mask

    # -- queueing hint

    @classmethod
    def queueing_hint(cls, event: ClusterEvent, waiting_pod: WaitingPod) -> bool:
        match event.kind:
            case EventKind.NODE_CHANGED if not waiting_pod.needs_capacity:
                if not event.updates & {NodeUpdate.LABELS, NodeUpdate.FEATURES}:
                    return False
            case EventKind.POD_DELETED | EventKind.POD_UPDATED:
                if event.releases_devices or uses_device_plugin(event.old):
                    return True
                capacity = event.capacity
                return waiting_pod.needs_capacity and (
                    capacity is None or not waiting_pod.is_rejected(capacity.node, capacity)
                )
            case EventKind.CLAIM_CHANGED:
                meta = event.object.metadata
                return meta.namespace == waiting_pod.namespace and meta.name in waiting_pod.value(
                    _claim_names
                )
        return super().queueing_hint(event, waiting_pod)

    @classmethod
    def affected_node(cls, event: ClusterEvent) -> str:
        if event.kind in (EventKind.POD_DELETED, EventKind.POD_UPDATED) and event.releases_devices:
            return ""  # other nodes may reach the devices
        return super().affected_node(event)

    @classmethod
    def named_objects(cls, pod: Pod) -> Iterator[NamedObject]:
        for name in _claim_names(pod) if uses_claims(pod) else ():
            yield EventKind.CLAIM_CHANGED, pod.metadata.namespace, name


def node_state(
    snapshot: Snapshot, row: int, *, with_headroom: bool = False, usage: DeviceUsage | None = None
) -> NodeState | None:
    """Return a key that is equal for nodes with the same devices, allocations and headroom; headroom counts
    if devices charge the node, or if it is asked for. `usage` is the usage of its devices, if known.

    None if the node has devices of several nodes, or devices that cannot be read.
    """
    devices = snapshot.inventory.devices_for(snapshot.node(row)) if usage is None else usage.devices
    if isinstance(devices, AllocationFault) or devices.signature is None:
        return None
    headroom: object = None
    if with_headroom or (snapshot.options.count_claims and can_charge(snapshot, devices)):
        ledger = snapshot.ledger(row)
        headroom = (tuple(ledger.allocatable.items()), tuple(sorted(ledger.requested.items())))
    if usage is None:
        usage = read_usage(snapshot, devices)
    return devices.signature, usage.signature, headroom


#: Refusals for devices that more capacity of a node does not change.
_NOT_CAPACITY = frozenset(
    {
        DeviceMessage.CANNOT_ALLOCATE,
        DeviceMessage.CLAIM_ELSEWHERE,
        ClaimMessage.IN_USE,
        ClaimMessage.PENDING,
        ClaimMessage.CLASS_MISSING,
    }
)


def needs_capacity(fit_error: FitError) -> bool:
    """Return whether node capacity for the charges of claims may have been short, and not only devices."""
    return any(
        reason.rule is Rule.DEVICES and reason.message not in _NOT_CAPACITY for reason, _ in fit_error.reasons
    )


def _claim_names(pod: Pod) -> frozenset[str]:
    return frozenset(resolve_claim_names(pod).values())


def _only_node(selector: NodeSelector | None) -> str | None:
    """Return the name of the only node that a selector can match, if it names one."""
    if selector is None or len(selector.node_selector_terms) != 1:
        return None
    for requirement in selector.node_selector_terms[0].match_fields:
        if requirement.key == NAME_FIELD and requirement.operator == "In" and len(requirement.values) == 1:
            return requirement.values[0]
    return None
