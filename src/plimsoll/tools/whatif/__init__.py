"""`plimsoll whatif`: a cluster in memory that is changed, scheduled, compared and restored.

START HERE: `whatif.py`. `run.py` evaluates a `WhatifPlan` and returns a report; `exhaustive/` proves whether
any placement exists; `kube_scheduler.py` describes how kube-scheduler differs.
"""

from plimsoll.tools.whatif.outcome import (
    EvictedPod,
    EvictionReason,
    PendingPod,
    PodPlacement,
    ScheduledPod,
    WhatifOutcome,
)
from plimsoll.tools.whatif.plan import WhatifPlan
from plimsoll.tools.whatif.result import Prediction
from plimsoll.tools.whatif.run import run_whatif
from plimsoll.tools.whatif.texts import WhatifReport
from plimsoll.tools.whatif.whatif import Branch, Whatif

__all__ = [
    "Branch",
    "EvictedPod",
    "EvictionReason",
    "PendingPod",
    "PodPlacement",
    "Prediction",
    "ScheduledPod",
    "Whatif",
    "WhatifOutcome",
    "WhatifPlan",
    "WhatifReport",
    "run_whatif",
]
