"""Plimsoll keeps one ledger of a Kubernetes node's resources, whoever takes them: pod requests or DRA claims.

The names below are the public API; everything else may change between versions.
"""

from plimsoll.api.codec import decode, decode_object, encode
from plimsoll.api.forms import Form, Policy
from plimsoll.api.gates import Gates
from plimsoll.api.quantity import Quantity
from plimsoll.api.record import Record
from plimsoll.cel import Environment, Selector, compile_selector, flatten
from plimsoll.errors import InputError, PlimsollError
from plimsoll.validate import Prepared, Problem, Write, prepare

__all__ = [
    "Environment",
    "Form",
    "Gates",
    "InputError",
    "PlimsollError",
    "Policy",
    "Prepared",
    "Problem",
    "Quantity",
    "Record",
    "Selector",
    "Write",
    "compile_selector",
    "decode",
    "decode_object",
    "encode",
    "flatten",
    "prepare",
]
