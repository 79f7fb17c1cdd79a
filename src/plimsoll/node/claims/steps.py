"""The steps of a claim on a node, from its first user to its last.

Owns what each step makes of a claim's record: a pod joins, drivers answer, users leave, drivers let go. Pure.
Promises: `ready` only while every driver has answered and none has been asked to let go since; a driver that
may hold the claim is in `drivers` or `pending` until it has let go.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from plimsoll.node.claims.checks import Wanted
from plimsoll.node.claims.refusals import PREPARE, REALLOCATED, ClaimFault
from plimsoll.node.prepared import Devices, DriverFault, HeldDevice, PreparedClaim

#: What one driver may say about one claim: the record has to hold it for every claim of a node.
LARGEST_ANSWER = 64 << 10


def joined(known: PreparedClaim | None, wanted: Wanted, pod: str) -> tuple[PreparedClaim, frozenset[str]]:
    """A claim with one more user, and the drivers to be asked to prepare it."""
    claim = known or PreparedClaim(wanted.ref)
    to_ask = frozenset(wanted.drivers) - _settled(claim)
    joined = replace(
        claim,
        pods=claim.pods | {pod},
        ready=not to_ask and not claim.pending,
        pending=claim.pending | to_ask,
        allocated=wanted.exclusive,
    )
    return joined, to_ask


def is_reallocated(known: PreparedClaim, wanted: Wanted) -> ClaimFault | None:
    """A claim that is on record with devices it no longer has.

    This happens when its pods were deleted by force and others got it with other devices. It can be prepared
    once it has been released for the pods that are gone.
    """
    strange = [driver for driver in {*known.drivers, *known.pending} if driver not in wanted.drivers]
    for driver in {*known.drivers, *known.pending} & set(wanted.drivers):
        allocated = known.allocated.get(driver)
        answer = known.drivers.get(driver, ())
        moved = allocated is not None and allocated != wanted.exclusive[driver]
        if moved or foreign(wanted.drivers[driver], answer) is not None:
            strange.append(driver)
    if not strange:
        return None
    name = known.ref.name
    text = f"ResourceClaim {name} is still prepared for an earlier allocation (previous pod force-deleted?!)"
    return ClaimFault(name, REALLOCATED, text, min(strange), holder=known.ref.uid)


def judged(wanted: Wanted, driver: str, answer: Devices | DriverFault) -> Devices | DriverFault:
    """A driver's answer, which may speak of nothing but the devices of the allocation."""
    if isinstance(answer, DriverFault):
        return answer
    if _size(answer) > LARGEST_ANSWER:
        text = f"{PREPARE} returned more than {LARGEST_ANSWER} bytes for ResourceClaim {wanted.ref.name}"
        return DriverFault(driver, "malformed", text)
    stranger = foreign(wanted.drivers[driver], answer)
    if stranger is None:
        return answer
    text = (
        f"{PREPARE} returned a device for ResourceClaim {wanted.ref.name} that was not allocated: {stranger}"
    )
    return DriverFault(driver, "malformed", text)


def _size(devices: Devices) -> int:
    texts = (t for d in devices for t in (d.pool, d.device, d.share_id or "", *d.requests, *d.cdi))
    return sum(len(text) + 8 for text in texts)


# DIFF: the kubelet takes whatever device a driver names: test_devices_of_others_are_refused.
def foreign(allocated: Collection[HeldDevice], devices: Devices) -> str | None:
    """The first device that was not allocated; drivers need not name the share (v1beta1 cannot)."""
    known = {(each.pool, each.device, each.share_id) for each in allocated}
    known |= {(each.pool, each.device, None) for each in allocated}
    for each in devices:
        if (each.pool, each.device, each.share_id) not in known:
            return f"{each.pool}/{each.device}" + (f" share {each.share_id}" if each.share_id else "")
    return None


def answered(
    before: PreparedClaim | None,
    claim: PreparedClaim,
    wanted: Wanted,
    answers: Mapping[str, Devices | DriverFault],
) -> PreparedClaim:
    """A claim after its drivers were asked; `before` is its record from before they were.

    Who is not there has not been asked, and need not be asked to let go.
    """
    drivers, pending = dict(claim.drivers), set(claim.pending)
    for driver, answer in answers.items():
        if not isinstance(answer, DriverFault):
            drivers[driver] = answer
            pending.discard(driver)
        elif answer.kind == "absent" and (before is None or driver not in before.pending):
            pending.discard(driver)
    changed = replace(claim, drivers=drivers, pending=frozenset(pending))
    return replace(changed, ready=not pending and _settled(changed) >= frozenset(wanted.drivers))


def left(claim: PreparedClaim, gone: Collection[str]) -> PreparedClaim:
    """A claim after users have left. The last ones stay on record until its drivers have let go of it."""
    pods = claim.pods - frozenset(gone)
    if pods:
        return replace(claim, pods=pods)
    return replace(claim, ready=False, pending=claim.pending | frozenset(claim.drivers))


def released(claim: PreparedClaim, answers: Mapping[str, DriverFault | None]) -> PreparedClaim | None:
    """A claim after its drivers were asked to let go; None once all have."""
    pending = frozenset(driver for driver in claim.pending if answers.get(driver) is not None)
    if not pending:
        return None
    kept = {driver: devices for driver, devices in claim.drivers.items() if driver in pending}
    allocated = {driver: devices for driver, devices in claim.allocated.items() if driver in pending}
    return replace(claim, drivers=kept, pending=pending, allocated=allocated)


def _settled(claim: PreparedClaim) -> frozenset[str]:
    """The drivers that hold a claim for sure."""
    return frozenset(claim.drivers) - claim.pending
