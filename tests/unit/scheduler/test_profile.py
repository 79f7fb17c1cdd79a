"""Profiles: kube-scheduler's defaults, overrides in a file, and errors."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.allocator import Preference
from plimsoll.errors import InputError
from plimsoll.scheduler.profile import WEIGHTS, SchedulerProfile, Strategy


def test_the_defaults_are_those_of_kube_scheduler() -> None:
    made = SchedulerProfile.default()
    assert (
        made == SchedulerProfile() == SchedulerProfile.read(None) == SchedulerProfile.read({"strategy": None})
    )
    assert dict(made.weights) == {
        "TaintToleration": 3,
        "NodeAffinity": 2,
        "NodeResourcesFit": 1,
        "PodTopologySpread": 2,
        "InterPodAffinity": 2,
        "NodeResourcesBalancedAllocation": 1,
        "ImageLocality": 1,
        "VolumeBinding": 1,
        "DevicePreference": 2,
        "DeviceWaste": 0,
    }
    assert made.strategy is Strategy.LEAST_ALLOCATED
    assert dict(made.resources) == {"cpu": 1, "memory": 1}
    assert made.balanced == ("cpu", "memory")
    assert (made.rank_weight, made.waste_weight) == (2, 0)


def test_a_file_overrides_the_defaults() -> None:
    made = SchedulerProfile.read(
        {
            "schedulerName": "gpu-scheduler",
            "weights": {"DeviceWaste": 4, "DynamicResources": 7, "NodeAffinity": 0},
            "strategy": "MostAllocated",
            "resources": {"cpu": 1, "example.com/gpu": 5},
            "balanced": [],
            "searchSteps": 1000,
            "explore": 2,
            "devicePreference": "least-waste",
        }
    )
    assert made.name == "gpu-scheduler"
    assert dict(made.weights) == {**WEIGHTS, "DeviceWaste": 4, "DevicePreference": 7, "NodeAffinity": 0}
    assert made.strategy is Strategy.MOST_ALLOCATED
    assert dict(made.resources) == {"cpu": 1, "example.com/gpu": 5}
    assert (made.balanced, made.search_steps, made.explore) == ((), 1000, 2)
    assert made.device_preference is Preference.LEAST_WASTE
    assert (made.rank_weight, made.waste_weight) == (7, 4)


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ([], "must be a mapping of settings, not []"),
        ("x", "must be a mapping of settings, not 'x'"),
        ({"weigths": {}}, "weigths: unknown field; valid fields: schedulerName, weights"),
        ({1: 2}, "1: unknown field"),
        ({"schedulerName": 3}, "schedulerName: must be a string, not 3; write it in quotes"),
        ({"schedulerName": ""}, "schedulerName: must not be empty"),
        ({"weights": []}, "weights: must be a mapping, not []"),
        (
            {"weights": {"ImageSize": 1}},
            "weights.ImageSize: unknown scorer; valid scorers: Taint",
        ),
        (
            {"weights": {"NodeAffinity": -1}},
            "weights.NodeAffinity: must be a whole number from 0 to 2147483647",
        ),
        (
            {"weights": {"NodeAffinity": "3"}},
            "must be a whole number from 0 to 2147483647, not '3'",
        ),
        ({"weights": {"NodeAffinity": True}}, "must be a whole number from 0 to 2147483647, not True"),
        ({"weights": {"NodeAffinity": 1.5}}, "must be a whole number from 0 to 2147483647, not 1.5"),
        ({"weights": {3: 1}}, "weights.3: unknown scorer"),
        (
            {"weights": {"DynamicResources": 1, "DevicePreference": 2}},
            "weights.DevicePreference: is also given as DevicePreference; keep one of them",
        ),
        (
            {"strategy": "Least"},
            "strategy: must be one of LeastAllocated, MostAllocated, RequestedToCapacityRatio, not 'Least'",
        ),
        ({"resources": {"gpu": 1}}, "resources: 'gpu' is not a node resource: use cpu"),
        ({"resources": {"cpu": 0}}, "resources: give at least one resource a weight above 0"),
        ({"resources": {}}, "resources: give at least one resource a weight above 0"),
        ({"balanced": "cpu"}, "balanced: must be a list of strings, not 'cpu'"),
        ({"balanced": ["cpu", 3]}, "balanced[1]: must be a string, not 3; write it in quotes"),
        ({"balanced": ["cpu", "cpu"]}, "balanced: name each resource once"),
        ({"balanced": ["pods"]}, "balanced: 'pods' is not a node resource"),
        (
            {"balanced": [f"example.com/r{n}" for n in range(40)]},
            "balanced: name at most 16 resources, not 40",
        ),
        ({"searchSteps": 0}, "searchSteps: must be a whole number from 1 to"),
        ({"explore": "many"}, "explore: must be a whole number from 1 to 10000, not 'many'"),
        ({"devicePreference": "big"}, "devicePreference: must be one of first, least-waste, not 'big'"),
    ],
)
def test_errors_name_the_field_and_the_fix(tree: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        SchedulerProfile.read(tree)
    assert message in str(caught.value)


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=5), inside, max_size=3),
    max_leaves=6,
)
FIELDS = st.sampled_from(["schedulerName", "weights", "strategy", "resources", "balanced", "explore"])
NAMED = st.dictionaries(st.sampled_from([*WEIGHTS, "cpu", "x"]) | st.integers(0, 3), TREES, max_size=3)


@given(TREES | st.dictionaries(FIELDS | st.text(max_size=5), TREES | NAMED, max_size=4))
def test_any_file_is_a_profile_or_an_input_error(tree: Any) -> None:
    try:
        made = SchedulerProfile.read(tree)
    except InputError:
        return
    assert made.weights.keys() == WEIGHTS.keys()


def test_profiles_are_immutable() -> None:
    made = SchedulerProfile(weights={"NodeAffinity": 5})
    with pytest.raises(TypeError):
        made.weights["NodeAffinity"] = 6  # type: ignore[index]
    assert SchedulerProfile(weights=made.weights) == made
