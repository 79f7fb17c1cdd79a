"""START HERE: `allocate_claims` allocates the devices of claims on a node.

A pure function of inventory, allocation state, claims, node and budget; it returns an `Allocation`, a
`Refusal`, an `AllocationFault` or a `SearchAborted`. It gathers the node's devices (`devices/inventory.py`)
and their usage (`devices/usage.py`), reads the claims into request plans (`request_matching.py`), searches
(`search/search.py`), and builds the results (`results.py`) or the reasons (`reasons/diagnosis.py`).

Without a budget and with the default preference the result is that of the allocator of Kubernetes 1.37;
differences of 1.36 are marked in the code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from plimsoll.allocator.devices.inventory import Inventory
from plimsoll.allocator.devices.node_devices import NodeDevices
from plimsoll.allocator.devices.pools import PoolStatus
from plimsoll.allocator.devices.preference import Preference, least_waste_first
from plimsoll.allocator.devices.usage import DeviceUsage
from plimsoll.allocator.input_errors import INVALID_POOLS, AllocationFault
from plimsoll.allocator.limits import SearchLimits, StepBudget, StepCounter
from plimsoll.allocator.node_budget import NodeBudget, RemainingBudget
from plimsoll.allocator.reasons.diagnosis import diagnose
from plimsoll.allocator.reasons.refusal import AllocatedElsewhere, Refusal
from plimsoll.allocator.request_matching import RequestSet, RequestStep, read_requests
from plimsoll.allocator.results import build_results
from plimsoll.allocator.search.search import Search, SearchEnd
from plimsoll.allocator.search.search_state import SearchState
from plimsoll.allocator.state import AllocationState
from plimsoll.api.core import Node
from plimsoll.api.node_selection import selector_matches
from plimsoll.api.resource import OPTIONAL_NODE_OPERATIONS, AllocationResult, DeviceClass, ResourceClaim

#: Steps after which a search is interrupted to try to prove that there is no solution.
PROOF_AFTER_STEPS = 1_000
#: Maximum steps of that proof.
MAX_PROOF_STEPS = 20_000


@dataclass(frozen=True, slots=True)
class Allocation:
    """A successful allocation: one result per claim, in the order of the claims."""

    results: tuple[AllocationResult, ...]
    steps: int
    #: Per claim and request, the index of the selected subrequest (0 without a prioritized list).
    alternatives: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class SearchAborted:
    """A search that ended without a result, at its step limit or deadline."""

    steps: int
    expired: bool  #: True if the deadline, not the step limit, was reached

    def __str__(self) -> str:
        why = "the deadline passed" if self.expired else "the step budget is spent"
        return f"gave up after {self.steps} steps: {why}"


AllocationOutcome: TypeAlias = "Allocation | Refusal | AllocationFault | SearchAborted"


def allocate_claims(
    inventory: Inventory,
    state: AllocationState,
    claims: Sequence[ResourceClaim],
    node: Node,
    *,
    classes: Mapping[str, DeviceClass],
    new_id: Callable[[], str],
    budget: NodeBudget | None = None,
    limits: SearchLimits | None = None,
    preference: Preference = Preference.FIRST,
    explain: bool = True,
    plugin_resources: Mapping[tuple[str, str], str] | None = None,
) -> AllocationOutcome:
    """Allocate devices for all claims on a node, all or none.

    Claims that are already allocated keep their devices, which must be usable on this node. `state` must
    include the devices of all allocated claims, `plugin_resources` is passed to `DeviceUsage`. `new_id`
    generates shareIDs. Without `explain` a refusal has no reasons, which is faster for checking many nodes.
    """
    waiting = []
    for claim in claims:
        if claim.status.allocation is None:
            waiting.append(claim)
        elif not is_allocation_usable(claim.status.allocation, node):
            return Refusal(node.metadata.name, allocated_elsewhere=AllocatedElsewhere.of(claim))
    devices = inventory.devices_for(node)
    if isinstance(devices, AllocationFault):
        return devices
    usage = DeviceUsage(devices, state, plugin_resources)
    if preference is Preference.LEAST_WASTE:
        devices = least_waste_first(devices, usage)
        usage = DeviceUsage(devices, state, plugin_resources)
    order = read_requests(waiting, classes, devices, usage)
    if isinstance(order, AllocationFault):
        return order
    clock = StepCounter(limits or SearchLimits())
    end, search = _search(order, devices, usage, clock, budget)
    if isinstance(end, AllocationFault):
        return end
    if end is SearchEnd.ABORTED:
        return SearchAborted(clock.steps, clock.expired)
    if end is SearchEnd.NONE:
        if any(pool.status is PoolStatus.INVALID for pool in devices.pools):
            return AllocationFault(INVALID_POOLS)
        if not explain:
            return Refusal(node.metadata.name)
        return diagnose(order, devices, usage, _search_state(order, devices, usage, budget), search.deepest)
    chosen = [step.plans[number] for step, number in zip(order.steps, search.alternatives, strict=True)]
    results = build_results(order, search.picks, chosen, devices, new_id)
    if isinstance(results, AllocationFault):
        return results
    fresh = iter(results)
    return Allocation(
        tuple(claim.status.allocation or next(fresh) for claim in claims),
        clock.steps,
        _alternatives(claims, search),
    )


def is_allocation_usable(allocation: AllocationResult, node: Node) -> bool:
    """Return whether a node can use the devices of an allocation."""
    selector = allocation.node_selector
    if selector is not None and selector_matches(selector, node) is not True:
        return False
    return OPTIONAL_NODE_OPERATIONS in node.status.declared_features or not any(
        result.skip_node_operations for result in allocation.devices.results
    )


def _alternatives(claims: Sequence[ResourceClaim], search: Search) -> tuple[tuple[int, ...], ...]:
    chosen = iter(search.alternatives)
    return tuple(
        tuple(next(chosen) if claim.status.allocation is None else 0 for _ in claim.spec.devices.requests)
        for claim in claims
    )


def _search_state(
    order: RequestSet, devices: NodeDevices, usage: DeviceUsage, budget: NodeBudget | None
) -> SearchState:
    return SearchState(
        order, devices, usage, RemainingBudget(budget, order, devices) if budget is not None else None
    )


def _search(
    order: RequestSet, devices: NodeDevices, usage: DeviceUsage, clock: StepCounter, budget: NodeBudget | None
) -> tuple[SearchEnd | AllocationFault, Search]:
    """Search in the order that determines the solution; if that takes long, try to prove infeasibility in
    another.
    """

    def new(ticks: StepCounter | StepBudget, steps: Sequence[RequestStep] | None = None) -> Search:
        return Search(order, devices, usage, _search_state(order, devices, usage, budget), ticks, steps)

    if len(order.steps) < 2:
        search = new(clock)
        return search.run(), search
    search = new(StepBudget(clock, PROOF_AFTER_STEPS))
    end = search.run()
    if end is not SearchEnd.ABORTED or clock.steps <= PROOF_AFTER_STEPS:
        return end, search
    if search.may_reorder:
        proof = new(StepBudget(clock, MAX_PROOF_STEPS), _most_constrained_first(order.steps))
        if proof.run() is SearchEnd.NONE:
            return SearchEnd.NONE, search
    again = new(clock)
    again.learn_from(search)
    return again.run(), again


def _most_constrained_first(steps: Sequence[RequestStep]) -> list[RequestStep]:
    """Sort requests by the number of choices, so that infeasible claims fail early."""
    return sorted(
        steps, key=lambda step: max(plan.candidates.bit_count() - plan.count for plan in step.plans)
    )
