"""What would be if: a cluster in memory that is changed, scheduled, compared, and put back.

START HERE: `whatif.py`. `run.py` answers a whole question (`Plan`) with a report; `exhaustive/` proves
whether any placement exists; `stock.py` knows what the stock scheduler does otherwise.
"""

from plimsoll.tools.whatif.result import Prediction
from plimsoll.tools.whatif.kube_scheduler import STOCK
from plimsoll.tools.whatif.outcome import (
    Because,
    Difference,
    Evicted,
    Move,
    Outcome,
    Pending,
    Placed,
    Standing,
    compare,
)
from plimsoll.tools.whatif.plan import Plan
from plimsoll.tools.whatif.report import WhatifReport
from plimsoll.tools.whatif.run import run_whatif
from plimsoll.tools.whatif.whatif import Branch, Whatif

__all__ = [
    "STOCK",
    "Because",
    "Branch",
    "Difference",
    "Evicted",
    "Move",
    "Outcome",
    "Pending",
    "Placed",
    "Plan",
    "Prediction",
    "Standing",
    "Whatif",
    "WhatifReport",
    "compare",
    "run_whatif",
]
