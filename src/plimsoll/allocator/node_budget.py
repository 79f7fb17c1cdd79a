"""Joint allocation: devices are selected so that their charges fit the node.

`NodeBudget` has the amounts of node resources that may still be charged (node headroom, pod-level request, or
other bounds of the caller) and the caller's function from a device to its charge. The search skips choices
that exceed it, so a pod that accepts "a GPU, or 8 CPUs" gets the GPU where the CPUs would not fit (KEP-5517,
user story 4). Amounts are integers in any unit; charges are non-negative and additive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from plimsoll.allocator.devices.node_devices import NodeDevices
from plimsoll.allocator.request_matching import RequestPlan, RequestSet
from plimsoll.allocator.results import device_result
from plimsoll.api.resource import Device, DeviceRequestAllocationResult, ResourceClaim

#: (claim, allocation result without shareID, device) -> resource -> amount
ChargeFunction: TypeAlias = (
    "Callable[[ResourceClaim, DeviceRequestAllocationResult, Device], Mapping[str, int]]"
)


@dataclass(frozen=True, slots=True)
class BudgetLine:
    """One bound: the maximum charge per resource. Other resources are not bounded by it."""

    name: str  #: source of the bound, such as "node headroom" or "pod-level request"
    amounts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class NodeBudget:
    """Maximum charges of the devices of one allocation, all claims together."""

    charge: ChargeFunction
    lines: Sequence[BudgetLine] = field(default_factory=tuple)


class RemainingBudget:
    """Budget during a search: the remainder of every bounded amount."""

    __slots__ = ("_budget", "_charges", "_devices", "_order", "bounds", "left")

    def __init__(self, budget: NodeBudget, order: RequestSet, devices: NodeDevices) -> None:
        self._budget = budget
        self._order = order
        self._devices = devices
        #: (line, resource) of every bounded amount.
        self.bounds = [(line.name, resource) for line in budget.lines for resource in line.amounts]
        self.left = [amount for line in budget.lines for amount in line.amounts.values()]
        self._charges: dict[tuple[RequestPlan, int], tuple[int, ...]] = {}

    def charges(self, plan: RequestPlan, device: int) -> tuple[int, ...]:
        """Return the charge of a device, by bound."""
        known = self._charges.get((plan, device))
        if known is None:
            entry = self._devices.entries[device]
            claim = self._order.claims[plan.claim]
            amounts = self._budget.charge(claim, device_result(plan, entry, None), entry.device)
            known = tuple(amounts.get(resource, 0) for _, resource in self.bounds)
            self._charges[plan, device] = known
        return known

    def fits(self, charges: tuple[int, ...]) -> bool:
        # A charge of zero fits even if the bound is already exceeded.
        return all(not charge or charge <= left for charge, left in zip(charges, self.left, strict=True))

    def subtract(self, charges: tuple[int, ...]) -> None:
        for number, charge in enumerate(charges):
            self.left[number] -= charge

    def restore(self, charges: tuple[int, ...]) -> None:
        for number, charge in enumerate(charges):
            self.left[number] += charge
