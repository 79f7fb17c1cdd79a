"""Devices of the API built from the memory of NUMA nodes. Pure.

Each NUMA node has one device for ordinary memory and one for every huge page size with pages. Several claims
share a device: its capacity is consumed in multiples of the step. The node resource mapping makes the
scheduler book claims as memory or huge pages of the node, and the standard NUMA attribute aligns them with
devices of other drivers (`matchAttribute: resource.kubernetes.io/numaNode`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from plimsoll.api.forms import Form
from plimsoll.api.quantity import format_bytes
from plimsoll.api.resource import NUMA_NODE
from plimsoll.drivers.memory.numa_memory import NumaMemory
from plimsoll.drivers.memory.settings import DRIVER_NAME, MEMORY

#: Capacity of all devices.
CAPACITY = f"{DRIVER_NAME}/size"
#: Attribute with the node resource that a device provides: memory, hugepages-2Mi, ...
RESOURCE = f"{DRIVER_NAME}/resource"
PAGE_SIZE = f"{DRIVER_NAME}/pageSize"
#: Step of ordinary memory; that of huge pages is the page.
STEP = 1 << 20


@dataclass(frozen=True, slots=True)
class MemoryDevice:
    """Device of one NUMA node; `size` in bytes is a multiple of `step`."""

    name: str
    node: int
    resource: str
    size: int
    step: int


def list_devices(
    memory: Iterable[NumaMemory], reserved: Mapping[int, Mapping[str, int]]
) -> dict[str, MemoryDevice]:
    """Return the devices by name, without reserved amounts; those without capacity are omitted."""
    found = {}
    for each in memory:
        kept = reserved.get(each.node, {})
        amounts = [(MEMORY, each.ordinary, STEP)]
        amounts += [(f"hugepages-{format_bytes(size)}", total, size) for size, total in each.huge.items()]
        for resource, total, step in amounts:
            size = max(0, total - kept.get(resource, 0)) // step * step
            name = f"{resource.lower()}-numa{each.node:03d}"
            if size:
                found[name] = MemoryDevice(name, each.node, resource, size, step)
    return found


def make_devices(devices: Iterable[MemoryDevice], form: Form | None) -> list[dict[str, Any]]:
    """Build the devices of a ResourceSlice."""
    return [_device(device) | _mapping(device, form) for device in devices]


def _device(device: MemoryDevice) -> dict[str, Any]:
    attributes: dict[str, Any] = {NUMA_NODE: {"int": device.node}, RESOURCE: {"string": device.resource}}
    if device.resource != MEMORY:
        attributes[PAGE_SIZE] = {"string": format_bytes(device.step)}
    # One step above the least amount must still be in the capacity (API validation).
    room = {"step": format_bytes(device.step)} if 2 * device.step <= device.size else {}
    limits = {"min": format_bytes(device.step), **(room or {"max": format_bytes(device.step)})}
    return {
        "name": device.name,
        "attributes": dict(sorted(attributes.items())),
        "capacity": {
            CAPACITY: {
                "value": format_bytes(device.size),
                "requestPolicy": {"default": format_bytes(device.size), "validRange": limits},
            }
        },
        "allowMultipleAllocations": True,
    }


def _mapping(device: MemoryDevice, form: Form | None) -> dict[str, Any]:
    """Build the node resource mapping: one byte for each byte."""
    if form is Form.V1_36:
        entry = {"capacityKey": CAPACITY, "allocationMultiplier": "1"}
        return {"nodeAllocatableResourceMappings": {device.resource: entry}}
    if form is Form.V1_37:
        mapping = {"capacityKey": CAPACITY, "capacityMultiplier": "1"}
        return {"nodeAllocatableResources": {device.resource: {"mapping": mapping}}}
    return {}
