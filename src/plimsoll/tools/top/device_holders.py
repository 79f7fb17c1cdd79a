"""`DeviceHolders`: snapshot index of the claims that hold each device.

Amounts held are kept in the allocator state (`allocator/state.py`); this index only knows the holders. Claims
with admin access are listed although they hold nothing.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from plimsoll.api.identity import DeviceId
from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import DeviceRequestAllocationResult, ResourceClaim
from plimsoll.scheduler.snapshot.index import SnapshotIndex


class DeviceHolder(Struct, frozen=True):
    """Claim that holds a device or a share of it."""

    namespace: str
    claim: str
    request: str
    share: str = ""  #: share ID; "": the entire device
    consumed: tuple[tuple[str, Quantity], ...] = ()
    admin: bool = False  #: admin access: does not hold the device
    pods: tuple[str, ...] = ()  #: pods that the claim is reserved for

    def as_json(self) -> dict[str, object]:
        return {
            "namespace": self.namespace,
            "claim": self.claim,
            **self.usage_json(),
            "pods": list(self.pods),
        }

    def usage_json(self) -> dict[str, object]:
        return {
            "request": self.request,
            "shareID": self.share or None,
            "consumed": {name: str(amount) for name, amount in self.consumed},
            "adminAccess": self.admin,
        }


class DeviceHolders(SnapshotIndex):
    """Index from device to the claims that hold it, by namespace and name."""

    kinds = (ResourceClaim,)

    def __init__(self) -> None:
        self._devices: dict[DeviceId, dict[tuple[str, str], ResourceClaim]] = {}

    def of(self, device: DeviceId) -> tuple[DeviceHolder, ...]:
        """Return the holders of a device by name; a claim with several shares occurs several times."""
        claims = self._devices.get(device)
        if not claims:
            return ()
        return tuple(
            holder_of(claims[key], result)
            for key in sorted(claims)
            for result in claims[key].allocation_results
            if DeviceId.of(result) == device
        )

    def devices(self) -> set[DeviceId]:
        """Return the devices that any claim holds."""
        return set(self._devices)

    def object_changed(self, old: Any, new: Any) -> None:
        if isinstance(old, ResourceClaim):
            for device in {DeviceId.of(result) for result in old.allocation_results}:
                claims = self._devices[device]
                claims.pop(old.metadata.key, None)
                if not claims:
                    del self._devices[device]
        if isinstance(new, ResourceClaim):
            for result in new.allocation_results:
                self._devices.setdefault(DeviceId.of(result), {})[new.metadata.key] = new


def holder_of(claim: ResourceClaim, result: DeviceRequestAllocationResult) -> DeviceHolder:
    return DeviceHolder(
        claim.metadata.namespace,
        claim.metadata.name,
        result.request,
        result.share_id or "",
        tuple(sorted(result.consumed_capacity.items())) if result.consumed_capacity else (),
        bool(result.admin_access),
        tuple([user.name for user in claim.status.reserved_for]),
    )
