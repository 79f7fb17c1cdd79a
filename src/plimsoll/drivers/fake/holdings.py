"""What is handed out of a driver's devices, and whether more of it can be.

Owns the last look before a claim is made ready: a scheduler should never hand out a device twice, overlapping
partitions, or more of a capacity than there is, and a driver that is asked to says no. Functions of values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from plimsoll.api.quantity import ZERO, Quantity
from plimsoll.drivers.fake.devices import Arrangement
from plimsoll.protocols.dra import ClaimRef


@dataclass(frozen=True, slots=True)
class Holding:
    """A device, or a share of one, in the hands of a claim."""

    claim: ClaimRef
    device: str
    consumed: Mapping[str, Quantity] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Conflict:
    """Why a device cannot be had: `of` is the device, counter set or capacity that `holder` has."""

    device: str
    of: str
    wanted: Quantity | None = None
    left: Quantity | None = None
    holders: tuple[ClaimRef, ...] = ()

    def __str__(self) -> str:
        others = ", ".join(map(str, self.holders)) or "nobody"
        if self.wanted is None:
            return f"device {self.device} is held by claim {others}"
        left = f"{self.left} is left beside claim {others}"
        return f"device {self.device} needs {self.wanted} of {self.of}, of which {left}"


def find_conflict(
    arrangement: Arrangement, held: Iterable[Holding], wanted: Iterable[Holding]
) -> Conflict | None:
    """The first thing that is handed out twice if all that is wanted is given beside what is held."""
    taken: list[Holding] = list(held)
    for want in wanted:
        device = arrangement.devices[want.device]
        others = [each for each in taken if each.device == want.device]
        if others and not device.multiple:
            return Conflict(want.device, want.device, holders=_claims(others))
        for name, whole in device.capacity.items() if device.multiple else ():
            used = sum((each.consumed.get(name, ZERO) for each in others), ZERO)
            asked = want.consumed.get(name, ZERO)
            if used + asked > whole:
                return Conflict(want.device, name, asked, whole - used, _claims(others))
        if not others:  # shares of one device draw from its counters once
            found = _over_drawn(arrangement, taken, want)
            if found is not None:
                return found
        taken.append(want)
    return None


def _over_drawn(arrangement: Arrangement, taken: list[Holding], want: Holding) -> Conflict | None:
    for name, counters in arrangement.devices[want.device].consumes.items():
        users: dict[str, list[Holding]] = {}
        for each in taken:
            other = arrangement.devices.get(each.device)
            if other is not None and name in other.consumes:
                users.setdefault(each.device, []).append(each)
        for counter, asked in counters.items():
            whole = arrangement.counters[name][counter]
            used = sum(
                (arrangement.devices[device].consumes[name].get(counter, ZERO) for device in users), ZERO
            )
            if used + asked > whole:
                holders = _claims(holding for shares in users.values() for holding in shares)
                return Conflict(want.device, f"{name}/{counter}", asked, whole - used, holders)
    return None


def _claims(holdings: Iterable[Holding]) -> tuple[ClaimRef, ...]:
    return tuple(dict.fromkeys(holding.claim for holding in holdings))
