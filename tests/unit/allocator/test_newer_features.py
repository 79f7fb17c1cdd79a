"""Features of Kubernetes 1.37: compatibility groups, derived attributes, node operations, fractions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from plimsoll.allocator import (
    AllocationFault,
    AllocationState,
    DeviceId,
    Features,
    Inventory,
    Refusal,
    explain_lines,
)
from plimsoll.allocator.devices.capacity import CapacityFault, CapacityRefusal, Consumption, consume
from plimsoll.api.codec import convert
from plimsoll.api.core import Node
from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import OPTIONAL_NODE_OPERATIONS, DeviceCapacity, ResourceSlice
from tests.build import (
    DRIVER,
    NODE,
    claim,
    device,
    exactly,
    first_available,
    node,
    resource_slice,
    result,
)
from tests.unit.allocator.allocate import attempt, picked, results
from tests.unit.allocator.holdings import hold_device, hold_share

NICS = "nic.example.com"


def partition(name: str, *groups: str, counter_set: str = "card", units: str = "1") -> dict[str, Any]:
    made = device(name, draws={counter_set: {"units": units}})
    made["consumesCounters"][0]["compatibilityGroups"] = list(groups)
    return made


def partitions(*devices: dict[str, Any], units: str = "8") -> list[ResourceSlice]:
    counters = {"card": {"units": units}, "other": {"units": units}}
    return [
        resource_slice(devices, name="devices", count=2),
        resource_slice(counters=counters, name="counters", count=2),
    ]


def holding(*names: str) -> AllocationState:
    state = AllocationState()
    for name in names:
        hold_device(state, DeviceId(DRIVER, "p", name))
    return state


def lines_of(outcome: object) -> str:
    assert isinstance(outcome, Refusal), outcome
    return "\n".join(explain_lines(outcome))


# -- compatibility groups


def test_partitions_are_allocated_together_only_with_a_common_group() -> None:
    two = claim("c", exactly(count=2))
    assert picked(attempt(partitions(partition("d0", "a"), partition("d1", "a", "b")), two)) == [["d0", "d1"]]
    mixed = partitions(partition("d0", "a"), partition("d1", "b"), partition("d2", "b", "a"))
    assert picked(attempt(mixed, two)) == [["d0", "d2"]]
    # Every pair has a common group, all three have none.
    ring = partitions(partition("d0", "a", "b"), partition("d1", "b", "c"), partition("d2", "c", "a"))
    assert isinstance(attempt(ring, claim("c", exactly(count=3))), Refusal)


def test_partitions_without_groups_are_compatible_with_each_other_only() -> None:
    two = claim("c", exactly(count=2))
    assert picked(attempt(partitions(partition("d0"), partition("d1")), two)) == [["d0", "d1"]]
    mixed = partitions(partition("d0"), partition("d1", "a"), partition("d2"))
    assert picked(attempt(mixed, two)) == [["d0", "d2"]]


def test_groups_of_different_counter_sets_are_not_compared() -> None:
    slices = partitions(partition("d0", "a"), partition("d1", "b", counter_set="other"))
    assert picked(attempt(slices, claim("c", exactly(count=2)))) == [["d0", "d1"]]


def test_partitions_in_use_limit_the_others() -> None:
    slices = partitions(
        partition("d0", "a"), partition("d1", "b"), partition("d2", "a", "b"), partition("d3")
    )
    one = claim("c", exactly())
    assert picked(attempt(slices, one, state=holding("d0"))) == [["d2"]]
    assert picked(attempt(slices, one, state=holding("d1"))) == [["d2"]]
    refused = attempt(slices, one, state=holding("d0", "d2"))
    assert lines_of(refused) == (
        "claim default/c, request r: wants 1 of 4 devices, 0 left\n"
        "  2 x already allocated: gpu.example.com/p/d0\n"
        "  2 x compatibility groups: gpu.example.com/p/d1 is in group b of counter set card, the devices in "
        "use are in group a"
    )


def test_partitions_of_other_nodes_count() -> None:
    there = resource_slice([partition("d0", "a")], "node-b", name="there", pool="p", count=3)
    here = resource_slice([partition("d1", "b"), partition("d2", "a")], name="here", count=3)
    counters = resource_slice(counters={"card": {"units": "8"}}, name="counters", count=3, allNodes=True)
    outcome = attempt([there, here, counters], claim("c", exactly()), state=holding("d0"))
    assert picked(outcome) == [["d2"]]


def test_further_shares_of_a_partition_are_not_compared() -> None:
    shared = partition("d0", "a") | {"allowMultipleAllocations": True}
    state = AllocationState()
    hold_share(state, DeviceId(DRIVER, "p", "d0"), "x")
    assert picked(attempt(partitions(shared, partition("d1", "b")), claim("c", exactly()), state=state)) == [
        ["d0"]
    ]


def test_nothing_is_compatible_with_incompatible_devices() -> None:
    slices = partitions(partition("d0"), partition("d1", "a"), partition("d2"), partition("d3", "a"))
    refused = attempt(slices, claim("c", exactly()), state=holding("d0", "d1"))
    assert "is in no group of counter set card, the devices in use have none in common" in lines_of(refused)


def test_without_the_gate_a_pool_with_groups_is_incomplete() -> None:
    off = Features(compatibility_groups=False)
    slices = partitions(partition("d0", "a"), device("plain"))
    refused = attempt(slices, claim("c", exactly()), features=off)
    assert lines_of(refused).startswith(
        "pool gpu.example.com/p is incomplete: has compatibility groups, and the feature gate "
        "DRADeviceCompatibilityGroups is disabled"
    )
    everything = attempt(slices, claim("c", exactly(mode="All")), features=off)
    assert isinstance(everything, AllocationFault)
    assert everything.kind == "all-incomplete-pool"


def test_a_pool_of_grouped_slices_only_is_incomplete() -> None:
    slices = [resource_slice([partition("d0", "a")]), resource_slice([device("n0")], driver=NICS)]
    everything = attempt(
        slices, claim("c", exactly(mode="All")), features=Features(compatibility_groups=False)
    )
    assert isinstance(everything, AllocationFault)
    assert everything.kind == "all-incomplete-pool"


# -- derived attributes


def derived(request: dict[str, Any], **expressions: str) -> dict[str, Any]:
    body = request["exactly"] | {
        "derivedAttributes": [
            {"name": f"derived/{name}", "expression": text} for name, text in expressions.items()
        ]
    }
    return {**request, "exactly": body}


GPU_SIDE = f'device.attributes["{DRIVER}"].numa'
NIC_SIDE = f'int(device.attributes["{NICS}"].place.split("-")[1])'


def cards_and_nics() -> list[ResourceSlice]:
    return [
        resource_slice([device("g0", numa=0), device("g1", numa=1)]),
        resource_slice([device("n0", place="numa-1")], driver=NICS),
    ]


def aligned(gpu: str = GPU_SIDE, nic: str = NIC_SIDE, **devices: Any) -> Any:
    return claim(
        "c",
        derived(exactly("gpu", select=f'device.driver == "{DRIVER}"'), numa=gpu),
        derived(exactly("nic", select=f'device.driver == "{NICS}"'), numa=nic),
        constraints=[{"matchAttribute": "derived/numa"}],
        **devices,
    )


def test_devices_of_different_drivers_match_by_a_derived_attribute() -> None:
    assert picked(attempt(cards_and_nics(), aligned())) == [["g1", "n0"]]


def test_a_derived_attribute_replaces_a_published_one_in_constraints_only() -> None:
    attribute = f"{DRIVER}/numa"
    request = exactly("r", 2, select=f"{GPU_SIDE} < 2")
    request["exactly"]["derivedAttributes"] = [{"name": attribute, "expression": '"same"'}]
    wanted = claim("c", request, constraints=[{"matchAttribute": attribute}])
    slices = [resource_slice([device("g0", numa=0), device("g1", numa=1)])]
    assert picked(attempt(slices, wanted)) == [["g0", "g1"]]


def test_a_derived_attribute_is_of_its_request() -> None:
    wanted = claim(
        "c",
        derived(exactly("a"), numa=GPU_SIDE),
        exactly("b"),
        constraints=[{"matchAttribute": "derived/numa", "requests": ["a", "b"]}],
    )
    refused = attempt([resource_slice([device("g0", numa=0), device("g1", numa=0)])], wanted)
    assert "has no attribute derived/numa" in lines_of(refused)


def test_subrequests_derive_attributes() -> None:
    choice = first_available(
        "gpu", derived(exactly("none", select="false"), numa="7"), derived(exactly("any"), numa=GPU_SIDE)
    )
    nic = derived(exactly("nic", select=f'device.driver == "{NICS}"'), numa=NIC_SIDE)
    wanted = claim(
        "c", choice, nic, constraints=[{"matchAttribute": "derived/numa", "requests": ["gpu", "nic"]}]
    )
    assert picked(attempt(cards_and_nics(), wanted)) == [["g1", "n0"]]


def test_a_failing_derived_attribute_ends_the_allocation() -> None:
    slices = [resource_slice([device("g0", model="x"), device("g1", numa=1)]), *cards_and_nics()[1:]]
    outcome = attempt(slices, aligned())
    assert isinstance(outcome, AllocationFault)
    assert outcome.is_selector_error
    assert str(outcome) == (
        "claim default/c, request gpu: evaluate derived attribute derived/numa on device "
        "gpu.example.com/p/g0 failed: no such key: numa"
    )
    compiled = attempt(slices, aligned(gpu="device.nothing"))
    assert isinstance(compiled, AllocationFault)
    assert compiled.kind == "derived-attribute-compile"


def test_devices_that_cannot_be_allocated_are_not_evaluated() -> None:
    slices = [resource_slice([device("g0", model="x"), device("g1", numa=1)]), *cards_and_nics()[1:]]
    assert picked(attempt(slices, aligned(), state=holding("g0"))) == [["g1", "n0"]]


def test_lists_match_by_a_common_value() -> None:
    places = {"g0": [0, 1], "g1": [1, 2], "g2": [2, 3]}
    slices = [resource_slice([device(name, numa=values) for name, values in places.items()])]
    wanted = claim(
        "c", derived(exactly("r", 2), numa=GPU_SIDE), constraints=[{"distinctAttribute": "derived/numa"}]
    )
    assert picked(attempt(slices, wanted)) == [["g0", "g2"]]
    # Without lists a list equals and differs from nothing.
    assert isinstance(attempt(slices, wanted, features=Features(list_attributes=False)), Refusal)


def test_without_the_gate_derived_attributes_are_refused() -> None:
    outcome = attempt(cards_and_nics(), aligned(), features=Features(derived_attributes=False))
    assert str(outcome) == (
        "claim default/c, request gpu: cannot handle request with derived attributes, the feature is disabled"
    )


# -- node operations


def declaring(*features: str) -> Node:
    plain = node()
    return replace(plain, status=replace(plain.status, declared_features=features))


def skipping() -> list[ResourceSlice]:
    made = resource_slice([device("d0")], nodeName=NODE, skipNodeOperations=["*"])
    return [made]


def test_skipped_operations_are_recorded_in_the_allocation() -> None:
    (found,) = results(attempt(skipping(), claim("c", exactly()), at=declaring(OPTIONAL_NODE_OPERATIONS)))
    assert found.skip_node_operations == ("*",)


def test_a_node_that_cannot_skip_operations_gets_no_such_device() -> None:
    refused = attempt(skipping(), claim("c", exactly()))
    assert "skips *, the node does not declare DRAOptionalNodeOperations" in lines_of(refused)
    off = Features(optional_node_operations=False)
    refused = attempt(skipping(), claim("c", exactly()), at=declaring(OPTIONAL_NODE_OPERATIONS), features=off)
    assert "skips *, the feature gate DRAOptionalNodeOperations is disabled" in lines_of(refused)


def test_a_node_that_declares_the_feature_later_gets_the_device() -> None:
    inventory = Inventory(skipping())
    before, after = inventory.devices_for(node()), inventory.devices_for(declaring(OPTIONAL_NODE_OPERATIONS))
    assert not isinstance(before, AllocationFault)
    assert not isinstance(after, AllocationFault)
    assert (before.unsupported, after.unsupported) == (1, 0)
    assert before.signature != after.signature


def test_an_allocation_that_skips_operations_needs_a_node_that_can() -> None:
    allocated = claim("c", exactly(), results=[result("d0") | {"skipNodeOperations": ["*"]}])
    assert isinstance(attempt(skipping(), allocated), Refusal)
    assert picked(attempt(skipping(), allocated, at=declaring(OPTIONAL_NODE_OPERATIONS))) == [["d0"]]


# -- fractional ranges


def capacity(bounds: Mapping[str, str]) -> dict[str, DeviceCapacity]:
    policy = {"default": bounds["min"], "validRange": bounds}
    return {"c": convert({"value": "10", "requestPolicy": policy}, DeviceCapacity)}


def consumed(amount: str, /, fractional: bool = True, *, bounds: Mapping[str, str]) -> str:
    found = consume({"c": Quantity.parse(amount)}, capacity(bounds), fractional)
    if isinstance(found, Consumption):
        return str(found.amounts["c"])
    if isinstance(found, CapacityRefusal):
        return found.rule
    assert isinstance(found, CapacityFault)
    return "fault"


def test_fractional_steps_are_counted_in_thousandths() -> None:
    bounds = {"min": "200m", "step": "100m", "max": "1"}
    assert consumed("250m", bounds=bounds) == "300m"
    assert consumed("200m", bounds=bounds) == "200m"
    assert consumed("50m", bounds=bounds) == "200m"
    assert consumed("950m", bounds=bounds) == "1"
    assert consumed("1050m", bounds=bounds) == "above-max"
    assert consumed("100u", bounds=bounds) == "200m"
    assert consumed("250100u", bounds=bounds) == "fault"


def test_whole_ranges_are_counted_in_units() -> None:
    for fractional in (True, False):
        assert consumed("1500m", fractional, bounds={"min": "1", "step": "1", "max": "4"}) == "2"
        assert consumed("3", fractional, bounds={"min": "1", "step": "2"}) == "3"
        assert consumed("2500100u", fractional, bounds={"min": "1", "step": "2"}) == "3"
        assert consumed("4E", fractional, bounds={"min": "0", "step": "100"}) == "short"
    # Bounds finer than thousandths are counted in units as well.
    assert consumed("1500m", bounds={"min": "1", "step": "1", "max": "9999999u"}) == "2"


def test_without_the_gate_steps_are_whole_units() -> None:
    assert consumed("250m", False, bounds={"min": "200m", "step": "100m", "max": "5"}) == "1"
