"""Faults of preparing and unpreparing a pod's claims.

The messages are the kubelet's where it has the case. The kubelet prefixes them with `prepare dynamic
resources: ` or `unprepare dynamic resources: `.
"""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll.node.claim_info import ClaimRef, DriverFault

NOT_CREATED = "NotCreated"
UNSUPPORTED = "Unsupported"
NOT_FOUND = "NotFound"
WRONG_POD = "WrongPod"
NOT_RESERVED = "NotReserved"
NOT_ALLOCATED = "NotAllocated"
REPLACED = "Replaced"
REALLOCATED = "Reallocated"
HELD = "DeviceInUse"
NOT_SAVED = "NotSaved"


@dataclass(frozen=True)
class ClaimFault:
    """Fault of one claim of a pod; `code` is one of the above or the kind of a driver's fault.

    `holder` is the UID of the claim that has to be unprepared before this one can be prepared.
    """

    claim: str
    code: str
    message: str
    driver: str = ""
    holder: str = ""


def from_driver_fault(call: str, ref: ClaimRef, fault: DriverFault) -> ClaimFault:
    """Convert a driver's fault to one of a claim."""
    message = fault.message
    if fault.kind == "refused":
        message = f"{call} failed for ResourceClaim {ref.name}: {message}"
    elif fault.kind == "absent" and not message:
        message = f"DRA driver {fault.driver} is not registered"
    return ClaimFault(ref.name, fault.kind, message, fault.driver)


def not_saved(ref: ClaimRef, problem: str) -> ClaimFault:
    return ClaimFault(ref.name, NOT_SAVED, f"checkpoint ResourceClaim state: {problem}")
