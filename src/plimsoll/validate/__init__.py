"""Defaulting, gate dropping, admission and validation of what is written to the API.

`write.py` is the door; `admission.py` and `quota_admission.py` are what a cluster says to it.
"""

from plimsoll.validate.admission import Admitted, admit_pod
from plimsoll.validate.event_shapes import event_to_core, event_to_events
from plimsoll.validate.permissions import Caller, Permission
from plimsoll.validate.pod.binding import Bound, bind_pod, read_binding
from plimsoll.validate.pod.eviction import Evicted, Refusal, judge_eviction, read_eviction
from plimsoll.validate.problems import Problem, ProblemType
from plimsoll.validate.quota_admission import Charged, charge_quotas
from plimsoll.validate.stored.generic import Traits
from plimsoll.validate.write import Prepared, Write, prepare, prepare_generic

__all__ = [
    "Admitted",
    "Bound",
    "Caller",
    "Charged",
    "Evicted",
    "Permission",
    "Prepared",
    "Problem",
    "ProblemType",
    "Refusal",
    "Traits",
    "Write",
    "admit_pod",
    "bind_pod",
    "charge_quotas",
    "event_to_core",
    "event_to_events",
    "judge_eviction",
    "prepare",
    "prepare_generic",
    "read_binding",
    "read_eviction",
]
