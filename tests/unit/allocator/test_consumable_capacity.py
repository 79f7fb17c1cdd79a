"""Consumable capacity of KEP-5075: shared devices, and the amount a request consumes."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from plimsoll.allocator import (
    AllocationFault,
    AllocationOutcome,
    AllocationState,
    DeviceId,
    Features,
    Refusal,
)
from plimsoll.api.codec import convert, to_tree
from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import Device, DeviceRequestAllocationResult, ResourceSlice
from tests.build import DRIVER, claim, device, device_class, exactly, first_available, resource_slice
from tests.unit.allocator.allocate import attempt, picked, results


def capacity(value: str, **policy: Any) -> dict[str, Any]:
    return {"value": value, **({"requestPolicy": policy} if policy else {})}


def one(name: str = "d0", **fields: Any) -> list[ResourceSlice]:
    return [resource_slice([device(name, shared=True, **fields)])]


def held(*results: DeviceRequestAllocationResult) -> AllocationState:
    state = AllocationState()
    for each in results:
        state.hold(each)
    return state


def share(name: str = "d0", number: int = 1, **amounts: str) -> DeviceRequestAllocationResult:
    return DeviceRequestAllocationResult(
        driver=DRIVER,
        pool="p",
        device=name,
        share_id=f"s{number}",
        consumed_capacity={key: Quantity.parse(text) for key, text in amounts.items()},
    )


def consumed(outcome: AllocationOutcome) -> list[dict[str, str]]:
    return [
        {name: str(amount) for name, amount in each.consumed_capacity.items()} for each in results(outcome)
    ]


# -- sharing


def test_a_shareable_device_is_allocated_several_times() -> None:
    slices = one(capacity={"mem": "4"})
    two = claim("c", exactly(capacity={"mem": "2"}))
    assert picked(attempt(slices, two, two)) == [["d0"], ["d0"]]
    assert isinstance(attempt(slices, two, two, two), Refusal)


def test_a_dedicated_device_is_allocated_once() -> None:
    slices = [resource_slice([device("d0", capacity={"mem": "4"})])]
    two = claim("c", exactly(capacity={"mem": "2"}))
    assert picked(attempt(slices, two)) == [["d0"]]
    assert isinstance(attempt(slices, two, two), Refusal)


def test_on_a_dedicated_device_a_capacity_request_is_a_filter() -> None:
    """Nothing is consumed and nothing recorded: the device must just be large enough."""
    slices = [
        resource_slice([device("small", capacity={"mem": "2"}), device("large", capacity={"mem": "8"})])
    ]
    outcome = attempt(slices, claim("c", exactly(capacity={"mem": "4"})))
    assert picked(outcome) == [["large"]]
    assert (results(outcome)[0].share_id, results(outcome)[0].consumed_capacity) == (None, {})


def test_only_the_remaining_capacity_can_be_requested() -> None:
    slices = one(capacity={"mem": "8"})
    state = held(share(mem="5"))
    assert isinstance(attempt(slices, claim("c", exactly(capacity={"mem": "4"})), state=state), Refusal)
    assert consumed(attempt(slices, claim("c", exactly(capacity={"mem": "3"})), state=state)) == [
        {"mem": "3"}
    ]


def test_capacity_taken_in_the_same_call_counts() -> None:
    slices = one(capacity={"mem": "8"})
    parts = [claim(f"c{amount}", exactly(capacity={"mem": amount})) for amount in ("5", "3", "1")]
    assert picked(attempt(slices, *parts[:2])) == [["d0"], ["d0"]]
    assert isinstance(attempt(slices, *parts), Refusal)


def test_rounded_amounts_must_fit_the_remaining_capacity() -> None:
    """Three are requested, four are consumed, and four remain."""
    slices = one(capacity={"mem": capacity("8", default="4", validRange={"min": "4", "step": "4"})})
    three = claim("c", exactly(capacity={"mem": "3"}))
    assert consumed(attempt(slices, three, three)) == [{"mem": "4"}, {"mem": "4"}]
    assert isinstance(attempt(slices, three, three, three), Refusal)


def test_without_request_and_policy_the_full_capacity_is_consumed() -> None:
    slices = one(capacity={"mem": "8"})
    outcome = attempt(slices, claim("c", exactly()))
    assert consumed(outcome) == [{"mem": "8"}]
    assert isinstance(attempt(slices, claim("c", exactly()), claim("c", exactly())), Refusal)


def test_a_capacity_without_request_is_consumed_in_full() -> None:
    """Asking for memory alone still takes all cores, unless a policy says otherwise."""
    greedy = one(capacity={"mem": "8", "cores": "16"})
    little = claim("c", exactly(capacity={"mem": "1"}))
    assert consumed(attempt(greedy, little)) == [{"mem": "1", "cores": "16"}]
    assert isinstance(attempt(greedy, little, little), Refusal)
    modest = one(capacity={"mem": "8", "cores": capacity("16", default="4")})
    assert consumed(attempt(modest, *[little] * 4)) == [{"mem": "1", "cores": "4"}] * 4
    assert isinstance(attempt(modest, *[little] * 5), Refusal)


def test_zero_can_be_consumed_without_limit() -> None:
    slices = one(capacity={"mem": capacity("8", default="0", validValues=["0"])})
    outcome = attempt(slices, *[claim(f"c{n}", exactly()) for n in range(20)])
    assert consumed(outcome) == [{"mem": "0"}] * 20


def test_without_capacity_shares_are_unlimited() -> None:
    outcome = attempt(one(), *[claim(f"c{n}", exactly()) for n in range(20)])
    assert picked(outcome) == [["d0"]] * 20
    assert len({each.share_id for each in results(outcome)}) == 20
    assert consumed(outcome) == [{}] * 20


def test_all_capacities_are_recorded_even_zero() -> None:
    policy = capacity("4", default="0", validRange={"min": "0"})
    slices = one(capacity={"mem": "8", "cores": policy, "lanes": capacity("2", default="1")})
    outcome = attempt(slices, claim("c", exactly(capacity={"mem": "2"})))
    assert consumed(outcome) == [{"mem": "2", "cores": "0", "lanes": "1"}]


def test_every_share_gets_an_id_from_the_caller() -> None:
    slices = [resource_slice([device("d0", shared=True), device("d1"), device("d2", shared=True)])]
    outcome = attempt(slices, claim("c", exactly(count=3)), claim("other", exactly()))
    made = [(each.device, each.share_id) for each in results(outcome)]
    assert made == [("d0", "share-1"), ("d1", None), ("d2", "share-2"), ("d0", "share-3")]


def test_recorded_amounts_are_held() -> None:
    """Allocate and hold until nothing remains: the consumption never exceeds the capacity."""
    slices = one(capacity={"mem": capacity("10", default="3", validRange={"min": "2", "step": "1"})})
    state = AllocationState()
    for number in itertools.count():
        wanted = claim(f"c{number}", exactly())
        outcome = attempt(slices, wanted, state=state)
        if isinstance(outcome, Refusal):
            break
        for each in results(outcome):
            state.hold(DeviceRequestAllocationResult(**{**_fields(each), "share_id": f"s{number}"}))
    holding = state.holding(DeviceId(DRIVER, "p", "d0"))
    assert holding is not None
    assert (len(holding.shares), holding.consumed) == (3, {"mem": 9 * 10**9})


def _fields(result: DeviceRequestAllocationResult) -> dict[str, Any]:
    return {name: getattr(result, name) for name in ("driver", "pool", "device", "consumed_capacity")}


# -- several shares in one claim


def test_requests_of_one_claim_may_share_a_device() -> None:
    slices = one(capacity={"mem": "4"})
    wanted = claim("c", exactly("a", capacity={"mem": "1"}), exactly("b", capacity={"mem": "3"}))
    assert picked(attempt(slices, wanted)) == [["d0", "d0"]]


def test_one_request_never_has_a_device_twice() -> None:
    """Its devices are different ones, however much of the first is left."""
    wanted = claim("c", exactly(count=2, capacity={"mem": "1"}))
    assert isinstance(attempt(one(capacity={"mem": "4"}), wanted), Refusal)
    two = [resource_slice([device(name, shared=True, capacity={"mem": "4"}) for name in ("d0", "d1")])]
    assert picked(attempt(two, wanted)) == [["d0", "d1"]]


def test_distinct_attribute_keeps_requests_apart() -> None:
    """Story 2: two interfaces, and not the same one twice."""
    eth = [device(name, shared=True, interfaceName=name) for name in ("eth1", "eth2")]
    wanted = claim(
        "c",
        exactly("macvlan-1"),
        exactly("macvlan-2"),
        constraints=[
            {"requests": ["macvlan-1", "macvlan-2"], "distinctAttribute": f"{DRIVER}/interfaceName"}
        ],
    )
    assert picked(attempt([resource_slice(eth)], wanted)) == [["eth1", "eth2"]]
    assert isinstance(attempt([resource_slice(eth[:1])], wanted), Refusal)
    free = claim("c", exactly("macvlan-1"), exactly("macvlan-2"))
    assert picked(attempt([resource_slice(eth)], free)) == [["eth1", "eth1"]]


def test_an_alternative_with_less_capacity_is_taken_where_more_is_not_left() -> None:
    slices = one(capacity={"mem": "8"})
    wanted = claim(
        "c",
        first_available(
            "r", exactly("much", capacity={"mem": "8"}), exactly("little", capacity={"mem": "2"})
        ),
    )
    assert consumed(attempt(slices, wanted)) == [{"mem": "8"}]
    outcome = attempt(slices, wanted, state=held(share(mem="4")))
    assert consumed(outcome) == [{"mem": "2"}]
    assert results(outcome)[0].request == "r/little"


def test_all_takes_a_share_of_every_device_large_enough() -> None:
    """Devices with too little of the capacity are not selected."""
    slices = [
        resource_slice(
            [
                device("d0", shared=True, capacity={"mem": "8"}),
                device("d1", shared=True, capacity={"mem": "1"}),
                device("d2", shared=True),
                device("d3", capacity={"mem": "4"}),
            ]
        )
    ]
    outcome = attempt(slices, claim("c", exactly(mode="All", capacity={"mem": "2"})))
    assert picked(outcome) == [["d0", "d3"]]
    assert consumed(outcome) == [{"mem": "2"}, {}]


# -- selecting


def test_selectors_distinguish_shareable_devices() -> None:
    slices = [resource_slice([device("own"), device("common", shared=True)])]
    assert picked(attempt(slices, claim("c", exactly(select="device.allowMultipleAllocations")))) == [
        ["common"]
    ]
    only = [device_class(select="device.allowMultipleAllocations == false")]
    assert picked(attempt(slices, claim("c", exactly(count=1)), classes=only)) == [["own"]]
    assert isinstance(attempt(slices, claim("c", exactly(count=2)), classes=only), Refusal)


def test_admin_access_consumes_capacity_like_other_requests() -> None:
    slices = one(capacity={"mem": "4"})
    outcome = attempt(slices, claim("c", exactly(admin=True, capacity={"mem": "3"})))
    assert consumed(outcome) == [{"mem": "3"}]
    assert results(outcome)[0].share_id == "share-1"
    full = held(share(mem="2"))
    assert isinstance(
        attempt(slices, claim("c", exactly(admin=True, capacity={"mem": "3"})), state=full), Refusal
    )


# -- devices and policies that change while allocated


def test_a_device_made_shareable_stays_dedicated_until_it_is_free() -> None:
    """Its holder got it whole, without a shareID."""
    whole = DeviceRequestAllocationResult(driver=DRIVER, pool="p", device="d0")
    state = held(whole)
    now_shareable = one(capacity={"mem": "4"})
    wanted = claim("c", exactly(capacity={"mem": "1"}))
    assert isinstance(attempt(now_shareable, wanted, state=state), Refusal)
    state.release(whole)
    assert picked(attempt(now_shareable, wanted, state=state)) == [["d0"]]


def test_a_device_made_dedicated_is_not_allocated_while_it_has_shares() -> None:
    now_dedicated = [resource_slice([device("d0", capacity={"mem": "4"})])]
    first, second = share(number=1, mem="1"), share(number=2, mem="1")
    state = held(first, second)
    for each in (first, second):
        assert isinstance(attempt(now_dedicated, claim("c", exactly()), state=state), Refusal)
        state.release(each)
    assert picked(attempt(now_dedicated, claim("c", exactly()), state=state)) == [["d0"]]


@pytest.mark.parametrize(
    ("entry", "next_share"),
    [
        (capacity("8", default="1", validRange={"min": "1", "step": "1"}), "1"),
        (capacity("8", default="2", validValues=["2", "4"]), "2"),
        (capacity("8", default="5"), "5"),
        (capacity("8"), None),
    ],
)
def test_a_changed_policy_concerns_future_shares_only(entry: dict[str, Any], next_share: str | None) -> None:
    """Three were consumed under whatever policy there was; they stay three."""
    state = held(share(mem="3"))
    before = state.copy()
    outcome = attempt(one(capacity={"mem": entry}), claim("c", exactly()), state=state)
    if next_share is None:
        assert isinstance(outcome, Refusal)
    else:
        assert consumed(outcome) == [{"mem": next_share}]
    assert state == before


def test_a_capacity_below_its_consumption_has_nothing_left() -> None:
    state = held(share(mem="6"))
    slices = one(capacity={"mem": capacity("4", default="0")})
    assert isinstance(attempt(slices, claim("c", exactly()), state=state), Refusal)


# -- feature gate


def test_with_the_gate_off_a_capacity_request_is_an_error() -> None:
    off = Features(consumable_capacity=False)
    outcome = attempt(one(capacity={"mem": "4"}), claim("c", exactly(capacity={"mem": "1"})), features=off)
    assert isinstance(outcome, AllocationFault)
    assert outcome.kind == "feature-consumable-capacity"
    assert "has capacity requests, but the DRAConsumableCapacity feature is disabled" in str(outcome)


def test_with_the_gate_off_every_device_is_dedicated() -> None:
    off = Features(consumable_capacity=False)
    slices = one(capacity={"mem": "4"})
    outcome = attempt(slices, claim("c", exactly()), features=off)
    assert to_tree(results(outcome)[0]) == {"request": "r", "driver": DRIVER, "pool": "p", "device": "d0"}
    assert isinstance(attempt(slices, claim("c", exactly()), claim("c", exactly()), features=off), Refusal)


def test_with_the_gate_off_a_share_blocks_the_device() -> None:
    """The claim stays valid, and the rest of the device cannot be allocated."""
    off = Features(consumable_capacity=False)
    state = AllocationState(shared=False)
    state.hold(share(mem="1"))
    assert isinstance(
        attempt(one(capacity={"mem": "4"}), claim("c", exactly()), features=off, state=state), Refusal
    )


# -- example


ETH1: dict[str, Any] = {
    "name": "eth1",
    "allowMultipleAllocations": True,
    "attributes": {"name": {"string": "eth1"}},
    "capacity": {
        "bandwidth": {
            "requestPolicy": {"default": "1Mi", "validRange": {"min": "1Mi", "step": "8"}},
            "value": "10Gi",
        }
    },
}


def test_the_bandwidth_example() -> None:
    """10Gi of bandwidth: 5Gi and a default of 1Mi; then 8Gi do not fit and 2Gi do."""
    slices = [resource_slice([ETH1])]
    classes = [device_class(select="device.allowMultipleAllocations == true")]
    state = AllocationState()

    def ask(bandwidth: str | None) -> AllocationOutcome:
        wanted = exactly("nic") if bandwidth is None else exactly("nic", capacity={"bandwidth": bandwidth})
        return attempt(slices, claim("c", wanted), state=state, classes=classes)

    first = ask("5Gi")
    assert consumed(first) == [{"bandwidth": "5368709120"}]
    state.hold(share("eth1", 1, bandwidth="5Gi"))
    default = ask(None)
    assert consumed(default) == [{"bandwidth": "1Mi"}]
    state.hold(share("eth1", 2, bandwidth="1Mi"))
    assert isinstance(ask("8Gi"), Refusal)
    assert consumed(ask("2Gi")) == [{"bandwidth": "2147483648"}]
    # Steps of 8 above 1Mi: one byte more rounds up to eight.
    assert consumed(ask("1048577")) == [{"bandwidth": "1048584"}]
    assert consumed(ask("1")) == [{"bandwidth": "1Mi"}]
    # Exactly what is left fits, one step more does not.
    left = 5 * 2**30 - 2**20
    assert consumed(ask(str(left))) == [{"bandwidth": str(left)}]
    assert isinstance(ask(str(left + 1)), Refusal)


# -- partitions


def partitions(units: str) -> list[ResourceSlice]:
    return [
        resource_slice(
            [
                device("half-0", shared=True, capacity={"mem": "4"}, draws={"gpu": {"units": "2"}}),
                device("half-1", shared=True, capacity={"mem": "4"}, draws={"gpu": {"units": "2"}}),
                device("whole", draws={"gpu": {"units": "4"}}),
            ],
            name="a",
            count=2,
        ),
        resource_slice(counters={"gpu": {"units": units}}, name="b", count=2),
    ]


def test_a_shared_partition_draws_counters_once_and_capacity_every_time() -> None:
    three = claim("c", exactly(capacity={"mem": "3"}))
    one_more = claim("c", exactly(capacity={"mem": "1"}))
    # Two units are enough for one partition with any number of shares ...
    assert picked(attempt(partitions("2"), three, one_more)) == [["half-0"], ["half-0"]]
    # ... but capacity is taken by each, and the other partition has no units left.
    assert isinstance(attempt(partitions("2"), three, three), Refusal)
    assert picked(attempt(partitions("4"), three, three)) == [["half-0"], ["half-1"]]


def test_a_shared_partition_draws_counters_once_across_calls() -> None:
    three = claim("c", exactly(capacity={"mem": "3"}))
    state = held(share("half-0", mem="1"))
    assert picked(attempt(partitions("2"), three, state=state)) == [["half-0"]]
    full = held(share("half-0", mem="2"))
    assert isinstance(attempt(partitions("3"), three, state=full), Refusal)
    assert picked(attempt(partitions("4"), three, state=full)) == [["half-1"]]


def test_a_partition_and_the_whole_exclude_each_other() -> None:
    dedicated = claim("c", exactly(select="!device.allowMultipleAllocations"))
    assert picked(attempt(partitions("4"), dedicated)) == [["whole"]]
    assert isinstance(attempt(partitions("4"), dedicated, state=held(share("half-0", mem="1"))), Refusal)
    both = claim(
        "c", exactly("a", capacity={"mem": "1"}), exactly("b", select="!device.allowMultipleAllocations")
    )
    assert isinstance(attempt(partitions("4"), both), Refusal)
    assert picked(attempt(partitions("6"), both)) == [["half-0", "whole"]]


def test_the_documented_devices_are_read() -> None:
    made: Device = convert(ETH1, Device)
    assert made.allow_multiple_allocations is True
    entry = made.capacity["bandwidth"]
    assert entry.request_policy is not None
    assert entry.request_policy.valid_range is not None
    assert str(entry.request_policy.valid_range.step) == "8"


# -- request policies without consumption, and by name


def test_zero_consumption_lets_any_number_of_claims_share_a_capacity() -> None:
    slices = one(capacity={"mem": capacity("4", zeroConsumption=True)})
    free = claim("c", exactly())
    outcome = attempt(slices, free, free, free)
    assert picked(outcome) == [["d0"]] * 3
    assert consumed(outcome) == [{"mem": "0"}] * 3
    assert isinstance(attempt(slices, claim("c", exactly(capacity={"mem": "1"}))), Refusal)


def test_capacities_share_a_policy_by_name() -> None:
    steps = {"default": "2", "validRange": {"min": "2", "step": "2"}}
    named = {"in": capacity("8", requestPolicyName="steps"), "out": capacity("6", requestPolicyName="steps")}
    slices = one(capacity=named, fields={"requestPolicies": {"steps": steps}})
    plain = one(capacity={"in": capacity("8", **steps), "out": capacity("6", **steps)})
    for requests in ({}, {"in": "3"}, {"in": "3", "out": "5"}):
        wanted = claim("c", exactly(capacity=requests))
        assert consumed(attempt(slices, wanted)) == consumed(attempt(plain, wanted))
    assert isinstance(attempt(slices, claim("c", exactly(capacity={"out": "7"}))), Refusal)
    assert consumed(attempt(slices, claim("c", exactly(capacity={"in": "3"})))) == [{"in": "4", "out": "2"}]


def test_a_policy_of_unknown_name_consumes_the_full_capacity() -> None:
    slices = one(capacity={"mem": capacity("4", requestPolicyName="gone")})
    assert consumed(attempt(slices, claim("c", exactly()))) == [{"mem": "4"}]
