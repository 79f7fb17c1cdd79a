"""States of devices, by the allocator's rules."""

from __future__ import annotations

import pytest

from plimsoll.allocator.availability import (
    BLOCKED,
    FREE,
    TAINTED,
    TAKEN,
    device_state,
)
from plimsoll.allocator.devices.inventory import Inventory
from plimsoll.allocator.devices.node_devices import NodeDevices
from plimsoll.allocator.devices.usage import DeviceUsage
from plimsoll.allocator.input_errors import AllocationFault
from plimsoll.allocator.state import AllocationState
from tests.build import claim, device, exactly, node, resource_slice, result


def partitions() -> tuple[NodeDevices, list[str]]:
    """Return a GPU of 80Gi, as a whole and in two halves, a NIC of 10 to share, and a tainted device."""
    gpu = [
        device("whole", draws={"gpu": {"memory": "80Gi"}}),
        device("half-0", draws={"gpu": {"memory": "40Gi"}}),
        device("half-1", draws={"gpu": {"memory": "40Gi"}}),
        device("nic", shared=True, capacity={"bandwidth": "10"}),
        device("sick", taints=[{"key": "sick", "effect": "NoSchedule"}]),
    ]
    slices = [
        resource_slice(name="counters", count=2, counters={"gpu": {"memory": "80Gi"}}),
        resource_slice(gpu, name="devices", count=2),
    ]
    devices = Inventory(slices).devices_for(node())
    assert not isinstance(devices, AllocationFault)
    return devices, [entry.id.device for entry in devices.entries]


def usage_of(devices: NodeDevices, *results: dict[str, object]) -> DeviceUsage:
    held = claim("held", exactly(), results=results)
    return DeviceUsage(devices, AllocationState.of([held]))


@pytest.mark.parametrize(
    ("held", "states"),
    [
        (["whole"], {"whole": TAKEN, "half-0": BLOCKED, "half-1": BLOCKED, "nic": FREE, "sick": TAINTED}),
        (["half-0"], {"whole": BLOCKED, "half-0": TAKEN, "half-1": FREE}),
    ],
)
def test_partitions_of_a_used_device_are_not_free(held: list[str], states: dict[str, str]) -> None:
    devices, names = partitions()
    usage = usage_of(devices, *(result(each) for each in held))
    for name, state in states.items():
        number = names.index(name)
        assert device_state(devices, usage, number) == state
