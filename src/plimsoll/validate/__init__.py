"""Defaulting, gate dropping and validation of what is written to the API; `write.py` is the door."""

from plimsoll.validate.binding import Bound, bind_pod, read_binding
from plimsoll.validate.event_shapes import event_to_core, event_to_events
from plimsoll.validate.eviction import Evicted, Refusal, judge_eviction, read_eviction
from plimsoll.validate.generic import Traits
from plimsoll.validate.permissions import Caller, Permission
from plimsoll.validate.problems import Problem, ProblemType
from plimsoll.validate.write import Prepared, Write, prepare, prepare_generic

__all__ = [
    "Bound",
    "Caller",
    "Evicted",
    "Permission",
    "Prepared",
    "Problem",
    "ProblemType",
    "Refusal",
    "Traits",
    "Write",
    "bind_pod",
    "event_to_core",
    "event_to_events",
    "judge_eviction",
    "prepare",
    "prepare_generic",
    "read_binding",
    "read_eviction",
]
