"""Whether devices that name binding conditions are ready for their pod.

Owns the judgement over `status.devices[].conditions` of a claim: a failure condition that is true means no,
binding conditions that are all true mean yes, everything else means not yet.

DIFF: the status of a share of a device is that of the share (test_each_share_has_its_own_conditions);
upstream takes the first status of the device for all of its shares.
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
class Failure:
    """A device cannot be made ready: what its driver says."""

    reason: str
    message: str


def waits_for_devices(allocation: AllocationResult | None) -> bool:
    """Whether any device of an allocation has to be made ready first."""
    return allocation is not None and any(result.binding_conditions for result in allocation.devices.results)


def judge_devices(claim: ResourceClaim) -> bool | Failure:
    """Whether all devices of a claim are ready; why not, if they never will be."""
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
                return Failure(failed.reason, failed.message)
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
