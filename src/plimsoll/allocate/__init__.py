"""Which devices a claim gets: DRA's structured-parameters allocator as a pure function. Imports api and cel.

`allocate_claims(inventory, state, claims, node, ...)` gives an `Allocation`, a `Refusal` with its reasons, a
`Fault` or a `GaveUp`. Implements document 001 whole (consumable capacity, request policies, shareID,
distinctAttribute) and the allocator semantics. Read `allocator.py` first: slices become pools and numbered
devices (`devices/`), claims become plans (`plans`), the search picks devices (`search/`), `results` writes
them down, and where there are none `reasons/` says why.
"""

from plimsoll.allocate.allocator import Allocation, GaveUp, Outcome, allocate_claims
from plimsoll.allocate.budget import Budget, BudgetLine
from plimsoll.allocate.devices.inventory import Inventory
from plimsoll.allocate.devices.waste import Preference
from plimsoll.allocate.faults import Fault
from plimsoll.allocate.features import Features
from plimsoll.allocate.limits import Limits
from plimsoll.allocate.reasons.explanation import explain_lines
from plimsoll.allocate.reasons.refusal import Refusal
from plimsoll.allocate.state import AllocationState
from plimsoll.api.identity import DeviceId, PoolId

__all__ = [
    "Allocation",
    "AllocationState",
    "Budget",
    "BudgetLine",
    "DeviceId",
    "Fault",
    "Features",
    "GaveUp",
    "Inventory",
    "Limits",
    "Outcome",
    "PoolId",
    "Preference",
    "Refusal",
    "allocate_claims",
    "explain_lines",
]
