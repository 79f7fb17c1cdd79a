"""Which devices a claim gets: DRA's structured-parameters allocator as a pure function. Imports api and cel.

`allocate_claims(inventory, state, claims, node, ...)` gives an `Allocation`, a `Refusal` with its reasons, a
`AllocationFault` or a `SearchAborted`. Implements document 001 whole (consumable capacity, request policies,
shareID, distinctAttribute) and the allocator semantics. Read `allocator.py` first: slices become pools and
numbered devices (`devices/`), claims become plans (`plans`), the search picks devices (`search/`), `results`
writes them down, and where there are none `reasons/` says why.
"""

from plimsoll.allocator.allocator import Allocation, AllocationOutcome, SearchAborted, allocate_claims
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
]
