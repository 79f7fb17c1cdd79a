"""Fixes for pending pods: changes that were tried in memory, and hints that could not be. START HERE:
`search.py`.

`find_fixes` tries candidate changes with the scheduling cycle and returns those with which the pod fits,
least harm first; `apply_fix` applies one to a copy of the cluster state.
"""

from plimsoll.tools.fixes.finder import FixFinder
from plimsoll.tools.fixes.fix import NO_FIXES, Fix, FixKind, FixReport, FixStep, Hint
from plimsoll.tools.fixes.search import FixLimits, apply_fix, find_fixes

__all__ = [
    "NO_FIXES",
    "Fix",
    "FixFinder",
    "FixKind",
    "FixLimits",
    "FixReport",
    "FixStep",
    "Hint",
    "apply_fix",
    "find_fixes",
]
