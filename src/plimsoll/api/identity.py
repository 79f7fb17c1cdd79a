"""Identity of a device: driver, pool and device name.

Two drivers may use the same pool name, and two pools the same device name, so a device is always identified
by all three.
"""

from __future__ import annotations

from typing import NamedTuple

from plimsoll.api.resource import DeviceRequestAllocationResult

#: Faster than calling the class, for what is made of every device of a cluster.
_new = tuple.__new__


class PoolId(NamedTuple):
    """A resource pool: pools of different drivers never mix."""

    driver: str
    pool: str

    def __str__(self) -> str:
        return "/".join(self)


class DeviceId(NamedTuple):
    """A device of a cluster."""

    driver: str
    pool: str
    device: str

    @staticmethod
    def of(result: DeviceRequestAllocationResult) -> DeviceId:
        """Return the device of an allocation result."""
        return _new(DeviceId, (result.driver, result.pool, result.device))

    @property
    def pool_id(self) -> PoolId:
        return _new(PoolId, self[:2])

    def __str__(self) -> str:
        return "/".join(self)
