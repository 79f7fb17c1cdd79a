"""Who must go so that a pod of higher priority finds a place. Start at `plan.py`.

Both books count: what victims request and what their claims hold is free in the dry run. Upstream's rules
decide who goes: the fewest and the least important, disruption budgets kept where that is possible.
"""

from plimsoll.scheduler.preemption.candidates import CandidateLimits
from plimsoll.scheduler.preemption.nominations import Nomination, Nominations
from plimsoll.scheduler.preemption.plan import plan_preemption
from plimsoll.scheduler.preemption.result import NoPreemption, Preemption

__all__ = [
    "CandidateLimits",
    "NoPreemption",
    "Nomination",
    "Nominations",
    "Preemption",
    "plan_preemption",
]
