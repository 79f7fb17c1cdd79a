"""Device selectors: the CEL dialect of DRA, compiled to Python. Imports only api and errors.

`compile_selector(text, Environment())` gives a `Selector`; `flatten(device, driver)` makes a device readable
for it; `selector.matches(device)` is the answer. `Programs` and `Slices` keep what can be used again.

A text becomes a tree (`syntax/`), the tree is checked and its cost estimated (`static/`, by way of
`check.py`), and the checked tree becomes closures (`exact/`) and, for the usual shapes, generated Python
(`fast/`). What expressions can call is in `functions/`, over `values.py`.
"""

from __future__ import annotations

from plimsoll.cel.caches import Matches, Programs, Slices, SliceVersion, match_all
from plimsoll.cel.device import Device, flatten
from plimsoll.cel.exact.closures import Outcome
from plimsoll.cel.exact.run import COST_LIMIT
from plimsoll.cel.selector import Selector, compile_selector
from plimsoll.cel.static.environment import Environment

__all__ = [
    "COST_LIMIT",
    "Device",
    "Environment",
    "Matches",
    "Outcome",
    "Programs",
    "Selector",
    "SliceVersion",
    "Slices",
    "compile_selector",
    "flatten",
    "match_all",
]
