"""Features of the allocator, from the feature gates (docs/spec/allocator.md, "Feature gates")."""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll.api.gates import Gates


@dataclass(frozen=True, slots=True)
class Features:
    """DRA features that the allocator may use; all enabled by default."""

    admin_access: bool = True
    prioritized_list: bool = True
    consumable_capacity: bool = True
    partitionable_devices: bool = True
    device_taints: bool = True
    binding_conditions: bool = True
    list_attributes: bool = True
    compatibility_groups: bool = True
    derived_attributes: bool = True
    fractional_ranges: bool = False
    optional_node_operations: bool = True

    @staticmethod
    def of(gates: Gates) -> Features:
        """Return the features that a set of gates enables."""
        return Features(
            admin_access=gates.enabled("DRAAdminAccess"),
            prioritized_list=gates.enabled("DRAPrioritizedList"),
            consumable_capacity=gates.enabled("DRAConsumableCapacity"),
            partitionable_devices=gates.enabled("DRAPartitionableDevices"),
            device_taints=gates.enabled("DRADeviceTaints"),
            binding_conditions=gates.enabled("DRADeviceBindingConditions")
            and gates.enabled("DRAResourceClaimDeviceStatus"),
            list_attributes=gates.enabled("DRAListTypeAttributes"),
            compatibility_groups=gates.enabled("DRADeviceCompatibilityGroups"),
            derived_attributes=gates.enabled("DRADerivedAttributes"),
            fractional_ranges=gates.enabled("DRAFractionalCapacityRange"),
            optional_node_operations=gates.enabled("DRAOptionalNodeOperations"),
        )
