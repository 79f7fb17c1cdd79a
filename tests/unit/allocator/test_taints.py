"""Device taints, the tolerations of requests, and rules that taint devices."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.allocator import Features, Refusal
from plimsoll.api.codec import convert, to_tree
from plimsoll.api.device_taints import find_untolerated_taint, is_tolerated, tolerates
from plimsoll.api.resource import DeviceTaint, DeviceTaintRule, DeviceToleration
from tests.build import DRIVER, claim, device, exactly, first_available, resource_slice
from tests.unit.allocator.allocate import attempt, picked, results
from tests.unit.allocator.reference_rules import are_tolerated

SICK = {"key": "sick", "value": "yes", "effect": "NoSchedule"}
DYING = {"key": "dying", "effect": "NoExecute"}
ODD = {"key": "odd", "effect": "None"}


def rule(taint: dict[str, Any], **spec: Any) -> DeviceTaintRule:
    return convert({"metadata": {"name": "r"}, "spec": {"taint": taint, **spec}}, DeviceTaintRule)


# -- tolerations and taints


@pytest.mark.parametrize(
    ("toleration", "matches"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "sick", "operator": "Exists"}, True),
        ({"key": "well", "operator": "Exists"}, False),
        ({"key": "sick", "operator": "Equal", "value": "yes"}, True),
        ({"key": "sick", "value": "yes"}, True),
        ({"key": "sick", "operator": "Equal", "value": "no"}, False),
        ({"key": "sick", "operator": "Equal"}, False),
        ({"operator": "Equal", "value": "yes"}, True),
        ({"operator": "Exists", "effect": "NoSchedule"}, True),
        ({"operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "sick", "operator": "Lt", "value": "yes"}, False),
        ({"key": "sick", "operator": "Exists", "tolerationSeconds": 0}, True),
    ],
)
def test_tolerations_match_taints(toleration: dict[str, Any], matches: bool) -> None:
    assert tolerates(convert(toleration, DeviceToleration), convert(SICK, DeviceTaint)) is matches


@pytest.mark.parametrize(
    ("effect", "prevents"),
    [("NoSchedule", True), ("NoExecute", True), ("None", False), ("", False), ("PreferNoSchedule", False)],
)
def test_effects_that_prevent_allocation(effect: str, prevents: bool) -> None:
    slices = [resource_slice([device("d0", taints=[{"key": "k", "effect": effect}]), device("d1")])]
    assert picked(attempt(slices, claim("c", exactly()))) == [["d1" if prevents else "d0"]]


def test_the_first_taint_that_is_not_tolerated_is_named() -> None:
    taints = [convert(each, DeviceTaint) for each in (ODD, SICK, DYING)]
    exists = convert({"key": "sick", "operator": "Exists"}, DeviceToleration)
    assert find_untolerated_taint(taints, []) == taints[1]
    assert find_untolerated_taint(taints, [exists]) == taints[2]
    assert find_untolerated_taint(taints, [convert({"operator": "Exists"}, DeviceToleration)]) is None


keys, values = st.sampled_from(["", "a", "b"]), st.sampled_from(["", "x", "y"])
effects = st.sampled_from(["", "NoSchedule", "NoExecute", "None"])
taints = st.builds(DeviceTaint, key=keys, value=values, effect=effects)
tolerations = st.builds(
    DeviceToleration,
    key=keys,
    value=values,
    effect=effects,
    operator=st.sampled_from(["", "Exists", "Equal", "NotIn"]),
)


@given(st.lists(taints, max_size=3), st.lists(tolerations, max_size=3))
def test_tolerations_agree_with_the_definition(
    some: list[DeviceTaint], others: list[DeviceToleration]
) -> None:
    assert is_tolerated(some, others) == are_tolerated(some, others)


# -- requests


def test_a_tainted_device_is_not_allocated() -> None:
    slices = [resource_slice([device("d0", taints=[SICK]), device("d1")])]
    assert picked(attempt(slices, claim("c", exactly()))) == [["d1"]]
    assert isinstance(attempt(slices, claim("c", exactly(count=2))), Refusal)
    brave = [{"key": "sick", "operator": "Exists"}]
    outcome = attempt(slices, claim("c", exactly(count=2, tolerations=brave)))
    assert picked(outcome) == [["d0", "d1"]]
    assert all(to_tree(each)["tolerations"] == brave for each in results(outcome))


def test_every_taint_must_be_tolerated() -> None:
    slices = [resource_slice([device("d0", taints=[SICK, DYING])])]
    sick, dying = ({"key": key, "operator": "Exists"} for key in ("sick", "dying"))
    assert isinstance(attempt(slices, claim("c", exactly(tolerations=[sick]))), Refusal)
    assert picked(attempt(slices, claim("c", exactly(tolerations=[sick, dying])))) == [["d0"]]


def test_tolerations_are_those_of_the_request() -> None:
    """Another request's tolerations, or another alternative's, do not count."""
    slices = [resource_slice([device("d0", taints=[SICK]), device("d1", taints=[DYING])])]
    sick, dying = ([{"key": key, "operator": "Exists"}] for key in ("sick", "dying"))
    both = claim("c", exactly("a", tolerations=dying), exactly("b", tolerations=sick))
    assert picked(attempt(slices, both)) == [["d1", "d0"]]
    listed = claim("c", first_available("r", exactly("a"), exactly("b", tolerations=dying)))
    assert picked(attempt(slices, listed)) == [["d1"]]


def test_all_fails_on_a_tainted_device() -> None:
    slices = [resource_slice([device("d0", taints=[SICK]), device("d1")])]
    assert isinstance(attempt(slices, claim("c", exactly(mode="All"))), Refusal)
    everything = claim("c", exactly(mode="All", tolerations=[{"operator": "Exists"}]))
    assert picked(attempt(slices, everything)) == [["d0", "d1"]]


def test_admin_access_needs_tolerations_too() -> None:
    slices = [resource_slice([device("d0", taints=[SICK])])]
    assert isinstance(attempt(slices, claim("c", exactly(admin=True))), Refusal)
    brave = claim("c", exactly(admin=True, tolerations=[{"operator": "Exists"}]))
    assert picked(attempt(slices, brave)) == [["d0"]]


def test_with_the_gate_off_taints_do_not_count() -> None:
    slices = [resource_slice([device("d0", taints=[SICK])])]
    off = Features(device_taints=False)
    assert picked(attempt(slices, claim("c", exactly()), features=off)) == [["d0"]]
    everything = rule(DYING, deviceSelector={})
    assert picked(attempt(slices, claim("c", exactly()), features=off, taint_rules=[everything])) == [["d0"]]


# -- rules


SLICES = [
    resource_slice([device("d0"), device("d1")], name="a"),
    resource_slice([device("d0")], name="b", pool="q"),
    resource_slice([device("d0")], name="c", driver="nic.example.com"),
]


def untainted(*rules: DeviceTaintRule) -> list[str]:
    """Return the devices that can still be allocated."""
    for count in (4, 3, 2, 1):
        outcome = attempt(SLICES, claim("c", exactly(count=count)), taint_rules=rules)
        if not isinstance(outcome, Refusal):
            return [f"{each.driver[:3]}-{each.pool}-{each.device}" for each in results(outcome)]
    return []


EVERYTHING = ["gpu-p-d0", "gpu-p-d1", "gpu-q-d0", "nic-p-d0"]


@pytest.mark.parametrize(
    ("selector", "left"),
    [
        ({}, []),
        ({"driver": DRIVER}, ["nic-p-d0"]),
        ({"pool": "p"}, ["gpu-q-d0"]),
        ({"device": "d1"}, ["gpu-p-d0", "gpu-q-d0", "nic-p-d0"]),
        ({"driver": DRIVER, "pool": "p"}, ["gpu-q-d0", "nic-p-d0"]),
        ({"driver": DRIVER, "pool": "p", "device": "d0"}, ["gpu-p-d1", "gpu-q-d0", "nic-p-d0"]),
        ({"driver": "other.example.com"}, EVERYTHING),
        ({"pool": "p", "device": "d9"}, EVERYTHING),
    ],
)
def test_a_rule_taints_the_devices_it_selects(selector: dict[str, str], left: list[str]) -> None:
    """An empty selector taints every device."""
    assert untainted(rule(SICK, deviceSelector=selector)) == left


def test_a_rule_without_a_selector_taints_nothing() -> None:
    assert untainted(rule(SICK)) == EVERYTHING


def test_a_rule_without_effect_is_information() -> None:
    assert untainted(rule(ODD, deviceSelector={})) == EVERYTHING


def test_rules_add_to_the_taints_of_the_device_and_to_each_other() -> None:
    slices = [resource_slice([device("d0", taints=[SICK])])]
    rules = [
        rule(DYING, deviceSelector={}),
        rule({"key": "third", "effect": "NoSchedule"}, deviceSelector={"pool": "p"}),
    ]

    def ask(*keys: str) -> object:
        is_tolerated = [{"key": key, "operator": "Exists"} for key in keys]
        return attempt(slices, claim("c", exactly(tolerations=is_tolerated)), taint_rules=rules)

    assert isinstance(ask("sick", "dying"), Refusal)
    assert isinstance(ask("dying", "third"), Refusal)
    assert not isinstance(ask("sick", "dying", "third"), Refusal)
