"""Binding conditions of devices: readiness for binding the pod.

Evaluates `status.devices[].conditions` of a claim: a true failure condition fails the binding, all binding
conditions true make it ready, anything else is pending.

DIFF: each share of a device has its own status (test_each_share_has_its_own_conditions); upstream uses the
first status of the device for all shares.
"""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll.api.resource import (
    AllocatedDeviceStatus,
    AllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
)


@dataclass(frozen=True, slots=True)
class DeviceBindingFailure:
    """Failure condition reported by a driver."""

    reason: str
    message: str


def has_binding_conditions(allocation: AllocationResult | None) -> bool:
    """Return whether any device of an allocation has binding conditions."""
    return allocation is not None and any(result.binding_conditions for result in allocation.devices.results)


def check_binding_conditions(claim: ResourceClaim) -> bool | DeviceBindingFailure:
    """Return whether all devices of a claim are ready, or the failure of one of them."""
    allocation = claim.status.allocation
    if allocation is None:
        return False
    ready = True
    for result in allocation.devices.results:
        if not result.binding_conditions:
            continue
        conditions = {each.type: each for each in _status_of(claim, result).conditions}
        for name in result.binding_failure_conditions:
            failed = conditions.get(name)
            if failed is not None and failed.status == "True":
                return DeviceBindingFailure(failed.reason, failed.message)
        ready = ready and all(
            name in conditions and conditions[name].status == "True" for name in result.binding_conditions
        )
    return ready


_UNKNOWN = AllocatedDeviceStatus()


def _status_of(claim: ResourceClaim, result: DeviceRequestAllocationResult) -> AllocatedDeviceStatus:
    wanted = (result.driver, result.pool, result.device, result.share_id)
    for status in claim.status.devices:
        if (status.driver, status.pool, status.device, status.share_id) == wanted:
            return status
    return _UNKNOWN
