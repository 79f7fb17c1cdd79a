"""Fields of disabled gates: dropped, unless the stored object already uses the feature."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.apiserver.validation.disabled_fields import GATED_FIELDS
from plimsoll.apiserver.validation.object_trees import (
    find_fields,
    has_any_steps,
    has_steps,
    merge_steps,
    split_path,
)
from tests.unit.apiserver.validation.objects import (
    GONE,
    SHARE,
    allocated,
    claim,
    class_,
    edit,
    field_errors,
    pod,
    result,
    run,
    running_pod,
    slice_,
    stored,
    template,
)

COUNTED = {"counterSet": "s", "counters": {"c": {"value": "1"}}}


def _has(tree: Any, path: str) -> bool:
    return any(True for _ in find_fields(tree, path))


#: Gate, field, a value for it, and where it sits in a slice.
SLICE_FIELDS = [
    ("DRADeviceTaints", "spec.devices.0.taints", [{"key": "k", "effect": "None"}]),
    ("DRAPartitionableDevices", "spec.sharedCounters", [{"name": "s", "counters": {"c": {"value": "1"}}}]),
    ("DRAPartitionableDevices", "spec.perDeviceNodeSelection", False),
    ("DRAPartitionableDevices", "spec.devices.0.consumesCounters", [COUNTED]),
    ("DRAPartitionableDevices", "spec.devices.0.nodeName", ""),
    ("DRAPartitionableDevices", "spec.devices.0.nodeSelector", {}),
    ("DRAPartitionableDevices", "spec.devices.0.allNodes", False),
    ("DRADeviceBindingConditions", "spec.devices.0.bindsToNode", False),
    ("DRADeviceBindingConditions", "spec.devices.0.bindingConditions", ["a"]),
    ("DRADeviceBindingConditions", "spec.devices.0.bindingFailureConditions", ["a"]),
    ("DRAResourceClaimDeviceStatus", "spec.devices.0.bindsToNode", True),
    ("DRAConsumableCapacity", "spec.devices.0.allowMultipleAllocations", False),
    ("DRAConsumableCapacity", "spec.devices.0.capacity.memory.requestPolicy", {}),
    ("DRANodeAllocatableResources", "spec.devices.0.nodeAllocatableResourceMappings", {"cpu": {}}),
    ("DRAListTypeAttributes", "spec.devices.0.attributes.model.ints", []),
    ("DRAListTypeAttributes", "spec.devices.0.attributes.model.bools", [True]),
    ("DRAListTypeAttributes", "spec.devices.0.attributes.model.strings", ["x"]),
    ("DRAListTypeAttributes", "spec.devices.0.attributes.model.versions", ["1.2.3"]),
    (
        "DRADeviceCompatibilityGroups",
        "spec.devices.0.consumesCounters",
        [{**COUNTED, "compatibilityGroups": ["a"]}],
    ),
    ("DRAPartitionableDevicesType", "spec.partitionTypeAttribute", "gpu.example.com/model"),
    ("DRAOptionalNodeOperations", "spec.skipNodeOperations", ["*"]),
]

REQUEST = "spec.devices.requests.0.exactly"
OTHER = "spec.devices.requests.1.firstAvailable.0"
CLAIM_FIELDS = [
    ("DRADeviceTaints", f"{REQUEST}.tolerations", [{"operator": "Exists"}]),
    ("DRADeviceTaints", f"{OTHER}.tolerations", [{"operator": "Exists"}]),
    ("DRAPrioritizedList", "spec.devices.requests.1.firstAvailable", [{"name": "x", "deviceClassName": "c"}]),
    ("DRAAdminAccess", f"{REQUEST}.adminAccess", False),
    ("DRAConsumableCapacity", f"{REQUEST}.capacity", {}),
    ("DRAConsumableCapacity", f"{OTHER}.capacity", {"requests": {"m": "1"}}),
    ("DRAConsumableCapacity", "spec.devices.constraints.0.distinctAttribute", "a.io/x"),
    ("DRADerivedAttributes", f"{REQUEST}.derivedAttributes", [{"name": "a.io/x", "expression": "1"}]),
    ("DRADerivedAttributes", f"{OTHER}.derivedAttributes", [{"name": "a.io/x", "expression": "1"}]),
]

RESULT = "status.allocation.devices.results.0"
STATUS_FIELDS = [
    (
        "DRAResourceClaimDeviceStatus",
        "status.devices",
        [{"driver": "gpu.example.com", "pool": "node-1", "device": "gpu-0"}],
    ),
    ("DRAAdminAccess", f"{RESULT}.adminAccess", False),
    ("DRAConsumableCapacity", f"{RESULT}.shareID", SHARE),
    ("DRAConsumableCapacity", f"{RESULT}.consumedCapacity", {}),
    ("DRADeviceBindingConditions", f"{RESULT}.bindingConditions", []),
    ("DRADeviceBindingConditions", f"{RESULT}.bindingFailureConditions", ["x"]),
    ("DRAOptionalNodeOperations", f"{RESULT}.skipNodeOperations", ["*"]),
]

POD_FIELDS = [
    ("DRAExtendedResource", "status.extendedResourceClaimStatus", {"resourceClaimName": "x"}),
    (
        "DRANodeAllocatableResources",
        "status.nodeAllocatableResourceClaimStatuses",
        [{"resourceClaimName": "two-gpus", "containers": ["main"], "resources": {"cpu": "4"}}],
    ),
]


def _check(bare: Any, field: tuple[str, str, Any], subresource: str = "") -> None:
    """Check one field. Gate disabled: dropped, kept if in use. Gate enabled: kept."""
    gate, path, value = field
    tree = edit(bare, {path: value})
    written = _written(path)
    if gate == "DRADeviceCompatibilityGroups":
        written += "[].compatibilityGroups"
    off = {gate: False}
    old = None if subresource == "" and "resourceVersion" not in bare["metadata"] else bare
    assert not _has(run(tree, old, subresource, gates=off).tree, written)
    assert _has(run(tree, old, subresource, gates={gate: True}).tree, written)
    before = stored(tree)
    assert _has(run(stored(tree), before, subresource, gates=off).tree, written)


def _written(path: str) -> str:
    """Convert `spec.devices.0.taints` to the form of `find_fields`: `spec.devices[].taints`."""
    for typed, written in ((".0", "[]"), (".1", "[]"), (".model.", "{}."), (".memory.", "{}.")):
        path = path.replace(typed, written)
    return path


@pytest.mark.parametrize("field", SLICE_FIELDS, ids=lambda field: f"{field[0]} {field[1]}")
def test_slice(field: tuple[str, str, Any]) -> None:
    _check(slice_(), field)


@pytest.mark.parametrize("field", CLAIM_FIELDS, ids=lambda field: f"{field[0]} {field[1]}")
def test_claim_and_template(field: tuple[str, str, Any]) -> None:
    bare = claim()
    if field[0] == "DRAPrioritizedList":
        bare = edit(bare, {"spec.devices.requests.1.firstAvailable": []})
    _check(bare, field)
    gate, path, value = field
    _check(edit(template(), {"spec.spec": bare["spec"]}), (gate, f"spec.{path}", value))


@pytest.mark.parametrize("field", STATUS_FIELDS, ids=lambda field: f"{field[0]} {field[1]}")
def test_claim_status(field: tuple[str, str, Any]) -> None:
    _check(allocated(), field, "status")


@pytest.mark.parametrize("field", POD_FIELDS, ids=lambda field: f"{field[0]} {field[1]}")
def test_pod_status(field: tuple[str, str, Any]) -> None:
    _check(running_pod(), field, "status")


def test_one_use_anywhere_keeps_all_fields_of_the_feature() -> None:
    off = {"DRAConsumableCapacity": False}
    old = stored(edit(slice_(), {"spec.devices.1.allowMultipleAllocations": True}))
    new = edit(
        old,
        {"spec.devices.0.allowMultipleAllocations": True, "spec.devices.1.allowMultipleAllocations": GONE},
    )
    assert run(new, old, gates=off).tree["spec"]["devices"][0]["allowMultipleAllocations"] is True


def test_empty_lists_and_maps_do_not_count_as_use() -> None:
    empty: list[tuple[str, str, Any, Any]] = [
        ("DRADeviceTaints", "taints", [], [{"key": "k", "effect": "None"}]),
        ("DRAPartitionableDevices", "consumesCounters", [], [COUNTED]),
        ("DRADeviceBindingConditions", "bindingConditions", [], ["a"]),
        ("DRANodeAllocatableResources", "nodeAllocatableResourceMappings", {}, {"cpu": {}}),
    ]
    for gate, name, nothing, something in empty:
        old = stored(edit(slice_(), {f"spec.devices.0.{name}": nothing}))
        new = edit(old, {f"spec.devices.0.{name}": something})
        assert name not in run(new, old, gates={gate: False}).tree["spec"]["devices"][0]


def test_use_in_the_spec_keeps_the_status_of_a_claim() -> None:
    for gate, field, used in (
        ("DRAConsumableCapacity", {"shareID": SHARE}, {f"{REQUEST}.capacity": {}}),
        (
            "DRAConsumableCapacity",
            {"shareID": SHARE},
            {"spec.devices.constraints.0.distinctAttribute": "a.io/x"},
        ),
        ("DRAAdminAccess", {"adminAccess": False}, {f"{REQUEST}.adminAccess": False}),
    ):
        old = edit(stored(claim()), used)
        new = edit(old, {"status": {"allocation": {"devices": {"results": [result(**field)]}}}})
        (name,) = field
        assert (
            name
            in run(new, old, "status", gates={gate: False}).tree["status"]["allocation"]["devices"][
                "results"
            ][0]
        )


def test_dropped_shares_of_reports() -> None:
    device = {"driver": "gpu.example.com", "pool": "node-1", "device": "gpu-0", "shareID": SHARE}
    new = allocated(result(shareID=SHARE), devices=[device])
    prepared = run(new, stored(claim()), "status", gates={"DRAConsumableCapacity": False})
    assert prepared.errors == ()  # without its share the report is about the device
    assert "shareID" not in prepared.tree["status"]["devices"][0]


def test_remaining_fields_are_validated_after_dropping() -> None:
    alternatives = edit(claim(), {"spec.devices.config": [], "spec.devices.constraints": []})
    assert field_errors(alternatives, gates={"DRAPrioritizedList": False}) == [
        "spec.devices.requests[1] Required"
    ]
    lists = edit(slice_(), {"spec.devices.0.attributes": {"a": {"ints": [1]}}})
    assert field_errors(lists, gates={"DRAListTypeAttributes": False}) == [
        "spec.devices[0].attributes[a] Invalid"
    ]


def test_claims_of_pods_follow_dynamic_resource_allocation() -> None:
    off = {"DynamicResourceAllocation": False}
    tree = run(pod(), gates=off).tree
    assert "resourceClaims" not in tree["spec"]
    assert "claims" not in tree["spec"]["containers"][0]["resources"]
    assert "claims" not in tree["spec"]["initContainers"][0]["resources"]
    old = running_pod()
    assert run(old, old, "status", gates=off).tree == old
    bare = edit(
        stored(pod()), {"spec.resourceClaims": [], "status": {"resourceClaimStatuses": [{"name": "x"}]}}
    )
    assert "resourceClaimStatuses" not in run(bare, bare, "status", gates=off).tree["status"]


def test_extended_resource_of_a_class() -> None:
    off = {"DRAExtendedResource": False}
    assert "extendedResourceName" not in run(class_(), gates=off).tree["spec"]
    old = stored(class_())
    assert "extendedResourceName" in run(old, old, gates=off).tree["spec"]


FORMS = {
    "nodeAllocatableResourceMappings": {"cpu": {}},
    "nodeAllocatableResources": {"cpu": {"mapping": {"deviceMultiplier": "1"}}},
    "nativeResourceMappings": {"cpu": {"quantityFrom": {"perInstanceQuantity": "1"}}},
}
CHARGES = {
    "nodeAllocatableResourceClaimStatuses": [{"resourceClaimName": "two-gpus", "mapping": []}],
    "nativeResourceClaimStatus": [{"claimInfo": {"name": "two-gpus"}}],
}


def test_node_allocatable_gate_controls_every_form() -> None:
    for name, value in FORMS.items():
        for gate in ("DRANodeAllocatableResources", "DRANativeResources"):
            new = edit(slice_(), {f"spec.devices.0.{name}": value})
            assert name not in run(new, gates={gate: False}).tree["spec"]["devices"][0]
        # Use in any form keeps them all.
        for older, used in FORMS.items():
            old = stored(edit(slice_(), {f"spec.devices.1.{older}": used}))
            new = edit(old, {f"spec.devices.0.{name}": value})
            assert name in run(new, old, gates={"DRANativeResources": False}).tree["spec"]["devices"][0]
    for name, charge in CHARGES.items():
        old = running_pod()
        new = edit(old, {f"status.{name}": charge})
        assert name not in run(new, old, "status", gates={"DRANativeResources": False}).tree["status"]
        assert name in run(new, new, "status", gates={"DRANativeResources": False}).tree["status"]


def test_class_policies_follow_the_gate() -> None:
    fields: dict[str, Any] = {
        "nodeAllocatableResourceAccountingPolicies": {"cpu": "Max"},
        "nativeResourceAccountingPolicies": {"cpu": "Max"},
        "managesNodeAllocatableResources": False,
        "managesNativeResources": True,
    }
    off = {"DRANodeAllocatableResources": False}
    for name, value in fields.items():
        new = edit(class_(), {f"spec.{name}": value})
        assert name in run(new).tree["spec"]
        assert name not in run(new, gates=off).tree["spec"]
        assert name in run(stored(new), stored(new), gates=off).tree["spec"]


PATHS = sorted(
    {path for features in GATED_FIELDS.values() for feature in features for path in feature.fields}
)


def grow(steps: list[str], data: st.DataObject) -> Any:
    """Draw a tree that has a part of a path."""
    if not steps or not data.draw(st.integers(0, 5)):
        return data.draw(st.sampled_from([{}, {"x": 1}, "x", None]))
    name = steps[0].rstrip("[]{}")
    into = steps[0][len(name) :]
    count = data.draw(st.integers(0, 2))
    if into == "[]":
        return {name: [grow(steps[1:], data) for _ in range(count)]}
    if into:
        return {name: {str(number): grow(steps[1:], data) for number in range(count)}}
    return {name: grow(steps[1:], data)}


@given(st.sampled_from(PATHS), st.data())
def test_a_field_is_held_where_it_is_found(path: str, data: st.DataObject) -> None:
    """`has_steps` agrees with `find_fields` for any part of the path."""
    tree = grow(path.split("."), data)
    assert has_steps(tree, split_path(path)) == any(True for _ in find_fields(tree, path))


@given(st.sampled_from(sorted(GATED_FIELDS)), st.data())
def test_all_paths_of_a_kind_are_looked_up_at_once(endpoint: tuple[str, str], data: st.DataObject) -> None:
    paths = st.sampled_from([path for feature in GATED_FIELDS[endpoint] for path in feature.fields])
    tree = grow(data.draw(paths).split("."), data)
    steps = [split_path(path) for path in data.draw(st.lists(paths))]
    assert has_any_steps(tree, merge_steps(steps)) == any(has_steps(tree, each) for each in steps)


def test_of_paths_that_begin_with_another_the_shorter_one_counts() -> None:
    for paths in (["a.b", "a.b.c"], ["a.b.c", "a.b"]):
        merged = merge_steps(map(split_path, paths))
        assert has_any_steps({"a": {"b": {}}}, merged)
        assert not has_any_steps({"a": {"c": {}}}, merged)
