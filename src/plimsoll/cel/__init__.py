"""Device selectors: the CEL dialect of DRA, compiled to Python. Imports only api and errors.

`compile_selector(text, Environment())` returns a `Selector`; `flatten(device, driver)` converts a device to
the form that `selector.matches(device)` evaluates. `compile_derived` does the same for derived attributes,
whose results are values. `ProgramCache` caches both.

Stages: parsing (`syntax/`), type checking and cost estimation (`static/`, called by `check.py`), and two back
ends: the interpreter (`interpreter/`, closures) and, for common expressions, generated Python (`codegen/`).
The functions that expressions can call are in `functions/`, the values in `values.py`.
"""

from __future__ import annotations

from plimsoll.cel.caches import DerivedResult, ProgramCache, SelectorMatches, derive_all, match_all
from plimsoll.cel.derived import AttributeValue, DerivedAttribute, compile_derived
from plimsoll.cel.device import CelDevice, flatten, has_invalid_attribute
from plimsoll.cel.interpreter.evaluation import COST_LIMIT
from plimsoll.cel.interpreter.program import EvaluationResult
from plimsoll.cel.selector import Selector, compile_selector
from plimsoll.cel.static.environment import Environment

__all__ = [
    "COST_LIMIT",
    "AttributeValue",
    "CelDevice",
    "DerivedAttribute",
    "DerivedResult",
    "Environment",
    "EvaluationResult",
    "ProgramCache",
    "Selector",
    "SelectorMatches",
    "compile_derived",
    "compile_selector",
    "derive_all",
    "flatten",
    "has_invalid_attribute",
    "match_all",
]
