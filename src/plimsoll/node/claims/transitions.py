"""State transitions of a claim on a node, from its first pod to its last.

A pod is added, drivers respond, pods are removed, drivers unprepare. Pure. Guarantees that a claim is `ready`
only while every driver has responded and none has been asked to unprepare it since, and that a driver that
may hold the claim is in `drivers` or `pending` until it has unprepared it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from plimsoll.node.claim_info import PREPARE, AllocatedDevice, ClaimInfo, Devices, DriverFault
from plimsoll.node.claims.checks import ClaimToPrepare
from plimsoll.node.claims.faults import REALLOCATED, ClaimFault

#: Maximum size of a driver's response for one claim: the checkpoint holds the responses for all claims of a
#: node.
MAX_RESPONSE_BYTES = 64 << 10


def add_pods(
    known: ClaimInfo | None, wanted: ClaimToPrepare, pods: Collection[str]
) -> tuple[ClaimInfo, frozenset[str]]:
    """Return a claim with more pods, and the drivers to be asked to prepare it."""
    claim = known or ClaimInfo(wanted.ref)
    to_ask = frozenset(wanted.drivers) - _confirmed_drivers(claim)
    updated = replace(
        claim,
        pods=claim.pods.union(pods),
        ready=not to_ask and not claim.pending,
        pending=claim.pending | to_ask,
        allocated=wanted.exclusive,
        unprepare_skipped=wanted.unprepare_skipped,
    )
    return updated, to_ask


def find_reallocation(known: ClaimInfo, wanted: ClaimToPrepare) -> ClaimFault | None:
    """Return a fault if a claim is prepared for devices that it is no longer allocated.

    This happens when its pods were force-deleted and the claim was allocated again with other devices. It can
    be prepared once it has been unprepared for the deleted pods.
    """
    stale_drivers = [driver for driver in {*known.drivers, *known.pending} if driver not in wanted.drivers]
    for driver in {*known.drivers, *known.pending} & set(wanted.drivers):
        allocated = known.allocated.get(driver)
        answer = known.drivers.get(driver, ())
        moved = allocated is not None and allocated != wanted.exclusive[driver]
        if moved or find_unallocated_device(wanted.drivers[driver], answer) is not None:
            stale_drivers.append(driver)
    if not stale_drivers:
        return None
    name = known.ref.name
    text = f"ResourceClaim {name} is still prepared for an earlier allocation (previous pod force-deleted?!)"
    return ClaimFault(name, REALLOCATED, text, min(stale_drivers), holder=known.ref.uid)


def validate_response(
    wanted: ClaimToPrepare, driver: str, answer: Devices | DriverFault
) -> Devices | DriverFault:
    """Validate a driver's response, which may contain only devices of the allocation."""
    if isinstance(answer, DriverFault):
        return answer
    if _size(answer) > MAX_RESPONSE_BYTES:
        text = f"{PREPARE} returned more than {MAX_RESPONSE_BYTES} bytes for ResourceClaim {wanted.ref.name}"
        return DriverFault(driver, "malformed", text)
    unallocated = find_unallocated_device(wanted.drivers[driver], answer)
    if unallocated is None:
        return answer
    text = (
        f"{PREPARE} returned a device for ResourceClaim {wanted.ref.name} "
        f"that was not allocated: {unallocated}"
    )
    return DriverFault(driver, "malformed", text)


def _size(devices: Devices) -> int:
    texts = (t for d in devices for t in (d.pool, d.device, d.share_id or "", *d.requests, *d.cdi))
    return sum(len(text) + 8 for text in texts)


# DIFF: the kubelet takes whatever device a driver names: test_devices_of_another_driver_are_refused.
def find_unallocated_device(allocated: Collection[AllocatedDevice], devices: Devices) -> str | None:
    """Return the first device that was not allocated; drivers may omit the share (v1beta1 has none)."""
    known = {(each.pool, each.device, each.share_id) for each in allocated}
    known |= {(each.pool, each.device, None) for each in allocated}
    for each in devices:
        if (each.pool, each.device, each.share_id) not in known:
            return f"{each.pool}/{each.device}" + (f" share {each.share_id}" if each.share_id else "")
    return None


def apply_prepare_responses(
    before: ClaimInfo | None,
    claim: ClaimInfo,
    wanted: ClaimToPrepare,
    answers: Mapping[str, Devices | DriverFault],
    *,
    rebuilding: bool = False,
) -> ClaimInfo:
    """Return a claim after its drivers were called; `before` is its state from before the call.

    A driver that is absent has not been called, and need not unprepare the claim, unless the checkpoint was
    lost: then it may have prepared the claim earlier.
    """
    drivers, pending = dict(claim.drivers), set(claim.pending)
    for driver, answer in answers.items():
        if not isinstance(answer, DriverFault):
            drivers[driver] = answer
            pending.discard(driver)
        elif answer.kind == "absent" and not rebuilding and (before is None or driver not in before.pending):
            pending.discard(driver)
    changed = replace(claim, drivers=drivers, pending=frozenset(pending))
    return replace(changed, ready=not pending and _confirmed_drivers(changed) >= frozenset(wanted.drivers))


def remove_pods(claim: ClaimInfo, gone: Collection[str]) -> ClaimInfo:
    """Return a claim without pods; the last ones stay recorded until drivers have unprepared it."""
    pods = claim.pods - frozenset(gone)
    if pods:
        return replace(claim, pods=pods)
    return replace(claim, ready=False, pending=claim.pending | frozenset(claim.drivers))


def apply_unprepare_responses(
    claim: ClaimInfo, answers: Mapping[str, DriverFault | None]
) -> ClaimInfo | None:
    """Return a claim after its drivers were asked to unprepare it; None once all have."""
    pending = frozenset(driver for driver in claim.pending if answers.get(driver) is not None)
    if not pending:
        return None
    kept = {driver: devices for driver, devices in claim.drivers.items() if driver in pending}
    allocated = {driver: devices for driver, devices in claim.allocated.items() if driver in pending}
    return replace(claim, drivers=kept, pending=pending, allocated=allocated)


def _confirmed_drivers(claim: ClaimInfo) -> frozenset[str]:
    """Return the drivers that are known to hold a claim."""
    return frozenset(claim.drivers) - claim.pending
