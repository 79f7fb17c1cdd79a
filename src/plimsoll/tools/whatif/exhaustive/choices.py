"""`fits_on`: every choice of devices for a pod on a node.

The scheduler takes the first choice that fits; this module enumerates all of them, subrequests of prioritized
lists included, so that a search can find one that leaves room for other pods. Devices that no claim of the
batch can distinguish are interchangeable. Rules and sums are the allocator's own (`plans`, `SearchState`),
and the ledger judges each choice; only the enumeration differs, without the shortcuts that are valid for a
first solution only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from plimsoll.allocator import AllocationFault
from plimsoll.allocator.devices.node_devices import NodeDevices
from plimsoll.allocator.devices.usage import DeviceUsage
from plimsoll.allocator.request_matching import RequestPlan, RequestSet, read_requests
from plimsoll.allocator.results import build_results
from plimsoll.allocator.search.search_state import Pick, SearchState, UndoRecord
from plimsoll.allocator.search.symmetry import group_devices
from plimsoll.api.forms import read_device
from plimsoll.api.resource import MAX_ALLOCATION_RESULTS, AllocationResult, ResourceClaim
from plimsoll.scheduler.devices import (
    NO_CLAIMS,
    NewId,
    NodeFit,
    charges_node,
    check_charges,
    find_delegated_shortages,
    is_usable_on,
)
from plimsoll.scheduler.devices.usage import read_usage
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.snapshot.snapshot import Snapshot


def fits_on(
    pod_info: PodInfo, row: int, snapshot: Snapshot, batch: Sequence[ResourceClaim], new_id: NewId
) -> Iterator[NodeFit]:
    """Yield all distinct ways to place a pod on a node; `batch` are the claims of all pods.

    Valid only where `can_list` returns True.
    """
    node = snapshot.node(row)
    if not pod_info.claims:
        yield NO_CLAIMS
        return
    if not all(is_usable_on(claim, node) for claim in pod_info.claims):
        return
    ledger = snapshot.ledger(row)
    charged = snapshot.options.count_claims and charges_node(snapshot, row)

    def judged(allocations: dict[str, AllocationResult]) -> NodeFit | None:
        found = (
            check_charges(pod_info, allocations, row, snapshot, ledger) if charged else NodeFit(allocations)
        )
        if not isinstance(found, NodeFit) or find_delegated_shortages(pod_info, found, snapshot, ledger):
            return None
        return found

    if not pod_info.unallocated_claims:
        found = judged({})
        if found is not None:
            yield found
        return
    devices = snapshot.inventory.devices_for(node)
    if isinstance(devices, AllocationFault):
        return
    usage = read_usage(snapshot, devices, pod_info.profile.mixed_advertisers)
    order = read_requests(pod_info.unallocated_claims, snapshot.classes, devices, usage)
    if isinstance(order, AllocationFault):
        return
    groups = _groups(batch, snapshot, devices, usage)
    for picks, plans in _Walk(order, devices, usage, groups).solutions():
        results = build_results(order, picks, plans, devices, new_id)
        if isinstance(results, AllocationFault):
            continue
        names = [claim.metadata.name for claim in pod_info.unallocated_claims]
        found = judged(dict(zip(names, results, strict=True)))
        if found is not None:
            yield found


def can_list(pod_info: PodInfo, row: int, snapshot: Snapshot) -> bool:
    """Return whether choices can be enumerated: not if an expression fails on a device, which ends an
    allocation.
    """
    devices = snapshot.inventory.devices_for(snapshot.node(row))
    if not pod_info.unallocated_claims or isinstance(devices, AllocationFault):
        return True
    order = read_requests(
        pod_info.unallocated_claims,
        snapshot.classes,
        devices,
        read_usage(snapshot, devices, pod_info.profile.mixed_advertisers),
    )
    return isinstance(order, AllocationFault) or not any(
        p.may_fail for step in order.steps for p in step.plans
    )


def _groups(
    batch: Sequence[ResourceClaim], snapshot: Snapshot, devices: NodeDevices, usage: DeviceUsage
) -> list[int]:
    """Return for each device the mask of devices that are interchangeable for the batch."""
    alone = [1 << number for number in range(len(devices.entries))]
    if devices.signature is None:
        return alone  # other nodes see these devices too
    order = read_requests(batch, snapshot.classes, devices, usage)
    if isinstance(order, AllocationFault):
        return alone
    plans = [plan for step in order.steps for plan in step.plans]
    alike = group_devices(plans, order.tables, devices, usage, None)
    # Devices with different charges are not interchangeable.
    costs: dict[tuple[object, ...], int] = {}
    keys = []
    for number, entry in enumerate(devices.entries):
        key = (alike[number], entry.id.driver, repr(sorted(read_device(entry.device).items())))
        keys.append(key)
        costs[key] = costs.get(key, 0) | 1 << number
    return [costs[key] for key in keys]


#: Devices, and the alternatives of the requests that they are for.
_Solution = tuple[tuple[Pick, ...], tuple[RequestPlan, ...]]


class _Walk:
    """Enumeration of device choices for the claims of one pod, in a fixed order."""

    def __init__(
        self, order: RequestSet, devices: NodeDevices, usage: DeviceUsage, groups: list[int]
    ) -> None:
        self._steps = order.steps
        self._shareable = devices.shareable
        self._groups = groups
        self._tally = SearchState(order, devices, usage, None)
        self._chosen: list[RequestPlan] = []
        self._ordered = any(table.opaque for table in order.tables)

    def solutions(self, position: int = 0) -> Iterator[_Solution]:
        if position == len(self._steps):
            yield tuple(self._tally.picks), tuple(self._chosen)
            return
        for plan in self._steps[position].plans:
            if (plan.all and not plan.devices) or self._tally.counts[
                plan.claim
            ] + plan.count > MAX_ALLOCATION_RESULTS:
                continue
            self._chosen.append(plan)
            if plan.all:
                yield from self._take_all(position, plan)
            else:
                yield from self._take(position, plan, plan.count, plan.candidates)
            self._chosen.pop()

    def _take_all(self, position: int, plan: RequestPlan) -> Iterator[_Solution]:
        undo: list[UndoRecord] = []
        for device in plan.devices:
            taken = self._tally.take_required(plan, device)
            if taken is None or isinstance(taken, AllocationFault):
                break
            undo.append(taken)
        else:
            yield from self.solutions(position + 1)
        self._tally.undo_picks(plan, undo)

    def _take(self, position: int, plan: RequestPlan, missing: int, mask: int) -> Iterator[_Solution]:
        """Allocate `missing` devices of a mask to a plan, in order of their numbers."""
        if missing <= 0:
            yield from self.solutions(position + 1)
            return
        tally = self._tally
        mask &= ~tally.unavailable(plan)
        for constraint in plan.constraints:
            mask &= tally.compatible_devices(plan, constraint)
        while mask.bit_count() >= missing:
            low = mask & -mask
            mask ^= low
            device = low.bit_length() - 1
            undo = tally.take(plan, device)
            if undo is not None:
                yield from self._take(position, plan, missing - 1, mask)
                tally.undo_picks(plan, [undo])
            mask &= ~self._equals(plan, device)

    def _equals(self, plan: RequestPlan, device: int) -> int:
        """Return the devices whose choice would repeat the same result."""
        if plan.admin or self._ordered:
            return 0
        equals = self._groups[device] & ~(1 << device)
        if self._shareable >> device & 1 and self._tally.shares:
            if device in self._tally.shares:
                return 0
            for shared in self._tally.shares:
                equals &= ~(1 << shared)
        return equals
