"""DRA structured-parameters allocator, as a pure function.

`allocate_claims(inventory, state, claims, node, ...)` returns an `Allocation`, a `Refusal` with its reasons,
an `AllocationFault` or a `SearchAborted`. Implements KEP-5075 (consumable capacity, request policies,
shareID, distinctAttribute) and docs/spec/allocator.md.

    allocator.py         START HERE: allocate_claims
    devices/             pools of slices, the devices of a node, and their usage
    request_matching.py  requests of the claims and their candidate devices
    search/              the search for devices
    availability.py      devices that can be allocated now, for tools that count them
    results.py           allocation results
    reasons/             reasons of a refusal
    state.py             allocated devices of a cluster

Imports only `api` and `cel`.
"""

from plimsoll.allocator.allocator import (
    Allocation,
    AllocationOutcome,
    SearchAborted,
    allocate_claims,
    is_allocation_usable,
)
from plimsoll.allocator.devices.inventory import Inventory
from plimsoll.allocator.devices.preference import Preference
from plimsoll.allocator.features import Features
from plimsoll.allocator.input_errors import AllocationFault
from plimsoll.allocator.limits import SearchLimits
from plimsoll.allocator.node_budget import BudgetLine, NodeBudget
from plimsoll.allocator.reasons.explanation import explain_lines
from plimsoll.allocator.reasons.refusal import Refusal
from plimsoll.allocator.state import AllocationState
from plimsoll.api.identity import DeviceId, PoolId

__all__ = [
    "Allocation",
    "AllocationFault",
    "AllocationOutcome",
    "AllocationState",
    "BudgetLine",
    "DeviceId",
    "Features",
    "Inventory",
    "NodeBudget",
    "PoolId",
    "Preference",
    "Refusal",
    "SearchAborted",
    "SearchLimits",
    "allocate_claims",
    "explain_lines",
    "is_allocation_usable",
]
