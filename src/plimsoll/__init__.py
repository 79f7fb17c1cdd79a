"""Plimsoll keeps one ledger of a Kubernetes node's resources, whoever takes them: pod requests or DRA claims.

The names below are the public API; everything else may change between versions.
"""

from plimsoll.allocate import (
    Allocation,
    AllocationState,
    Budget,
    BudgetLine,
    Fault,
    Features,
    GaveUp,
    Inventory,
    Limits,
    Preference,
    Refusal,
    allocate_claims,
    explain_lines,
)
from plimsoll.api.codec import decode, decode_object, encode
from plimsoll.api.forms import Form, Policy
from plimsoll.api.gates import Gates
from plimsoll.api.quantity import Quantity
from plimsoll.api.record import Record
from plimsoll.cel import Environment, Selector, compile_selector, flatten
from plimsoll.errors import InputError, PlimsollError
from plimsoll.validate import Prepared, Problem, Write, prepare

__all__ = [
    "Allocation",
    "AllocationState",
    "Budget",
    "BudgetLine",
    "Environment",
    "Fault",
    "Features",
    "Form",
    "Gates",
    "GaveUp",
    "InputError",
    "Inventory",
    "Limits",
    "PlimsollError",
    "Policy",
    "Preference",
    "Prepared",
    "Problem",
    "Quantity",
    "Record",
    "Refusal",
    "Selector",
    "Write",
    "allocate_claims",
    "compile_selector",
    "decode",
    "decode_object",
    "encode",
    "explain_lines",
    "flatten",
    "prepare",
]
