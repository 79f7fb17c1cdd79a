"""Least waste: of several devices that fit, the one that leaves the least unused."""

from __future__ import annotations

from typing import Any

from plimsoll.allocator import AllocationOutcome, AllocationState, Preference, Refusal
from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import DeviceRequestAllocationResult, ResourceSlice
from tests.build import DRIVER, claim, device, exactly, resource_slice
from tests.unit.allocator.allocate import attempt, picked


def thrifty(slices: list[ResourceSlice], *claims: Any, **options: Any) -> AllocationOutcome:
    return attempt(slices, *claims, preference=Preference.LEAST_WASTE, **options)


def cards(**sizes: str) -> list[ResourceSlice]:
    return [resource_slice([device(name, capacity={"memory": size}) for name, size in sizes.items()])]


def share(name: str, amount: str) -> DeviceRequestAllocationResult:
    consumed = {"memory": Quantity.parse(amount)}
    return DeviceRequestAllocationResult(
        driver=DRIVER, pool="p", device=name, share_id="s", consumed_capacity=consumed
    )


def test_a_small_request_takes_the_smallest_device() -> None:
    slices = cards(large="80Gi", small="8Gi", tiny="2Gi")
    four = claim("c", exactly(capacity={"memory": "4Gi"}))
    assert picked(attempt(slices, four)) == [["large"]]
    assert picked(thrifty(slices, four)) == [["small"]]


def test_the_largest_device_is_left_for_requests_that_need_it() -> None:
    slices = cards(large="80Gi", small="8Gi")
    four, forty = (claim(size.lower(), exactly(capacity={"memory": size})) for size in ("4Gi", "40Gi"))
    assert picked(thrifty(slices, four, forty)) == [["small"], ["large"]]
    assert picked(thrifty(slices, four, four)) == [["small"], ["large"]]


def test_equal_devices_are_taken_as_listed() -> None:
    slices = cards(b="8Gi", a="8Gi", c="8Gi")
    assert picked(thrifty(slices, claim("c", exactly(count=2)))) == [["b", "a"]]


def shared_cards(**sizes: str) -> list[ResourceSlice]:
    return [
        resource_slice([device(name, shared=True, capacity={"memory": size}) for name, size in sizes.items()])
    ]


def test_a_shared_device_in_use_is_preferred() -> None:
    """6Gi are left of one, 8Gi of the other: the unused one stays unused."""
    slices = shared_cards(fresh="8Gi", begun="8Gi")
    state = AllocationState()
    state.hold(share("begun", "2Gi"))
    two = claim("c", exactly(capacity={"memory": "2Gi"}))
    assert picked(attempt(slices, two, state=state)) == [["fresh"]]
    assert picked(thrifty(slices, two, state=state)) == [["begun"]]
    assert picked(thrifty(slices, claim("c", exactly(capacity={"memory": "7Gi"})), state=state)) == [
        ["fresh"]
    ]


def test_a_shared_device_in_use_is_preferred_with_equal_capacity_left() -> None:
    slices = shared_cards(fresh="8Gi", begun="10Gi")
    state = AllocationState()
    state.hold(share("begun", "2Gi"))
    assert picked(thrifty(slices, claim("c", exactly(capacity={"memory": "1Gi"})), state=state)) == [
        ["begun"]
    ]


def test_a_small_partition_is_preferred() -> None:
    slices = [
        resource_slice(
            [
                device("whole", draws={"gpu": {"units": "7"}}),
                device("half", draws={"gpu": {"units": "3"}}),
                device("part", draws={"gpu": {"units": "1"}}),
            ],
            name="a",
            count=2,
        ),
        resource_slice(counters={"gpu": {"units": "7"}}, name="b", count=2),
    ]
    assert picked(attempt(slices, claim("c", exactly()))) == [["whole"]]
    assert picked(thrifty(slices, claim("c", exactly()))) == [["part"]]
    assert picked(thrifty(slices, claim("c", exactly(count=2)))) == [["part", "half"]]


def test_sizes_of_different_pools_and_drivers_are_compared() -> None:
    """A capacity without a domain is the driver's own; with one, it is the same everywhere."""
    slices = [
        resource_slice([device("a", capacity={"example.com/memory": "80Gi"})], name="a", pool="a"),
        resource_slice(
            [device("b", capacity={"example.com/memory": "8Gi"})], name="b", driver="z.example.com"
        ),
    ]
    wanted = claim("c", exactly(capacity={"example.com/memory": "4Gi"}))
    assert picked(thrifty(slices, wanted)) == [["b"]]


def test_a_preference_never_satisfies_an_impossible_request() -> None:
    slices = cards(large="80Gi", small="8Gi")
    assert isinstance(thrifty(slices, claim("c", exactly(capacity={"memory": "81Gi"}))), Refusal)
    assert isinstance(thrifty(slices, claim("c", exactly(count=3))), Refusal)


def test_a_preference_still_backtracks() -> None:
    """The smallest fits the first request, but is the only one for the second."""
    devices = [
        device("large", capacity={"memory": "80Gi"}, kind="a"),
        device("small", capacity={"memory": "8Gi"}, kind="b"),
    ]
    only_b = f'device.attributes["{DRIVER}"].kind == "b"'
    wanted = claim("c", exactly("x"), exactly("y", select=only_b))
    assert picked(thrifty([resource_slice(devices)], wanted)) == [["large", "small"]]


def test_a_preference_does_not_limit_all() -> None:
    slices = cards(large="80Gi", small="8Gi", middle="40Gi")
    assert sorted(picked(thrifty(slices, claim("c", exactly(mode="All"))))[0]) == ["large", "middle", "small"]


def test_taints_and_counters_hold_in_any_order() -> None:
    sick = [{"key": "sick", "effect": "NoSchedule"}]
    slices = [
        resource_slice(
            [
                device("large", capacity={"memory": "80Gi"}),
                device("sick", capacity={"memory": "4Gi"}, taints=sick),
                device("counted", capacity={"memory": "8Gi"}, draws={"set": {"units": "2"}}),
            ],
            name="a",
            count=2,
        ),
        resource_slice(counters={"set": {"units": "1"}}, name="b", count=2),
    ]
    assert picked(thrifty(slices, claim("c", exactly()))) == [["large"]]
    brave = claim("c", exactly(tolerations=[{"operator": "Exists"}]))
    assert picked(thrifty(slices, brave)) == [["sick"]]
