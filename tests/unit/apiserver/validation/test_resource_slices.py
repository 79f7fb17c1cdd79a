"""ResourceSlice: nodes, pool, counters and immutable fields."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.apiserver.validation.objects import GONE, edit, field_errors, run, slice_, stored

SELECTOR = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}
COUNTERS = [{"name": "gpu-0-counters", "counters": {"memory": {"value": "80Gi"}}}]
TERM = "spec.nodeSelector.nodeSelectorTerms[0]"


def _expression(**requirement: Any) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"], **requirement}]}
    return {"spec.nodeName": GONE, "spec.nodeSelector": {"nodeSelectorTerms": [term]}}


def _field(**requirement: Any) -> dict[str, Any]:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"], **requirement}]}
    return {"spec.nodeName": GONE, "spec.nodeSelector": {"nodeSelectorTerms": [term]}}


@pytest.mark.parametrize(
    ("changes", "errors"),
    [
        ({}, []),
        ({"spec.driver": GONE}, ["spec.driver Required"]),
        ({"spec.driver": "a b"}, ["spec.driver Invalid"]),
        ({"spec.pool": GONE}, ["spec.pool.name Required", "spec.pool.resourceSliceCount Invalid"]),
        ({"spec.pool.name": "a//b"}, ["spec.pool.name Invalid"]),
        ({"spec.pool.resourceSliceCount": -1}, ["spec.pool.resourceSliceCount Invalid"]),
        ({"spec.pool.generation": -1}, ["spec.pool.generation Invalid"]),
        ({"spec.pool.generation": 0}, []),
        (
            {"spec": GONE},
            [
                "spec Required",
                "spec.driver Required",
                "spec.pool.name Required",
                "spec.pool.resourceSliceCount Invalid",
            ],
        ),
        ({"spec.devices": []}, []),
        ({"spec.devices": GONE}, []),
        # exactly one way to name nodes
        ({"spec.nodeName": GONE}, ["spec Required"]),
        ({"spec.nodeName": ""}, ["spec Required", "spec.nodeName Invalid"]),
        ({"spec.nodeName": "A"}, ["spec.nodeName Invalid"]),
        ({"spec.allNodes": True}, ["spec Invalid"]),
        ({"spec.allNodes": False}, ["spec.allNodes Invalid"]),
        ({"spec.nodeName": GONE, "spec.allNodes": True}, []),
        ({"spec.nodeName": GONE, "spec.allNodes": False}, ["spec Required", "spec.allNodes Invalid"]),
        ({"spec.perDeviceNodeSelection": False}, ["spec.perDeviceNodeSelection Invalid"]),
        ({"spec.nodeSelector": SELECTOR}, ["spec Invalid"]),
        ({"spec.nodeName": GONE, "spec.nodeSelector": SELECTOR}, []),
        # node selectors
        (
            {"spec.nodeName": GONE, "spec.nodeSelector": {}},
            ["spec.nodeSelector.nodeSelectorTerms Invalid", "spec.nodeSelector.nodeSelectorTerms Required"],
        ),
        (
            {"spec.nodeName": GONE, "spec.nodeSelector": {"nodeSelectorTerms": [{}, {}]}},
            ["spec.nodeSelector.nodeSelectorTerms Invalid"],
        ),
        (_expression(values=[]), [f"{TERM}.matchExpressions[0].values Required"]),
        (_expression(operator="NotIn", values=[]), [f"{TERM}.matchExpressions[0].values Required"]),
        (_expression(operator="Exists"), [f"{TERM}.matchExpressions[0].values Forbidden"]),
        (_expression(operator="DoesNotExist", values=[]), []),
        (_expression(operator="Gt", values=["1"]), []),
        (_expression(operator="Lt", values=["1", "2"]), [f"{TERM}.matchExpressions[0].values Required"]),
        (_expression(operator="Equals"), [f"{TERM}.matchExpressions[0].operator Invalid"]),
        (_expression(operator=""), [f"{TERM}.matchExpressions[0].operator Invalid"]),
        (_expression(key="a b"), [f"{TERM}.matchExpressions[0].key Invalid"]),
        (_expression(values=["a", "b c"]), [f"{TERM}.matchExpressions[0].values[1] Invalid"]),
        (_field(), []),
        (_field(operator="Exists"), [f"{TERM}.matchFields[0].operator Invalid"]),
        (_field(values=[]), [f"{TERM}.matchFields[0].values Required"]),
        (_field(values=["a", "b"]), [f"{TERM}.matchFields[0].values Required"]),
        (_field(values=["A"]), [f"{TERM}.matchFields[0].values[0] Invalid"]),
        (_field(key="metadata.uid", values=["A"]), [f"{TERM}.matchFields[0].key Invalid"]),
        # counters
        ({"spec.sharedCounters": COUNTERS}, ["spec Invalid"]),
        ({"spec.sharedCounters": []}, ["spec Invalid"]),
        ({"spec.sharedCounters": COUNTERS, "spec.devices": []}, ["spec Invalid"]),
        ({"spec.sharedCounters": COUNTERS, "spec.devices": GONE}, []),
        ({"spec.sharedCounters": COUNTERS * 2, "spec.devices": GONE}, ["spec.sharedCounters[1] Duplicate"]),
        ({"spec.sharedCounters": COUNTERS * 9, "spec.devices": GONE}, ["spec.sharedCounters TooMany"]),
        (
            {"spec.sharedCounters": [{}], "spec.devices": GONE},
            ["spec.sharedCounters[0].counters Required", "spec.sharedCounters[0].name Required"],
        ),
        (
            {"spec.sharedCounters": [{"name": "A", "counters": {"B": {}}}], "spec.devices": GONE},
            ["spec.sharedCounters[0].counters Invalid", "spec.sharedCounters[0].name Invalid"],
        ),
        (
            {
                "spec.sharedCounters": [{"name": "a", "counters": {"b": {"value": "-1"}}}],
                "spec.devices": GONE,
            },
            [],
        ),
        (
            {
                "spec.sharedCounters": [{"name": "a", "counters": {f"c{i}": {} for i in range(33)}}],
                "spec.devices": GONE,
            },
            ["spec.sharedCounters[0].counters TooMany"],
        ),
    ],
)
def test_new_slice(changes: dict[str, Any], errors: list[str]) -> None:
    assert field_errors(edit(slice_(), changes)) == errors


def test_device_names_are_unique() -> None:
    assert field_errors(edit(slice_(), {"spec.devices.1.name": "gpu-0"})) == ["spec.devices[1] Duplicate"]


@pytest.mark.parametrize(
    ("extra", "limit"),
    [
        ({}, 128),
        ({"taints": [{"key": "k", "effect": "None"}]}, 64),
        ({"consumesCounters": [{"counterSet": "s", "counters": {"c": {"value": "1"}}}]}, 64),
        ({"attributes": {"a": {"ints": [1]}}}, 64),
        ({"attributes": {"a": {"int": 1}}}, 128),
    ],
)
def test_number_of_devices(extra: dict[str, Any], limit: int) -> None:
    devices = [{"name": f"d{i}"} for i in range(limit)]
    devices[0].update(extra)
    assert field_errors(edit(slice_(), {"spec.devices": devices})) == []
    assert field_errors(edit(slice_(), {"spec.devices": [*devices, {}]})) == ["spec.devices TooMany"]


@pytest.mark.parametrize(
    ("changes", "errors"),
    [
        ({"spec.driver": "b.example.com"}, ["spec.driver Invalid"]),
        ({"spec.pool.name": "other"}, ["spec.pool.name Invalid"]),
        ({"spec.nodeName": "node-2"}, ["spec.nodeName Invalid"]),
        ({"spec.nodeName": GONE, "spec.allNodes": True}, ["spec.nodeName Invalid"]),
        ({"spec.devices": [], "spec.pool.generation": 9}, []),
    ],
)
def test_update(changes: dict[str, Any], errors: list[str]) -> None:
    old = stored(slice_())
    assert field_errors(edit(old, changes), old) == errors


def test_generation_counts_changes_of_the_spec() -> None:
    assert run(edit(slice_(), {"metadata.generation": 9})).tree["metadata"]["generation"] == 1
    old = stored(slice_(), generation=4)
    assert run(edit(old, {"metadata.labels": {"a": "b"}}), old).tree["metadata"]["generation"] == 4
    assert run(edit(old, {"spec.devices": []}), old).tree["metadata"]["generation"] == 5
    spelled = edit(old, {"spec.devices.0.capacity.memory.value": "40960Mi"})
    assert run(spelled, old).tree["metadata"]["generation"] == 4
    # Counted before fields of a switched-off gate are dropped.
    tainted = edit(old, {"spec.devices.1.taints": [{"key": "k", "effect": "None"}]})
    assert run(tainted, old, gates={"DRADeviceTaints": False}).tree["metadata"]["generation"] == 5


def test_generation_zero_of_a_pool_is_stored() -> None:
    assert run(edit(slice_(), {"spec.pool.generation": GONE})).tree["spec"]["pool"]["generation"] == 0


def test_the_last_generation_does_not_wrap() -> None:
    old = stored(slice_(), generation=2**63 - 1)
    prepared = run(edit(old, {"spec.devices": []}), old)
    assert prepared.errors == ()
    assert prepared.tree["metadata"]["generation"] == 2**63 - 1


def test_upper_case_drivers_give_a_warning() -> None:
    prepared = run(edit(slice_(), {"spec.driver": "GPU.example.com"}))
    assert prepared.errors == ()
    assert "lowercase" in prepared.warnings[0]
    assert run(slice_()).warnings == ()
