"""What a device is called, and which features are switched on.

A device is (driver, pool, device): two drivers may use the same pool name, and two pools the same device
name. `Features` is the allocator's share of the feature gates (section 13 of the allocator semantics).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from plimsoll.api.gates import Gates
from plimsoll.api.resource import ResourceClaim


class PoolId(NamedTuple):
    """A resource pool: pools of different drivers never mix."""

    driver: str
    pool: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}"


class DeviceId(NamedTuple):
    """A device of a cluster."""

    driver: str
    pool: str
    device: str

    @property
    def pool_id(self) -> PoolId:
        return PoolId(self.driver, self.pool)

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


@dataclass(frozen=True, slots=True)
class Features:
    """Which parts of DRA the allocator may use; everything on unless said otherwise."""

    admin_access: bool = True
    prioritized_list: bool = True
    consumable_capacity: bool = True
    partitionable_devices: bool = True
    device_taints: bool = True
    binding_conditions: bool = True
    list_attributes: bool = True

    @staticmethod
    def of(gates: Gates) -> Features:
        """The features that a set of gates leaves on."""
        return Features(
            admin_access=gates.enabled("DRAAdminAccess"),
            prioritized_list=gates.enabled("DRAPrioritizedList"),
            consumable_capacity=gates.enabled("DRAConsumableCapacity"),
            partitionable_devices=gates.enabled("DRAPartitionableDevices"),
            device_taints=gates.enabled("DRADeviceTaints"),
            binding_conditions=gates.enabled("DRADeviceBindingConditions")
            and gates.enabled("DRAResourceClaimDeviceStatus"),
            list_attributes=gates.enabled("DRAListTypeAttributes"),
        )


def claim_name(claim: ResourceClaim) -> str:
    """`namespace/name`, as messages have it."""
    metadata = claim.metadata
    return f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name
