"""Device selectors: the CEL dialect of DRA, compiled to Python. Imports only api and errors.

`compile_selector(text, Environment())` gives a `Selector`; `flatten(device, driver)` makes a device readable
for it; `selector.matches(device)` is the answer. `Programs` and `Slices` keep what can be used again.
"""

from __future__ import annotations

from plimsoll.cel.caches import Matches, Programs, Slices, SliceVersion, match_all
from plimsoll.cel.closures import Outcome
from plimsoll.cel.device import Device, flatten
from plimsoll.cel.environment import Environment
from plimsoll.cel.run import COST_LIMIT
from plimsoll.cel.selector import Selector, compile_selector

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
