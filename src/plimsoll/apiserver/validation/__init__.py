"""Defaulting, dropping of fields behind disabled feature gates, and validation of API writes.

START HERE: `write.py`. Admission that depends on other objects of the cluster is in `apiserver/admission`.
"""

from plimsoll.apiserver.validation.claim_status_authorization import Caller, Permission
from plimsoll.apiserver.validation.event_conversion import event_to_core, event_to_events
from plimsoll.apiserver.validation.field_errors import Problem, ProblemType
from plimsoll.apiserver.validation.generic_kinds.generic_strategy import Traits
from plimsoll.apiserver.validation.pod.binding import Bound, bind_pod, read_binding
from plimsoll.apiserver.validation.pod.eviction import Evicted, Refusal, judge_eviction, read_eviction
from plimsoll.apiserver.validation.write import Prepared, Write, prepare, prepare_generic

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
