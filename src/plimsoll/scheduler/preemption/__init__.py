"""Preemption: selects lower-priority pods to evict so that a pod fits. START HERE: `plan.py`.

The dry run frees what victims request and what their claims hold. Victims are chosen by kube-scheduler's
rules: as few and as unimportant as possible, without violating disruption budgets where possible.
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
