"""Device conflicts between the claims of a node.

A claim must not be prepared while another claim holds one of its devices. A scheduler may allocate a device
again as soon as the earlier claim is gone from the API, and that can be before the driver has unprepared it:
after a forced pod deletion, or while NodeUnprepareResources fails. Pure.

Two allocations of the same device do not conflict if both name a share (consumable capacity) and the shares
differ, or if one of them has admin access.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from plimsoll.node.claim_info import AllocatedDevice, ClaimInfo, ClaimRef
from plimsoll.node.claims.checks import ClaimToPrepare
from plimsoll.node.claims.faults import HELD, REPLACED, ClaimFault


@dataclass(frozen=True, slots=True)
class DeviceConflict:
    """Devices of one driver that a claim needs while `holder` holds them."""

    ref: ClaimRef
    driver: str
    devices: tuple[AllocatedDevice, ...]
    holder: ClaimInfo


def held_devices(claim: ClaimInfo | None) -> dict[str, frozenset[AllocatedDevice]]:
    """Return the devices that a claim holds on the node, by driver.

    A driver holds them from the time it may have been asked to prepare the claim until it has confirmed the
    unprepare.
    """
    if claim is None:
        return {}
    found = {}
    for driver in {*claim.drivers, *claim.pending}:
        devices = claim.allocated.get(driver)
        if devices is None:
            answer = claim.drivers.get(driver, ())
            devices = frozenset(AllocatedDevice(each.pool, each.device, each.share_id) for each in answer)
        found[driver] = devices
    return found


def releases_devices(before: ClaimInfo, after: ClaimInfo | None) -> bool:
    """Return whether a change of a claim's record lets other claims proceed."""
    if after is None:
        return True
    held = held_devices(after)
    return any(not devices <= held.get(driver, set()) for driver, devices in held_devices(before).items())


def find_conflicts(
    wanted: ClaimToPrepare,
    drivers: Collection[str],
    known: ClaimInfo | None,
    others: Iterable[ClaimInfo],
) -> tuple[DeviceConflict, ...]:
    """Find the claims that hold a device which `drivers` are to prepare for a claim.

    `known` is the cached state of the claim itself. If there is one, holders with an unknown allocation do
    not count: a kubelet recorded both, and each would wait for the other.
    """
    found = []
    for other in others:
        if other.ref.uid == wanted.ref.uid:
            continue
        for driver, devices in held_devices(other).items():
            if driver not in drivers or (known is not None and driver not in other.allocated):
                continue
            both = _overlap(wanted.exclusive.get(driver, frozenset()), devices)
            if both:
                found.append(DeviceConflict(wanted.ref, driver, both, other))
    return tuple(sorted(found, key=lambda each: (each.driver, each.holder.ref.uid)))


def _overlap(
    wanted: Collection[AllocatedDevice], held: Collection[AllocatedDevice]
) -> tuple[AllocatedDevice, ...]:
    shares: dict[tuple[str, str], set[str | None]] = {}
    for each in held:
        shares.setdefault((each.pool, each.device), set()).add(each.share_id)
    found = []
    for each in wanted:
        taken = shares.get((each.pool, each.device), set())
        # Without a share ID the claim holds the entire device.
        if taken and (each.share_id is None or not taken.isdisjoint({each.share_id, None})):
            found.append(each)
    return tuple(sorted(found, key=lambda each: (each.pool, each.device, each.share_id or "")))


def conflict_fault(conflict: DeviceConflict) -> ClaimFault:
    """Format a conflict: the device, the claim that holds it, and what is waited for."""
    first, holder = conflict.devices[0], conflict.holder
    device = f"device {conflict.driver}/{first.pool}/{first.device}"
    if first.share_id is not None:
        device += f" (share {first.share_id})"
    if len(conflict.devices) > 1:
        device += f" and {len(conflict.devices) - 1} more"
    text = (
        f"ResourceClaim {conflict.ref.name}: {device} still held by ResourceClaim {holder.ref} "
        f"(UID {holder.ref.uid}), {_awaited(holder)}"
    )
    return ClaimFault(conflict.ref.name, HELD, text, holder=holder.ref.uid)


def find_replaced(wanted: ClaimToPrepare, known: Mapping[str, ClaimInfo]) -> ClaimFault | None:
    """Find a cached claim of the same name, and return the fault that makes the new one wait for it."""
    ref = wanted.ref
    for old in known.values():
        same = (old.ref.namespace, old.ref.name) == (ref.namespace, ref.name)
        if same and old.ref.uid != ref.uid:
            # The kubelet's message, which its end-to-end tests look for in the pod's event.
            text = (
                f"old ResourceClaim with same name {ref.name} and different UID {old.ref.uid} still exists "
                f"(previous pod force-deleted?!), {_awaited(old)}"
            )
            return ClaimFault(ref.name, REPLACED, text, holder=old.ref.uid)
    return None


def _awaited(holder: ClaimInfo) -> str:
    reasons = []
    if holder.pods:
        reasons.append(f"used by pod UID {', '.join(sorted(holder.pods))}")
    if holder.pending:
        reasons.append(f"no answer yet from driver {', '.join(sorted(holder.pending))}")
    return "waiting until it is unprepared" + (f" ({'; '.join(reasons)})" if reasons else "")
