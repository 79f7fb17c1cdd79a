"""Conflicts between a claim to be prepared and the prepared ones. Pure.

A scheduler should never allocate a device twice, overlapping partitions, or more than the capacity; the
driver checks this again before it prepares a claim.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from plimsoll.api.quantity import ZERO, Quantity
from plimsoll.drivers.fake.devices import FakeInventory
from plimsoll.protocols.dra import ClaimRef


@dataclass(frozen=True, slots=True)
class DeviceAllocation:
    """Device, or share of one, allocated to a claim."""

    claim: ClaimRef
    device: str
    consumed: Mapping[str, Quantity] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AllocationConflict:
    """Reason why a device cannot be prepared: `holders` use the device, counter or capacity `of`."""

    device: str
    of: str
    desired: Quantity | None = None
    left: Quantity | None = None
    holders: tuple[ClaimRef, ...] = ()

    def __str__(self) -> str:
        others = ", ".join(map(str, self.holders)) or "none"
        if self.desired is None:
            return f"device {self.device} is already allocated to claim {others}"
        left = f"{self.left} is available (in use by claim {others})"
        return f"device {self.device} needs {self.desired} of {self.of}, of which {left}"


def find_conflict(
    inventory: FakeInventory, allocated: Iterable[DeviceAllocation], desired: Iterable[DeviceAllocation]
) -> AllocationConflict | None:
    """Return the first conflict between desired and existing allocations."""
    taken: list[DeviceAllocation] = list(allocated)
    for want in desired:
        device = inventory.devices[want.device]
        others = [each for each in taken if each.device == want.device]
        if others and not device.multiple:
            return AllocationConflict(want.device, want.device, holders=_claims(others))
        for name, full in device.capacity.items() if device.multiple else ():
            used = sum((each.consumed.get(name, ZERO) for each in others), ZERO)
            asked = want.consumed.get(name, ZERO)
            if used + asked > full:
                return AllocationConflict(want.device, name, asked, full - used, _claims(others))
        if not others:  # shares of one device draw from its counters once
            found = _find_counter_conflict(inventory, taken, want)
            if found is not None:
                return found
        taken.append(want)
    return None


def _find_counter_conflict(
    inventory: FakeInventory, taken: list[DeviceAllocation], want: DeviceAllocation
) -> AllocationConflict | None:
    for name, counters in inventory.devices[want.device].consumes.items():
        users: dict[str, list[DeviceAllocation]] = {}
        for each in taken:
            other = inventory.devices.get(each.device)
            if other is not None and name in other.consumes:
                users.setdefault(each.device, []).append(each)
        for counter, asked in counters.items():
            full = inventory.counters[name][counter]
            used = sum(
                (inventory.devices[device].consumes[name].get(counter, ZERO) for device in users), ZERO
            )
            if used + asked > full:
                holders = _claims(holding for shares in users.values() for holding in shares)
                return AllocationConflict(want.device, f"{name}/{counter}", asked, full - used, holders)
    return None


def _claims(holdings: Iterable[DeviceAllocation]) -> tuple[ClaimRef, ...]:
    return tuple(dict.fromkeys(holding.claim for holding in holdings))
