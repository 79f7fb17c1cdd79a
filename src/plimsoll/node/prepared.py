"""What drivers have prepared: claims, their devices, and the answers of drivers as values.

Owns the types that the plugins, the claim book, PodResources and the runtime hand to each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from plimsoll.protocols.dra import ClaimRef, PreparedDevice

__all__ = [
    "ClaimRef",
    "Devices",
    "DriverFault",
    "Drivers",
    "HeldDevice",
    "PreparedClaim",
    "PreparedDevice",
]


@dataclass(frozen=True, slots=True)
class HeldDevice:
    """A device of a driver that an allocation gives to a claim, or one share of it.

    A share ID is set where the device is shared by consumable capacity.
    """

    pool: str
    device: str
    share_id: str | None = None


@dataclass(frozen=True, slots=True)
class PreparedClaim:
    """A claim in use on this node: by which pods (UIDs), and what its drivers have prepared for it.

    `ready` is False while a driver's answer is still out; then the claim is recorded so that it is not
    forgotten, and has to be prepared again. `pending` are the drivers whose answer is out, or that have been
    asked to release it: they may hold the claim or not.

    `allocated` are the devices of the allocation by driver, without those of admin access. It is on record
    before a driver is asked, because a driver that never answered may hold them. A driver is missing there
    only if the record was written by a kubelet.
    """

    ref: ClaimRef
    pods: frozenset[str] = frozenset()
    drivers: Mapping[str, tuple[PreparedDevice, ...]] = field(default_factory=dict)
    ready: bool = False
    pending: frozenset[str] = frozenset()
    allocated: Mapping[str, frozenset[HeldDevice]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DriverFault:
    """Why a driver did not do as asked; `kind`: absent, timeout, refused, skipped, malformed or broken.

    Absent: no such driver is registered. Refused: the driver answered with an error (`message` is its text).
    Skipped, malformed: its answer lacks the claim, or is no valid answer. Broken: the call failed.
    """

    driver: str
    kind: str
    message: str


Devices: TypeAlias = tuple[PreparedDevice, ...]


class Drivers(Protocol):
    """The drivers of this node, by name."""

    async def prepare(self, driver: str, claims: Sequence[ClaimRef]) -> Mapping[str, Devices | DriverFault]:
        """Have claims prepared in one call; an answer for each claim, by UID. Never raises."""
        ...

    async def unprepare(self, driver: str, claims: Sequence[ClaimRef]) -> Mapping[str, DriverFault | None]:
        """Have claims released in one call; None where that is done, by UID. Never raises."""
        ...
