"""Defaulting, dropping of fields behind disabled feature gates, and validation of API writes.

START HERE: `write.py`. Admission that depends on other objects of the cluster is in `apiserver/admission`.
"""

from plimsoll.apiserver.validation.claim_status_authorization import Caller, Permission
from plimsoll.apiserver.validation.event_conversion import event_to_core, event_to_events
from plimsoll.apiserver.validation.field_errors import FieldError, FieldErrorType
from plimsoll.apiserver.validation.generic_kinds.generic_strategy import KindTraits
from plimsoll.apiserver.validation.pod.binding import PodBindingResult, bind_pod, read_binding
from plimsoll.apiserver.validation.pod.eviction import (
    EvictionRefusal,
    EvictionResult,
    evaluate_eviction,
    read_eviction,
)
from plimsoll.apiserver.validation.write import PreparedObject, Write, prepare, prepare_generic

__all__ = [
    "Caller",
    "EvictionRefusal",
    "EvictionResult",
    "FieldError",
    "FieldErrorType",
    "KindTraits",
    "Permission",
    "PodBindingResult",
    "PreparedObject",
    "Write",
    "bind_pod",
    "evaluate_eviction",
    "event_to_core",
    "event_to_events",
    "prepare",
    "prepare_generic",
    "read_binding",
    "read_eviction",
]
