"""`plimsoll defrag`: the fewest pods to move so that others fit.

START HERE: `search.py`. `target.py` reads what must fit, `report.py` renders the result.
"""

from plimsoll.tools.defrag.report import DefragReport
from plimsoll.tools.defrag.search import DefragLimits, DefragResult, MoveOrder, PodTransfer, find_moves
from plimsoll.tools.defrag.target import DefragTarget, add_target

__all__ = [
    "DefragLimits",
    "DefragReport",
    "DefragResult",
    "DefragTarget",
    "MoveOrder",
    "PodTransfer",
    "add_target",
    "find_moves",
]
