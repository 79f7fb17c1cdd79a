"""Device selectors: the CEL dialect of DRA, compiled to Python. Imports only api and errors.

`compile_selector(text, Environment())` gives a `Selector`; `flatten(device, driver)` makes a device readable
for it; `selector.matches(device)` is the answer. `ProgramCache` and `SliceCache` keep what can be used again.

A text becomes a tree (`syntax/`), the tree is checked and its cost estimated (`static/`, by way of
`check.py`), and the checked tree becomes closures (`exact/`) and, for the usual shapes, generated Python
(`fast/`). What expressions can call is in `functions/`, over `values.py`.
"""

from __future__ import annotations

from plimsoll.cel.caches import ProgramCache, SelectorMatches, SliceCache, SliceVersion, match_all
from plimsoll.cel.device import CelDevice, flatten
from plimsoll.cel.interpreter.evaluation import COST_LIMIT
from plimsoll.cel.interpreter.planner import EvaluationResult
from plimsoll.cel.selector import Selector, compile_selector
from plimsoll.cel.static.environment import Environment

__all__ = [
    "COST_LIMIT",
    "CelDevice",
    "Environment",
    "EvaluationResult",
    "ProgramCache",
    "Selector",
    "SelectorMatches",
    "SliceCache",
    "SliceVersion",
    "compile_selector",
    "flatten",
    "match_all",
]
