"""Request policies of KEP-5075: default consumption, rounding of requests, and rejected amounts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from plimsoll.allocator.devices.capacity import CapacityFault, CapacityRefusal, Consumption, consume
from plimsoll.api.codec import convert
from plimsoll.api.quantity import Quantity
from plimsoll.api.request_policies import resolve_request_policies, resolve_request_policy
from plimsoll.api.resource import Device, DeviceCapacity
from tests.unit.allocator import reference_rules as naive_rules


def capacity(value: str, **policy: Any) -> dict[str, Any]:
    return {"value": value, **({"requestPolicy": policy} if policy else {})}


def taken(asked: str | None, entry: dict[str, Any]) -> str | CapacityRefusal:
    """Return the consumption of one capacity of an unused device, or the reason of a refusal."""
    requests = {} if asked is None else {"c": Quantity.parse(asked)}
    found = consume(requests, {"c": convert(entry, DeviceCapacity)})
    assert not isinstance(found, CapacityFault)
    return str(found.amounts["c"]) if isinstance(found, Consumption) else found


def refusal(rule: str, wanted: str, had: str) -> CapacityRefusal:
    return CapacityRefusal(rule, "c", Quantity.parse(wanted), Quantity.parse(had))


def test_without_a_request_the_default_is_consumed() -> None:
    assert taken(None, capacity("10", default="2")) == "2"
    assert taken(None, capacity("10", default="2", validValues=["2", "4"])) == "2"
    assert taken(None, capacity("10", default="2", validRange={"min": "1", "max": "8"})) == "2"


def test_without_request_and_default_the_full_capacity_is_consumed() -> None:
    assert taken(None, capacity("10Gi")) == "10Gi"


def test_without_a_policy_any_amount_can_be_consumed() -> None:
    for asked in ("0", "1m", "3", "10"):
        assert taken(asked, capacity("10")) == asked
    assert taken("11", capacity("10")) == refusal("short", "11", "10")


@pytest.mark.parametrize(
    ("asked", "rounded"), [("0", "1"), ("1", "1"), ("1500m", "2"), ("2", "2"), ("3", "4"), ("4", "4")]
)
def test_valid_values_round_up_to_the_next(asked: str, rounded: str) -> None:
    assert taken(asked, capacity("10", default="1", validValues=["1", "2", "4"])) == rounded


def test_more_than_the_largest_valid_value_is_refused() -> None:
    entry = capacity("10", default="1", validValues=["1", "2", "4"])
    assert taken("5", entry) == refusal("no-valid-value", "5", "4")


def test_less_than_the_minimum_is_rounded_up_to_it() -> None:
    for bounds in ({"min": "2"}, {"min": "2", "max": "8"}, {"min": "2", "step": "2"}):
        assert taken("1", capacity("10", default="2", validRange=bounds)) == "2"
        assert taken("0", capacity("10", default="2", validRange=bounds)) == "2"


def test_within_a_range_without_steps_the_amount_stays() -> None:
    entry = capacity("10", default="2", validRange={"min": "2", "max": "8"})
    assert taken("2500m", entry) == "2500m"
    assert taken("8", entry) == "8"


def test_more_than_the_maximum_is_refused() -> None:
    entry = capacity("10", default="2", validRange={"min": "2", "max": "8"})
    assert taken("8001m", entry) == refusal("above-max", "8001m", "8")


@pytest.mark.parametrize(
    ("asked", "rounded"), [("2", "2"), ("3", "5"), ("5", "5"), ("5500m", "8"), ("8", "8")]
)
def test_steps_are_counted_from_the_minimum(asked: str, rounded: str) -> None:
    assert taken(asked, capacity("10", default="2", validRange={"min": "2", "step": "3"})) == rounded


def test_an_amount_rounded_above_the_maximum_is_refused() -> None:
    entry = capacity("10", default="2", validRange={"min": "2", "max": "8", "step": "4"})
    assert taken("6", entry) == "6"
    assert taken("7", entry) == refusal("above-max", "10", "8")


def test_a_request_above_the_capacity_is_refused() -> None:
    assert taken("9", capacity("10", default="2", validRange={"min": "2", "step": "4"})) == "10"
    assert taken("11", capacity("10", default="2", validRange={"min": "2", "step": "4"})) == refusal(
        "short", "14", "10"
    )


def test_an_unknown_capacity_is_refused() -> None:
    found = consume({"other": Quantity.parse("1")}, {"c": DeviceCapacity(value=Quantity.parse("1"))})
    assert found == CapacityRefusal("undefined", "other", Quantity.parse("1"), Quantity.parse("0"))


quantities = st.sampled_from(["0", "500m", "1", "1500m", "2", "3", "4", "5", "8", "1Ki", "1k", "2Ki"])
ranges = st.fixed_dictionaries(
    {"min": st.sampled_from(["0", "500m", "1", "2", "3"])},
    optional={
        "max": st.sampled_from(["3", "4", "8", "1Ki"]),
        "step": st.sampled_from(["1", "500m", "2", "3", "1k"]),
    },
)
policies: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"default": quantities}),
    st.fixed_dictionaries({"default": quantities, "validRange": ranges}),
    st.fixed_dictionaries(
        {
            "default": quantities,
            "validValues": st.lists(quantities, min_size=1, max_size=3).map(
                lambda texts: sorted(texts, key=Quantity.parse)
            ),
        }
    ),
)


@given(st.dictionaries(st.sampled_from("abc"), quantities, max_size=2), st.data())
def test_consumption_agrees_with_the_definition(asked: dict[str, str], data: st.DataObject) -> None:
    entries: dict[str, DeviceCapacity] = {}
    for name in data.draw(st.sets(st.sampled_from("abc"))):
        entry = {"value": data.draw(quantities), "requestPolicy": data.draw(policies)}
        entries[name] = convert({key: value for key, value in entry.items() if value != {}}, DeviceCapacity)
    requests = {name: Quantity.parse(text) for name, text in asked.items()}
    fractional = data.draw(st.booleans())
    found = consume(requests, entries, fractional)
    wanted = naive_rules.consumption(requests, entries, fractional)
    assert isinstance(found, Consumption) == (wanted is not None)
    if isinstance(found, Consumption) and wanted is not None:
        assert {name: str(amount) for name, amount in found.amounts.items()} == {
            name: str(amount) for name, amount in wanted.items()
        }


# -- policies that consume nothing or that several capacities share


def resolve_naively(device: Device) -> Device:
    """Resolve each capacity, without remembering anything."""
    return replace(
        device,
        capacity={
            name: replace(
                entry,
                request_policy=entry.request_policy and resolve_request_policy(entry.request_policy, device),
            )
            for name, entry in device.capacity.items()
        },
    )


@st.composite
def shared_policies(draw: st.DrawFn) -> Device:
    policy: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
        [
            {},
            {"default": "1"},
            {"requestPolicyName": "a"},
            {"requestPolicyName": "b"},
            {"zeroConsumption": True},
        ]
    )
    named = draw(st.dictionaries(st.sampled_from("ab"), st.sampled_from([{"default": "2"}])))
    entries = {name: capacity("4", **draw(policy)) for name in draw(st.sets(st.sampled_from("xyz")))}
    return convert({"name": "d", "capacity": entries, "requestPolicies": named}, Device)


@given(st.lists(st.lists(shared_policies(), max_size=3).map(tuple), min_size=1, max_size=4), st.data())
def test_policies_are_resolved_as_one_by_one(groups: list[tuple[Device, ...]], data: st.DataObject) -> None:
    for _ in range(6):
        group = data.draw(st.sampled_from(groups))
        found = resolve_request_policies(group)
        assert found == tuple(map(resolve_naively, group))
        assert (found is group) or found != group
        assert resolve_request_policies(group) is found


def test_devices_that_are_gone_leave_no_results() -> None:
    """Others may get the identity of devices that no longer exist."""
    indirect = {"x": capacity("4", requestPolicyName="a")}
    for number in range(1000):
        named = {"a": {"default": str(number % 4 + 1)}}
        tree = {"name": "d", "capacity": indirect, "requestPolicies": named}
        (found,) = resolve_request_policies((convert(tree, Device),))
        policy = found.capacity["x"].request_policy
        assert policy is not None
        assert str(policy.default) == str(number % 4 + 1)
