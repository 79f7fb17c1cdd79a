"""Claims in use on a node and the results of driver calls.

These types are shared by the plugin manager, the claim info cache, PodResources and the runtimes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from plimsoll.protocols.dra import ClaimRef, PreparedDevice

__all__ = [
    "PREPARE",
    "UNPREPARE",
    "AllocatedDevice",
    "ClaimInfo",
    "ClaimRef",
    "Devices",
    "DriverFault",
    "Drivers",
    "PreparedDevice",
]

#: Methods of drivers.
PREPARE, UNPREPARE = "NodePrepareResources", "NodeUnprepareResources"


@dataclass(frozen=True, slots=True)
class AllocatedDevice:
    """Device, or one share of it, that an allocation assigns to a claim.

    A share ID is set if the device is shared by consumable capacity.
    """

    pool: str
    device: str
    share_id: str | None = None


@dataclass(frozen=True, slots=True)
class ClaimInfo:
    """Claim in use on this node: the UIDs of its pods, and what its drivers have prepared.

    `ready` is False while a driver's response is outstanding; the claim is checkpointed so that it is not
    forgotten, and has to be prepared again. `pending` are the drivers whose response is outstanding or that
    were asked to unprepare the claim: they may or may not hold it.

    `allocated` are the devices of the allocation by driver, without those of admin access. They are
    checkpointed before a driver is called, because a driver that never responded may hold them. A driver is
    missing there only if a kubelet wrote the checkpoint.

    `unprepare_skipped` are the drivers that need not unprepare the claim (`skipNodeOperations`).
    """

    ref: ClaimRef
    pods: frozenset[str] = frozenset()
    drivers: Mapping[str, tuple[PreparedDevice, ...]] = field(default_factory=dict)
    ready: bool = False
    pending: frozenset[str] = frozenset()
    allocated: Mapping[str, frozenset[AllocatedDevice]] = field(default_factory=dict)
    unprepare_skipped: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class DriverFault:
    """Failure of a driver call; `kind`: absent, timeout, refused, skipped, malformed or broken.

    Absent: the driver is not registered. Refused: it returned an error (`message` is its text). Skipped,
    malformed: its response lacks the claim, or is invalid. Broken: the call failed.
    """

    driver: str
    kind: str
    message: str


Devices: TypeAlias = tuple[PreparedDevice, ...]


class Drivers(Protocol):
    """DRA drivers of this node, by name."""

    async def prepare(self, driver: str, claims: Sequence[ClaimRef]) -> Mapping[str, Devices | DriverFault]:
        """Prepare claims in one call; return a result for each claim, by UID. Never raises."""
        ...

    async def unprepare(self, driver: str, claims: Sequence[ClaimRef]) -> Mapping[str, DriverFault | None]:
        """Unprepare claims in one call; return None where it succeeded, by UID. Never raises."""
        ...
