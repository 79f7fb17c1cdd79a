"""Devices and shares that are allocated before a test begins."""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll.allocator import AllocationState, DeviceId
from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import DeviceRequestAllocationResult


def hold_device(state: AllocationState, device: DeviceId) -> None:
    """Allocate an entire device."""
    state.hold(_result(device))


def hold_share(
    state: AllocationState, device: DeviceId, share: str, consumed: Mapping[str, Quantity] | None = None
) -> None:
    """Allocate a share of a device, and what it consumes."""
    state.hold(_result(device, share, consumed))


def _result(
    device: DeviceId, share: str | None = None, consumed: Mapping[str, Quantity] | None = None
) -> DeviceRequestAllocationResult:
    return DeviceRequestAllocationResult(
        driver=device.driver,
        pool=device.pool,
        device=device.device,
        share_id=share,
        consumed_capacity=dict(consumed or {}),
    )
