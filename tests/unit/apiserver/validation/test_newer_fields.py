"""Fields of Kubernetes 1.37: derived attributes, skipped node operations, partition types."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.apiserver.validation.objects import allocated, claim, edit, field_errors, result, run, slice_

REQUEST = "spec.devices.requests.0.exactly"
AT = "spec.devices.requests[0].exactly.derivedAttributes"
DERIVED = {"DRADerivedAttributes": True}
TYPE = "devices[0].attributes[gpu.example.com/"
COUNTED = {"counterSet": "s", "counters": {"c": {"value": "1"}}}


def _claim(*derived: dict[str, str], constraint: str = "derived/x") -> dict[str, Any]:
    constraints = [{"matchAttribute": constraint}]
    return edit(
        claim(), {f"{REQUEST}.derivedAttributes": list(derived), "spec.devices.constraints": constraints}
    )


def _derived(name: str = "derived/x", expression: str = "1") -> dict[str, str]:
    return {"name": name, "expression": expression}


@pytest.mark.parametrize(
    ("derived", "errors"),
    [
        ([_derived()], []),
        ([_derived(expression='device.attributes["a.io"].x')], []),
        ([_derived(expression="[1, 2]")], []),
        ([_derived(expression="1.5")], ["[0].expression Invalid"]),
        ([_derived(expression="{}")], ["[0].expression Invalid"]),
        ([_derived(expression="device.nothing")], ["[0].expression Invalid"]),
        ([_derived(expression="")], ["[0].expression Required"]),
        ([_derived(expression=" " * 10241)], ["[0].expression TooLong"]),
        ([_derived(), _derived()], ["[1] Duplicate"]),
        ([_derived("derived/y")], ["[0].name Invalid"]),  # no constraint compares it
        ([_derived("")], ["[0].name Required"]),
        ([_derived("x")], ["[0].name Invalid"] * 2),
    ],
)
def test_derived_attributes(derived: list[dict[str, str]], errors: list[str]) -> None:
    assert field_errors(_claim(*derived), gates=DERIVED) == [AT + error for error in errors]


def test_lists_need_list_attributes() -> None:
    gates = {**DERIVED, "DRAListTypeAttributes": False}
    assert field_errors(_claim(_derived(expression="[1]")), gates=gates) == [f"{AT}[0].expression Invalid"]


@pytest.mark.parametrize(
    ("requests", "is_valid"), [([], True), (["gpus"], True), (["backup"], False), (["backup/big"], False)]
)
def test_a_constraint_of_the_request_must_compare_the_attribute(requests: list[str], is_valid: bool) -> None:
    tree = _claim(_derived())
    tree["spec"]["devices"]["requests"][0]["name"] = "gpus"
    second = {"name": "big", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    tree["spec"]["devices"]["requests"][1] = {"name": "backup", "firstAvailable": [second]}
    tree["spec"]["devices"]["config"] = []
    tree["spec"]["devices"]["constraints"][0]["requests"] = requests
    assert field_errors(tree, gates=DERIVED) == ([] if is_valid else [f"{AT}[0].name Invalid"])


def test_derived_attributes_of_a_claim_have_one_cost_limit() -> None:
    attributes = 'device.attributes["a.io"]'
    text = f"{attributes}.all(x, {attributes}.all(y, {attributes}.all(z, x + y != z)))"
    single = _claim(_derived(expression=text))
    assert field_errors(single, gates=DERIVED) == []
    names = ["derived/x", "derived/y"]
    tree = _claim(*(_derived(name, text) for name in names))
    tree["spec"]["devices"]["constraints"] = [{"matchAttribute": name} for name in names]
    (error,) = run(tree, gates=DERIVED).errors
    assert "its derived attributes may cost" in str(error)


@pytest.mark.parametrize(
    ("operations", "errors"),
    [
        (["*"], []),
        (["NodeUnprepareResources"], []),
        (["NodePrepareResources", "NodeUnprepareResources"], []),
        (["NodePrepareResources", "*"], []),
        (["NodePrepareResources"], [" Invalid"]),
        (["*", "*"], ["[1] Duplicate"]),
        (["Other"], ["[0] NotSupported"]),
    ],
)
def test_skipped_node_operations(operations: list[str], errors: list[str]) -> None:
    on = {"DRAOptionalNodeOperations": True}
    tree = edit(slice_(), {"spec.skipNodeOperations": operations})
    assert field_errors(tree, gates=on) == [f"spec.skipNodeOperations{error}" for error in errors]
    new = allocated(result(skipNodeOperations=operations))
    at = "status.allocation.devices.results[0].skipNodeOperations"
    before = edit(new, {"status": {}})
    assert field_errors(new, before, "status", gates=on) == [f"{at}{error}" for error in errors]


@pytest.mark.parametrize(
    ("changes", "errors"),
    [
        ({}, []),
        (
            {"spec.partitionTypeAttribute": "gpu.example.com/none"},
            [f"{TYPE}none] Required"],
        ),
        ({"spec.partitionTypeAttribute": "model"}, ["partitionTypeAttribute Invalid"]),
        (
            {"spec.devices.0.attributes.model": {"int": 1}},
            [f"{TYPE}model] Invalid"],
        ),
        ({"spec.devices.0.consumesCounters": []}, ["partitionTypeAttribute Invalid"]),
    ],
)
def test_partition_types(changes: dict[str, Any], errors: list[str]) -> None:
    tree = edit(
        slice_(),
        {
            "spec.partitionTypeAttribute": "gpu.example.com/model",
            "spec.devices.0.attributes": {"model": {"string": "full"}},
            "spec.devices.0.consumesCounters": [COUNTED],
            **changes,
        },
    )
    tree["spec"]["devices"] = tree["spec"]["devices"][:1]
    on = {"DRAPartitionableDevicesType": True}
    assert field_errors(tree, gates=on) == [f"spec.{error}" for error in errors]
