"""Which claims hold a device: an index that the snapshot keeps up to date.

Owns `DeviceHolders`. What is held of a device in all is the allocator's state (`allocator/state.py`); here is
only who it is. Claims with admin access are listed, although they hold nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from plimsoll.api.identity import DeviceId
from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import DeviceRequestAllocationResult, ResourceClaim
from plimsoll.scheduler.snapshot.index import SnapshotIndex


@dataclass(frozen=True, slots=True)
class DeviceHolder:
    """A claim that holds a device or a share of it."""

    namespace: str
    claim: str
    request: str
    share: str = ""  #: the ID of the share; empty: the whole device
    consumed: tuple[tuple[str, Quantity], ...] = ()
    admin: bool = False  #: looks at the device only and holds nothing
    pods: tuple[str, ...] = ()  #: that the claim is reserved for

    def as_json(self) -> dict[str, object]:
        return {
            "namespace": self.namespace,
            "claim": self.claim,
            "request": self.request,
            "shareID": self.share or None,
            "consumed": {name: str(amount) for name, amount in self.consumed},
            "adminAccess": self.admin,
            "pods": list(self.pods),
        }


class DeviceHolders(SnapshotIndex):
    """Devices -> the claims that hold them, by namespace and name."""

    def __init__(self) -> None:
        self._devices: dict[DeviceId, dict[tuple[str, str], ResourceClaim]] = {}

    def of(self, device: DeviceId) -> tuple[DeviceHolder, ...]:
        """The holders of a device, by name; a claim that has several shares is there several times."""
        claims = self._devices.get(device)
        if not claims:
            return ()
        return tuple(
            holder_of(claims[key], result)
            for key in sorted(claims)
            for result in results_of(claims[key])
            if DeviceId.of(result) == device
        )

    def devices(self) -> set[DeviceId]:
        """The devices that any claim names."""
        return set(self._devices)

    def object_set(self, new: Any, old: Any) -> None:
        if isinstance(new, ResourceClaim):
            if old is not None:
                self.object_removed(old)
            key = (new.metadata.namespace, new.metadata.name)
            for result in results_of(new):
                self._devices.setdefault(DeviceId.of(result), {})[key] = new

    def object_removed(self, old: Any) -> None:
        if isinstance(old, ResourceClaim):
            key = (old.metadata.namespace, old.metadata.name)
            for device in {DeviceId.of(result) for result in results_of(old)}:
                claims = self._devices[device]
                claims.pop(key, None)
                if not claims:
                    del self._devices[device]


def results_of(claim: ResourceClaim) -> tuple[DeviceRequestAllocationResult, ...]:
    """The devices that a claim has been given."""
    return () if claim.status.allocation is None else claim.status.allocation.devices.results


def holder_of(claim: ResourceClaim, result: DeviceRequestAllocationResult) -> DeviceHolder:
    return DeviceHolder(
        claim.metadata.namespace,
        claim.metadata.name,
        result.request,
        result.share_id or "",
        tuple(sorted(result.consumed_capacity.items())),
        bool(result.admin_access),
        tuple(user.name for user in claim.status.reserved_for),
    )
