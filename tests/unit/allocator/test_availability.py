"""Availability of devices, compared with the reference allocator taking each device alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from msgspec.structs import replace

from plimsoll.allocator.availability import (
    BLOCKED,
    FREE,
    TAINTED,
    TAKEN,
    RequestAvailability,
    device_state,
    find_availability,
)
from plimsoll.allocator.devices.inventory import Inventory
from plimsoll.allocator.devices.node_devices import NodeDevices, bit_numbers
from plimsoll.allocator.devices.usage import DeviceUsage
from plimsoll.allocator.input_errors import AllocationFault
from plimsoll.allocator.state import AllocationState
from plimsoll.api.identity import DeviceId
from plimsoll.api.resource import DeviceConstraint, ResourceClaim
from tests.build import claim, device, device_class, exactly, node, resource_slice, result
from tests.unit.allocator.agreement import PROGRAMS
from tests.unit.allocator.random_cases import allocation_cases
from tests.unit.allocator.reference_allocator import AllocationCase, ReferenceAllocator
from tests.unit.allocator.reference_rules import InvalidInput

NONE: tuple[DeviceConstraint, ...] = ()


def without_constraints(found: ResourceClaim) -> ResourceClaim:
    devices = replace(found.spec.devices, constraints=NONE)
    return replace(found, spec=replace(found.spec, devices=devices))


def naive(case: AllocationCase) -> dict[str, set[DeviceId]]:
    """Return the devices that the reference allocator can take for each request, each alone."""
    reference = ReferenceAllocator(case, 10**6)
    (wishes,) = reference.read()
    return {
        request.full_name: {
            published.id
            for published in reference.spots
            if reference.is_selectable(request, published) and reference.take(request, published, ())
        }
        for alternatives in wishes
        for request in alternatives
    }


def available(case: AllocationCase) -> dict[str, set[DeviceId]] | AllocationFault:
    devices = Inventory(case.slices, case.features, case.taint_rules, PROGRAMS).devices_for(case.node)
    if isinstance(devices, AllocationFault):
        return devices
    usage = DeviceUsage(devices, case.state)
    found = find_availability(case.claims[0], case.classes, devices, usage)
    if isinstance(found, AllocationFault):
        return found
    return {
        name: {devices.entries[n].id for n in bit_numbers(each.available)} for name, each in found.items()
    }


@given(allocation_cases())
def test_a_device_is_available_if_it_can_be_taken_alone(case: AllocationCase) -> None:
    for each in case.claims:
        one = AllocationCase(
            case.slices,
            (without_constraints(each),),
            case.node,
            case.classes,
            case.state,
            case.features,
            case.taint_rules,
        )
        found = available(one)
        try:
            expected = naive(one)
        except InvalidInput:
            continue  # a selector that fails
        if not isinstance(found, AllocationFault):
            assert found == expected


# -- states


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


def test_each_rule_that_excludes_a_device() -> None:
    devices, names = partitions()
    share = {**result("nic"), "consumedCapacity": {"bandwidth": "8"}, "shareID": "s"}
    usage = usage_of(devices, result("half-0"), share)
    wanted = claim("c", exactly(capacity={"bandwidth": "4"}), exactly("any"))
    of_class = device_class()
    found = find_availability(wanted, {of_class.metadata.name: of_class}, devices, usage)
    assert not isinstance(found, AllocationFault)

    def named(mask: int) -> set[str]:
        return {names[number] for number in bit_numbers(mask)}

    plain = found["any"]
    assert isinstance(plain, RequestAvailability)
    assert named(plain.matching) == set(names)
    assert named(plain.taken) == {"half-0"}
    assert named(plain.blocked) == {"whole"}
    assert named(plain.tainted) == {"sick"}
    assert named(plain.available) == {"half-1"}
    assert "nic" in named(found["r"].short)
    assert named(found["r"].available) == set()
