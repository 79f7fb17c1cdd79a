"""How many devices there are and how many of them claims hold, node by node.

Owns `DeviceCount`. Devices count in the newest generation of their pool; one that several claims share is
taken once, and access that an administrator has (`adminAccess`) takes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from plimsoll.api.resource import ResourceClaim, ResourceSlice
from plimsoll.tools.picture import Picture


@dataclass(frozen=True, slots=True)
class DeviceCount:
    """Devices in all, and by driver and node (those of no single node count only in all)."""

    whole: int
    taken: int
    by_driver: dict[str, dict[str, int]]
    taken_by_driver: dict[str, dict[str, int]]


def newest_slices(picture: Picture, *, node: str = "", driver: str = "") -> Iterator[ResourceSlice]:
    """The slices of the newest generation of each pool; of a driver or a node only, if wanted."""
    newest: dict[tuple[str, str], int] = {}
    slices = [
        each
        for each in picture.objects.all(ResourceSlice)
        if (not node or each.spec.node_name == node) and (not driver or each.spec.driver == driver)
    ]
    for each in slices:
        pool = each.spec.pool
        key = (each.spec.driver, pool.name)
        newest[key] = max(newest.get(key, 0), pool.generation)
    for each in slices:
        if each.spec.pool.generation == newest[each.spec.driver, each.spec.pool.name]:
            yield each


def held_devices(picture: Picture) -> set[tuple[str, str, str]]:
    """The devices that claims hold, whole or in part, as (driver, pool, device)."""
    return {
        (result.driver, result.pool, result.device)
        for claim in picture.objects.all(ResourceClaim)
        if claim.status.allocation is not None
        for result in claim.status.allocation.devices.results
        if not result.admin_access
    }


def count_devices(picture: Picture) -> DeviceCount:
    """Count them all."""
    held = held_devices(picture)
    whole = taken = 0
    by_driver: dict[str, dict[str, int]] = {}
    taken_by_driver: dict[str, dict[str, int]] = {}
    for slice_ in newest_slices(picture):
        spec = slice_.spec
        devices = spec.devices or ()
        used = sum((spec.driver, spec.pool.name, device.name) in held for device in devices)
        whole += len(devices)
        taken += used
        if spec.node_name:
            for total, amount in ((by_driver, len(devices)), (taken_by_driver, used)):
                nodes = total.setdefault(spec.driver, {})
                nodes[spec.node_name] = nodes.get(spec.node_name, 0) + amount
    return DeviceCount(whole, taken, by_driver, taken_by_driver)


def count_pools(picture: Picture) -> dict[tuple[str, str], tuple[int, int]]:
    """(driver, pool) -> devices, and how many of them claims hold."""
    held = held_devices(picture)
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for slice_ in newest_slices(picture):
        spec = slice_.spec
        key = (spec.driver, spec.pool.name)
        whole, taken = found.get(key, (0, 0))
        devices = spec.devices or ()
        used = sum((*key, device.name) in held for device in devices)
        found[key] = (whole + len(devices), taken + used)
    return found
