"""Verdicts: the result of checking a pod against a node, with reasons and numbers.

Verdicts are values; `messages.format_reason` formats them. The code determines the scheduler's reaction:
after `Unschedulable` preemption may help, after `UnschedulableAndUnresolvable` it does not, and `Error` means
that an input is missing and the pod should be retried.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class VerdictCode(Enum):
    """Status code of a verdict, as in kube-scheduler's framework."""

    SUCCESS = "Success"
    UNSCHEDULABLE = "Unschedulable"
    UNRESOLVABLE = "UnschedulableAndUnresolvable"
    ERROR = "Error"


class Cause(Enum):
    """Kind of a reason."""

    # shortages: preemption helps if the total suffices
    INSUFFICIENT = "insufficient"
    TOO_MANY_PODS = "too many pods"
    POOL_EXHAUSTED = "pool exhausted"
    # sharing
    SHARED_BY_SEVERAL = "shared by several"
    USED_BY_ANOTHER = "used by another"
    MAPPED_DEVICE_SHARED = "mapped device shared"
    # claims
    UNREFERENCED = "unreferenced"
    DEVICE_NOT_IN_POOL = "device not in pool"
    DEVICE_NOT_OF_DRIVER = "device not of driver"
    NO_CONSUMED_CAPACITY = "no consumed capacity"
    # policies
    NO_POLICY = "no policy"
    UNKNOWN_POLICY = "unknown policy"
    BAD_ANNOTATION = "bad annotation"
    TWO_POLICIES = "two policies"
    MIXED_DRIVERS = "mixed drivers"
    MAX_WITH_POOL = "Max with ConsumeFrom"
    POOL_UNDER_POD_LEVEL = "ConsumeFrom under pod level"
    # pod-level budget
    POD_LEVEL_REQUEST = "pod-level request"
    POD_LEVEL_LIMIT = "pod-level limit"
    POD_LEVEL_CONTAINER_LIMIT = "pod-level limit of a container"


_ERRORS = {Cause.DEVICE_NOT_IN_POOL, Cause.DEVICE_NOT_OF_DRIVER, Cause.NO_CONSUMED_CAPACITY}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One reason for a refusal: its cause, the objects involved, and the numbers.

    Numbers are in integer units: millicores for cpu, units otherwise. `had` is the free amount, `capacity`
    the total. `resolvable` means that the pod would fit without other pods.
    """

    cause: Cause
    resource: str = ""
    namespace: str = ""
    pod: str = ""
    claim: str = ""
    container: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    key: str = ""  #: a capacity of the device
    policy: str = ""
    detail: str = ""
    wanted: int | None = None
    had: int | None = None
    capacity: int | None = None
    resolvable: bool = False

    @property
    def code(self) -> VerdictCode:
        if self.cause in _ERRORS:
            return VerdictCode.ERROR
        return VerdictCode.UNSCHEDULABLE if self.resolvable else VerdictCode.UNRESOLVABLE


@dataclass(frozen=True, slots=True)
class Verdict:
    """Success, or refusal with all reasons found."""

    code: VerdictCode = VerdictCode.SUCCESS
    reasons: tuple[Reason, ...] = ()

    @staticmethod
    def of(reasons: Iterable[Reason]) -> Verdict:
        """Return success without reasons, otherwise the most severe code among them."""
        found = tuple(reasons)
        if not found:
            return SUCCESS
        codes = {reason.code for reason in found}
        return Verdict(next(code for code in _MOST_SEVERE_FIRST if code in codes), found)

    @property
    def fits(self) -> bool:
        return self.code is VerdictCode.SUCCESS

    @property
    def preemption_may_help(self) -> bool:
        """True if the pod would fit without other pods on the node."""
        return self.code is VerdictCode.UNSCHEDULABLE


_MOST_SEVERE_FIRST = (VerdictCode.ERROR, VerdictCode.UNRESOLVABLE, VerdictCode.UNSCHEDULABLE)
SUCCESS = Verdict()
