"""Write pipeline: decoding, defaults, stored form, and no other changes."""

from __future__ import annotations

import copy
from datetime import timedelta, timezone
from typing import Any

import pytest

from plimsoll.api import codec
from plimsoll.api.quantity import Number
from plimsoll.apiserver.validation import Write, prepare
from plimsoll.apiserver.validation.write import ERRORS_MAX
from plimsoll.errors import DecodeError, InputError
from tests.unit.apiserver.validation.objects import (
    GONE,
    NOW,
    NOW_TEXT,
    allocated,
    claim,
    edit,
    pod,
    run,
    running_pod,
    slice_,
    stored,
    taint_rule,
    template,
)

# -- defaults


def test_requests_get_a_mode_and_a_count() -> None:
    given: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({}, {"allocationMode": "ExactCount", "count": 1}),
        ({"allocationMode": ""}, {"allocationMode": "ExactCount", "count": 1}),
        ({"count": 3}, {"allocationMode": "ExactCount", "count": 3}),
        ({"allocationMode": "ExactCount", "count": 0}, {"allocationMode": "ExactCount", "count": 1}),
        ({"allocationMode": "All"}, {"allocationMode": "All"}),
        ({"allocationMode": "All", "count": 0}, {"allocationMode": "All", "count": 0}),
        ({"allocationMode": "Other"}, {"allocationMode": "Other"}),
    ]
    for request, wanted in given:
        for path, tree in (
            ("spec.devices.requests", claim()),
            ("spec.spec.devices.requests", template()),
        ):
            requests = [{"exactly": request}, {"firstAvailable": [request]}]
            tree = run(edit(tree, {path: requests})).tree
            for step in path.split("."):
                tree = tree[step]
            assert tree == [{"exactly": wanted}, {"firstAvailable": [wanted]}]


def test_tolerations_get_an_operator() -> None:
    tree = edit(claim(), {"spec.devices.requests.0.exactly.tolerations": [{}, {"operator": "Exists"}]})
    (request, _) = run(tree).tree["spec"]["devices"]["requests"]
    assert request["exactly"]["tolerations"] == [{"operator": "Equal"}, {"operator": "Exists"}]
    status = edit(allocated(), {"status.allocation.devices.results.0.tolerations": [{"key": "k"}]})
    kept = run(status, stored(claim()), "status").tree["status"]["allocation"]["devices"]["results"][0]
    assert kept["tolerations"] == [{"key": "k", "operator": "Equal"}]


def test_taints_get_the_time() -> None:
    taints = [
        {"key": "a", "effect": "None"},
        {"key": "b", "effect": "None", "timeAdded": "2025-01-01T00:00:00Z"},
    ]
    tree = run(edit(slice_(), {"spec.devices.0.taints": taints})).tree
    times = [taint["timeAdded"] for taint in tree["spec"]["devices"][0]["taints"]]
    assert times == [NOW_TEXT, "2025-01-01T00:00:00Z"]


def test_mappings_get_a_multiplier() -> None:
    mappings = {"cpu": {}, "memory": {"allocationMultiplier": "1.50"}, "foo": None}
    tree = run(edit(slice_(), {"spec.devices.0.nodeAllocatableResourceMappings": mappings})).tree
    assert tree["spec"]["devices"][0]["nodeAllocatableResourceMappings"] == {
        "cpu": {"allocationMultiplier": "1"},
        "memory": {"allocationMultiplier": "1500m"},
        "foo": {"allocationMultiplier": "1"},
    }


def test_stored_objects_get_defaults_too() -> None:
    old = stored(claim())
    filled = edit(old, {"spec": run(claim()).tree["spec"]})
    assert run(filled, old).errors == ()


# -- spelling


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("40Gi", "40Gi"),
        ("1024Mi", "1Gi"),
        ("0.5", "500m"),
        ("1e3", "1e3"),
        (7, "7"),
        (1.5, "1500m"),
        (None, "0"),
        (GONE, "0"),
        ("-0", "0"),
        (" 1 ", "1"),
    ],
)
def test_quantities_have_their_stored_form(given: Any, kept: str) -> None:
    tree = edit(slice_(), {"spec.devices.0.capacity.memory": {}})
    if given is not GONE:
        tree = edit(tree, {"spec.devices.0.capacity.memory.value": given})
    assert run(tree).tree["spec"]["devices"][0]["capacity"]["memory"] == {"value": kept}


def test_null_is_absent() -> None:
    tree = edit(
        slice_(),
        {
            "metadata.labels": None,
            "spec.devices.0": {"name": "d", "attributes": {"a": {"int": 1, "bool": None}}, "taints": None},
            "spec.sharedCounters": None,
            "spec.allNodes": None,
        },
    )
    prepared = run(tree)
    assert prepared.errors == ()
    assert prepared.tree["spec"]["devices"][0] == {"name": "d", "attributes": {"a": {"int": 1}}}
    assert "labels" not in prepared.tree["metadata"]


# -- unchanged fields


def test_given_trees_are_not_modified() -> None:
    old = stored(edit(taint_rule(), {"spec.taint.timeAdded": "2025-01-01T00:00:00Z"}))
    pairs: list[tuple[Any, Any, str]] = [
        (slice_(), None, ""),
        (claim(), None, ""),
        (template(), None, ""),
        (pod(), None, ""),
        (edit(old, {"spec.taint.effect": "None"}), old, ""),
        (edit(allocated(), {"status.allocation": GONE, "status.devices": []}), allocated(), "status"),
        (running_pod(), running_pod(), "resize"),
    ]
    for tree, before, subresource in pairs:
        given, old_given = copy.deepcopy(tree), copy.deepcopy(before)
        prepared = run(tree, before, subresource, gates={"DRAConsumableCapacity": False})
        prepared.tree.setdefault("metadata", {})["labels"] = {"changed": "later"}
        prepared.tree.setdefault("status", {})["changed"] = True
        assert (tree, before) == (given, old_given)


def test_unknown_fields_are_kept() -> None:
    tree = edit(
        slice_(),
        {
            "futureTop": {"a": [1, None]},
            "metadata.future": None,
            "spec.future": "x",
            "spec.devices.0.future": {"deep": [{"er": 1.5}]},
            "spec.devices.0.attributes.model.future": Number("1e400"),
            "spec.devices.0.capacity.memory.future": 2**80,
        },
    )
    kept = run(tree).tree
    assert kept["futureTop"] == {"a": [1, None]}
    assert kept["metadata"]["future"] is None
    device = kept["spec"]["devices"][0]
    assert device["future"] == {"deep": [{"er": 1.5}]}
    assert device["attributes"]["model"]["future"] == Number("1e400")
    assert b'"future":1208925819614629174706176' in codec.encode(kept)


# -- decoding


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"spec": []}, "spec"),
        ({"spec.driver": 5}, "spec.driver"),
        ({"spec.devices": {}}, "spec.devices"),
        ({"spec.devices.0": "x"}, "spec.devices[0]"),
        ({"spec.devices.0.attributes.model": []}, "spec.devices[0].attributes[model]"),
        ({"spec.devices.0.attributes.model.int": "1"}, "spec.devices[0].attributes[model].int"),
        ({"spec.devices.0.attributes.model.int": 1.0}, "spec.devices[0].attributes[model].int"),
        ({"spec.devices.0.attributes.model.int": 2**63}, "spec.devices[0].attributes[model].int"),
        ({"spec.devices.0.attributes.model.bool": 1}, "spec.devices[0].attributes[model].bool"),
        ({"spec.devices.0.capacity.memory.value": "lots"}, "spec.devices[0].capacity[memory].value"),
        ({"spec.devices.0.capacity.memory.value": ""}, "spec.devices[0].capacity[memory].value"),
        ({"spec.devices.0.capacity.memory.value": True}, "spec.devices[0].capacity[memory].value"),
        ({"spec.devices.0.taints": [{"timeAdded": "now"}]}, "spec.devices[0].taints[0].timeAdded"),
        ({"metadata.labels": {"a": 1}}, "metadata.labels[a]"),
        ({"metadata.managedFields": [{"manager": 1}]}, "metadata.managedFields[0].manager"),
        ({"unknown": {"x": float("nan")}}, "unknown"),
        ({"unknown": {"x": object()}}, "unknown"),
        ({"unknown": {1: 2}}, "unknown"),
        ({"unknown": "\ud800"}, "unknown"),
        ({"unknown": {"\ud800": 1}}, "unknown"),
        ({"unknown": 10**5000}, "unknown"),
    ],
)
def test_wrong_types_are_decode_errors(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(DecodeError) as caught:
        run(edit(slice_(), changes))
    assert caught.value.field == field
    old = stored(edit(slice_(), changes))
    with pytest.raises(DecodeError):
        run(stored(slice_()), old)


@pytest.mark.parametrize("tree", [None, [], "x", 5, True])
def test_only_objects_are_accepted(tree: Any) -> None:
    with pytest.raises(DecodeError):
        prepare(Write("ResourceSlice", "create", tree, NOW))


def test_depth_is_limited() -> None:
    deep: Any = {}
    for _ in range(100_000):
        deep = {"a": deep}
    for path in ("unknown", "spec.devices.0.unknown"):
        with pytest.raises(DecodeError, match="nested too deeply"):
            run(edit(slice_(), {path: None}) | {"unknown": deep})
    circle: dict[str, Any] = {}
    circle["again"] = circle
    with pytest.raises(DecodeError, match="nested too deeply"):
        run(slice_() | {"unknown": circle})
    parameters = claim()
    parameters["spec"]["devices"]["config"][0]["opaque"]["parameters"] = circle
    with pytest.raises(DecodeError, match="nested too deeply"):
        run(parameters)
    # Take the tower down from the top: deallocating it all at once would go as deep as it is.
    while deep:
        deep = deep["a"]


@pytest.mark.parametrize(
    ("kind", "operation", "subresource", "old"),
    [
        ("Service", "create", "", None),
        ("ResourceClaim", "create", "status", None),
        ("ResourceSlice", "update", "status", {}),
        ("ResourceSlice", "delete", "", None),
        ("ResourceSlice", "update", "", None),
        ("ResourceSlice", "create", "", {}),
    ],
)
def test_unsupported_writes(kind: str, operation: Any, subresource: str, old: Any) -> None:
    with pytest.raises(InputError):
        prepare(Write(kind, operation, {}, NOW, old=old, subresource=subresource))


def test_the_time_of_a_write_has_a_zone() -> None:
    with pytest.raises(InputError, match="time zone"):
        prepare(Write("ResourceSlice", "create", slice_(), NOW.replace(tzinfo=None)))
    east = NOW.astimezone(timezone(timedelta(hours=5)))
    assert (
        prepare(Write("DeviceTaintRule", "create", taint_rule(), east)).tree["spec"]["taint"]["timeAdded"]
        == NOW_TEXT
    )


def test_an_empty_stored_object_is_a_stored_object() -> None:
    assert any(p.field == "metadata.resourceVersion" for p in run(slice_(), {}).errors)


def test_huge_objects_cost_little() -> None:
    devices = [{"name": "d"}] * 200_000
    assert len(run(edit(slice_(), {"spec.devices": devices})).errors) == 1
    claims = [{"name": f"c{i}"} for i in range(20_000)]
    tree = edit(pod(), {"spec.containers.0.resources.claims": claims, "spec.resourceClaims": []})
    errors = run(tree).errors
    assert len(errors) == ERRORS_MAX
    assert max(len(error.detail) for error in errors) < 200
