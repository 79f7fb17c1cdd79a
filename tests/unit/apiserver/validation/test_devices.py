"""Devices: attributes, capacities and their policies, taints, counters, nodes, binding conditions."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.apiserver.validation.objects import GONE, edit, field_errors, shared_slice, slice_, stored

AT = "spec.devices[0]"
POLICY = f"{AT}.capacity[bandwidth].requestPolicy"


def _device(changes: dict[str, Any]) -> dict[str, Any]:
    return edit(slice_(), {f"spec.devices.0.{name}": value for name, value in changes.items()})


@pytest.mark.parametrize(
    ("attribute", "errors"),
    [
        ({"int": 0}, []),
        ({"bool": False}, []),
        ({"string": ""}, []),
        ({"version": "1.2.3"}, []),
        ({"ints": [1]}, []),
        ({}, [""]),
        (None, [""]),
        ({"int": 1, "bool": True}, [""]),
        ({"string": "x" * 65}, [".string TooLong"]),
        ({"version": "1"}, [".version Invalid"]),
        ({"version": "1.2.3-" + "a" * 64}, [".version TooLong"]),
        ({"version": "v" * 65}, [".version Invalid", ".version TooLong"]),
        ({"bools": []}, [".bools Invalid"]),
        ({"ints": [], "strings": []}, ["", ".ints Invalid", ".strings Invalid"]),
        ({"strings": ["a", "x" * 65]}, [".strings[1] TooLong"]),
        ({"versions": ["1.2.3", "1"]}, [".versions[1] Invalid"]),
        ({"versions": []}, [".versions Invalid"]),
    ],
)
def test_attribute(attribute: Any, errors: list[str]) -> None:
    wanted = [f"{AT}.attributes[x]{error or ' Invalid'}" for error in errors]
    assert field_errors(_device({"attributes": {"x": attribute}})) == wanted


def test_names_of_attributes_and_capacities() -> None:
    tree = _device({"attributes": {"a-b": {"int": 1}}, "capacity": {"x/": {"value": "1"}}})
    assert field_errors(tree) == [f"{AT}.attributes Invalid", f"{AT}.capacity Invalid"]
    long = "k" * 200
    assert field_errors(_device({"attributes": {long: {}}})) == [
        f"{AT}.attributes TooLong",
        f"{AT}.attributes[{'k' * 47}...{'k' * 46}] Invalid",
    ]


def test_number_of_attributes_and_capacities() -> None:
    attributes = {f"a{i}": {"int": i} for i in range(16)}
    capacity = {f"c{i}": {"value": "1"} for i in range(16)}
    assert field_errors(_device({"attributes": attributes, "capacity": capacity})) == []
    attributes["one"] = {"int": 1}
    assert field_errors(_device({"attributes": attributes, "capacity": capacity})) == [f"{AT} Invalid"]


def test_number_of_attribute_values() -> None:
    attributes: dict[str, Any] = {"a": {"ints": list(range(47))}, "b": {"int": 1}}
    assert field_errors(_device({"attributes": attributes})) == []
    attributes["c"] = {"bool": True}
    assert field_errors(_device({"attributes": attributes})) == [f"{AT} Invalid"]


def test_policies_need_sharing() -> None:
    capacity = {"memory": {"value": "1", "requestPolicy": {"default": "1"}}}
    assert field_errors(_device({"capacity": capacity})) == [f"{AT}.capacity[memory].requestPolicy Forbidden"]
    tree = _device({"capacity": capacity, "allowMultipleAllocations": False})
    assert field_errors(tree) == [f"{AT}.capacity[memory].requestPolicy Forbidden"]
    assert field_errors(_device({"capacity": capacity, "allowMultipleAllocations": True})) == []


def _values(*values: str, default: str | None = "1") -> dict[str, Any]:
    return {"validValues": list(values)} | ({} if default is None else {"default": default})


def _range(default: str | None = "2", **limits: str) -> dict[str, Any]:
    return {"validRange": limits} | ({} if default is None else {"default": default})


@pytest.mark.parametrize(
    ("policy", "errors"),
    [
        ({"default": "99"}, []),  # nothing to hold it against
        (_values("1", "2") | _range(min="1"), [" Forbidden"]),
        (_values("1", "2", default=None), [".default Required"]),
        (_range(default=None, min="1"), [".default Required"]),
        (_values("1", "10"), []),
        (_values("2", "1"), [".validValues[1] Invalid"]),
        (_values("1", "11"), [".validValues[1] Invalid"]),
        (_values("1", "1"), [".validValues[1] Duplicate"]),
        (_values("500m", "600m", "1"), []),
        (_values("500m", "0.5", "1"), [".validValues[1] Duplicate"]),
        (_values("2", "3"), [".validValues Invalid"]),
        (_values(*map(str, range(1, 12))), [".validValues Invalid", ".validValues TooMany"]),
        (
            _values(*(["2", "1"] * 6)),
            [".validValues Invalid", ".validValues TooMany"]
            + [f".validValues[{i}] Invalid" for i in (11, 1, 3, 5, 7, 9)],
        ),
        (_range(), [".validRange.min Required"]),
        (_range(min="1"), []),
        (_range(min="11", default="11"), [".validRange.min Invalid"]),
        (_range(min="3"), [".validRange.min Invalid"]),
        (_range(min="11"), [".validRange.min Invalid"] * 2),
        (_range(min="1", max="10"), []),
        (_range(min="2", max="1"), [".validRange.max Invalid"] * 2),
        (_range(min="1", max="11"), [".validRange.max Invalid"]),
        (_range(min="1", max="1"), [".validRange.max Invalid"]),
        (_range(min="1", step="1"), []),
        (_range(min="1", step="10", default="1"), [".validRange.step Invalid"]),
        (_range(min="1", step="2"), [".validRange.step Invalid"]),
        (_range(min="1", max="4", step="2", default="3"), [".validRange.step Invalid"]),
        (_range(min="1", max="4", step="2"), [".validRange.step Invalid"] * 2),
        (_range(min="500m", step="1", default="1500m"), []),
        (_range(min="500m", step="2", default="1500m"), [".validRange.step Invalid"]),
        (_range(min="200m", max="1", step="100m", default="200m"), []),
        (_range(min="200m", max="1", step="300m", default="200m"), [".validRange.step Invalid"]),
        (_range(min="1", step="1", default="1500m"), [".validRange.step Invalid"]),
        (_range(min="200u", step="1", default="1"), [".validRange.min Invalid"]),
        (_range(min="1n", max="1", default="1u"), [".validRange.default Invalid", ".validRange.min Invalid"]),
    ],
)
def test_request_policy(policy: dict[str, Any], errors: list[str]) -> None:
    on = {"DRAFractionalCapacityRange": True}
    assert field_errors(shared_slice(policy), gates=on) == [f"{POLICY}{error}" for error in errors]


@pytest.mark.parametrize(
    ("policy", "errors"),
    [
        (_values("500m", "600m", "1"), [".validValues[1] Duplicate", ".validValues[2] Duplicate"]),
        (_range(min="500m", step="1", default="1500m"), []),  # 1 and 2 once rounded up
        (_range(min="200m", max="1", step="300m", default="200m"), []),
    ],
)
def test_without_fractional_ranges_amounts_are_rounded_up(policy: dict[str, Any], errors: list[str]) -> None:
    assert field_errors(shared_slice(policy)) == [f"{POLICY}{error}" for error in errors]


@pytest.mark.parametrize(
    ("groups", "errors"),
    [
        ([], []),
        (["a", "b"], []),
        (["a", "a"], ["[1] Duplicate"]),
        (["a", "b", "c"], [" TooMany"]),
        (["A"], ["[0] Invalid"]),
    ],
)
def test_compatibility_groups(groups: list[str], errors: list[str]) -> None:
    uses = [{"counterSet": "s", "counters": {"c": {"value": "1"}}, "compatibilityGroups": groups}]
    on = {"DRADeviceCompatibilityGroups": True}
    wanted = [f"{AT}.consumesCounters[0].compatibilityGroups{error}" for error in errors]
    assert field_errors(_device({"consumesCounters": uses}), gates=on) == wanted


@pytest.mark.parametrize("step", ["0", "-1", "-1n", "0.0"])
def test_step_must_be_positive(step: str) -> None:
    assert field_errors(shared_slice(_range(min="1", max="4", step=step))) == [
        f"{POLICY}.validRange.step Invalid"
    ]


def test_min_must_not_be_negative() -> None:
    errors = field_errors(shared_slice(_range(min="-1", max="4")))
    assert errors == [f"{POLICY}.validRange.min Invalid"]


def test_a_request_policy_must_not_be_empty() -> None:
    assert field_errors(shared_slice({})) == [f"{POLICY} Required"]
    assert field_errors(shared_slice({"default": "1"})) == []


@pytest.mark.parametrize(
    ("policy", "errors"),
    [
        ({"zeroConsumption": True}, []),
        ({"zeroConsumption": True, "default": "0"}, [" Forbidden"]),
        ({"zeroConsumption": True, "validRange": {"min": "1"}}, [" Forbidden"]),
        ({"zeroConsumption": False, "default": "1"}, [".zeroConsumption Invalid"]),
        ({"zeroConsumption": False}, [" Required", ".zeroConsumption Invalid"]),
        ({"requestPolicyName": "other"}, [".requestPolicyName NotFound"]),
    ],
)
def test_zero_consumption_excludes_other_fields(policy: dict[str, Any], errors: list[str]) -> None:
    assert field_errors(shared_slice(policy)) == [f"{POLICY}{error}" for error in errors]


def _named(policies: dict[str, Any], *, shared: bool = True, **own: Any) -> list[str]:
    """Return the errors of a device with two capacities, of 10 and 4, that use the policy `steps`."""
    policy = {"requestPolicyName": "steps", **own}
    capacity = {name: {"value": value, "requestPolicy": policy} for name, value in (("a", "10"), ("b", "4"))}
    fields = {"requestPolicies": policies, "capacity": capacity, "allowMultipleAllocations": shared}
    return field_errors(_device(fields))


def test_a_named_policy_must_suit_every_capacity_that_uses_it() -> None:
    at = f"{AT}.requestPolicies"
    assert _named({"steps": _range(min="1", max="4")}) == []
    assert _named({"steps": {"zeroConsumption": True}}) == []
    assert _named({"steps": _range(min="1", max="5")}) == [f"{at}[steps].validRange.max Invalid"]
    assert _named({"steps": {}}) == [f"{at}[steps] Required"]
    assert _named({"steps": {"requestPolicyName": "steps"}}) == [f"{at}[steps].requestPolicyName Forbidden"]
    assert _named({"steps": _range(min="1"), "spare": _range(min="1")}) == [f"{at}[spare] Invalid"]
    assert _named({"steps": _range(min="1")}, default="1") == [
        f"{AT}.capacity[a].requestPolicy Forbidden",
        f"{AT}.capacity[b].requestPolicy Forbidden",
    ]
    assert f"{at} Forbidden" in _named({"steps": _range(min="1")}, shared=False)
    many = {f"p{i}": _range(min="1") for i in range(9)}
    assert f"{at} TooMany" in _named({"steps": _range(min="1"), **many})


@pytest.mark.parametrize("field", ["nodeAllocatableResourceMappings", "nativeResourceMappings"])
def test_pods_cannot_be_mapped(field: str) -> None:
    mapping = {"quantityFrom": {"perInstanceQuantity": "1"}} if field.startswith("native") else {}
    errors = field_errors(_device({field: {"pods": mapping}}))
    assert errors == [f"{AT}.{field}[pods] Invalid"]


def test_a_capacity_without_value_is_zero() -> None:
    tree = edit(shared_slice(_values("1")), {"spec.devices.0.capacity.bandwidth.value": GONE})
    assert field_errors(tree) == [f"{POLICY}.validValues[0] Invalid"]


@pytest.mark.parametrize(
    ("taint", "errors"),
    [
        ({"key": "example.com/x", "value": "y", "effect": "NoSchedule"}, []),
        ({"key": "x", "effect": "NoExecute"}, []),
        ({"key": "x", "effect": "None"}, []),
        ({"key": "", "effect": "None"}, [".key Invalid"] * 2),
        ({"key": "a b", "effect": "None"}, [".key Invalid"]),
        ({"key": "x", "value": "a b", "effect": "None"}, [".value Invalid"]),
        ({"key": "x"}, [".effect Required"]),
        ({"key": "x", "effect": "Evict"}, [".effect NotSupported"]),
    ],
)
def test_taint(taint: dict[str, Any], errors: list[str]) -> None:
    assert field_errors(_device({"taints": [taint]})) == [f"{AT}.taints[0]{error}" for error in errors]


def test_number_of_taints() -> None:
    taints = [{"key": f"k{i}", "effect": "None"} for i in range(17)]
    assert field_errors(_device({"taints": taints[:16]})) == []
    assert field_errors(_device({"taints": taints})) == [f"{AT}.taints TooMany"]


def test_unchanged_taints_are_not_validated_again() -> None:
    taints = [{"key": "k", "effect": "Evict", "timeAdded": "2025-01-01T00:00:00Z"}]
    old = stored(_device({"taints": taints}))
    assert field_errors(edit(old, {"metadata.labels": {"a": "b"}}), old) == []
    assert field_errors(edit(old, {"spec.devices.0.taints.0.value": "v"}), old) == [
        f"{AT}.taints[0].effect NotSupported"
    ]
    renamed = edit(old, {"spec.devices.0.name": "gpu-9"})
    assert field_errors(renamed, old) == [f"{AT}.taints[0].effect NotSupported"]


@pytest.mark.parametrize(
    ("consumes", "errors"),
    [
        ([{"counterSet": "a", "counters": {"m": {"value": "1"}}}], []),
        (
            [{}],
            [f"{AT}.consumesCounters[0].counterSet Required", f"{AT}.consumesCounters[0].counters Required"],
        ),
        ([{"counterSet": "A", "counters": {"m": {}}}], [f"{AT}.consumesCounters[0].counterSet Invalid"]),
        ([{"counterSet": "a", "counters": {"M": {}}}], [f"{AT}.consumesCounters[0].counters Invalid"]),
        (
            [{"counterSet": "a", "counters": {f"m{i}": {} for i in range(33)}}],
            [f"{AT}.consumesCounters[0].counters TooMany"],
        ),
        ([{"counterSet": "a", "counters": {"m": {}}}] * 2, [f"{AT}.consumesCounters[1] Duplicate"]),
        ([{"counterSet": n, "counters": {"m": {}}} for n in "abc"], [f"{AT}.consumesCounters TooMany"]),
    ],
)
def test_consumed_counters(consumes: list[Any], errors: list[str]) -> None:
    assert field_errors(_device({"consumesCounters": consumes})) == errors


NAMED = {"nodeName": "node-1"}
ALL = {"allNodes": True}


@pytest.mark.parametrize(
    ("nodes", "errors"),
    [
        (NAMED, []),
        (ALL, []),
        ({"nodeSelector": {"nodeSelectorTerms": [{}, {}]}}, []),
        ({}, [" Required"]),
        ({"nodeName": ""}, [" Required", ".nodeName Invalid"]),
        ({"nodeName": "A"}, [".nodeName Invalid"]),
        ({"allNodes": False}, [" Required", ".allNodes Invalid"]),
        (NAMED | {"allNodes": False}, [".allNodes Invalid"]),
        (NAMED | ALL, [" Invalid"]),
        ({"nodeSelector": {}}, [".nodeSelector.nodeSelectorTerms Required"]),
    ],
)
def test_nodes_of_a_device(nodes: dict[str, Any], errors: list[str]) -> None:
    tree = edit(
        slice_(),
        {
            "spec.nodeName": GONE,
            "spec.perDeviceNodeSelection": True,
            "spec.devices": [{"name": "gpu-0", **nodes}],
        },
    )
    assert field_errors(tree) == [f"{AT}{error}" for error in errors]


@pytest.mark.parametrize("nodes", [NAMED, ALL, {"allNodes": False}, {"nodeName": ""}, {"nodeSelector": {}}])
def test_nodes_of_a_device_need_per_device_selection(nodes: dict[str, Any]) -> None:
    assert field_errors(_device(nodes)) == [f"{AT} Invalid"]


@pytest.mark.parametrize(
    ("conditions", "failures", "errors"),
    [
        (["a.io/ready"], ["a.io/failed"], []),
        ([], [], []),
        (["a"], [], [".bindingFailureConditions Invalid"]),
        ([], ["a"], [".bindingConditions Invalid"]),
        (["a b"], ["f"], [".bindingConditions[0] Invalid"]),
        (
            ["a", "a"],
            ["f", "f"],
            [".bindingConditions[1] Duplicate", ".bindingFailureConditions[1] Duplicate"],
        ),
        (["a"], ["f", "a"], [".bindingFailureConditions[1] Invalid"]),
        (list("abcde"), ["f"], [".bindingConditions TooMany"]),
        (
            ["a"],
            ["f"] * 5,
            [".bindingFailureConditions TooMany"]
            + [f".bindingFailureConditions[{i}] Duplicate" for i in range(1, 5)],
        ),
    ],
)
def test_binding_conditions(conditions: list[str], failures: list[str], errors: list[str]) -> None:
    tree = _device(
        {"bindingConditions": conditions, "bindingFailureConditions": failures, "bindsToNode": True}
    )
    assert field_errors(tree) == [f"{AT}{error}" for error in errors]


MAPPINGS = f"{AT}.nodeAllocatableResourceMappings"


@pytest.mark.parametrize(
    ("name", "mapping", "errors"),
    [
        ("cpu", {}, []),
        ("cpu", None, []),
        ("hugepages-2Mi", {"allocationMultiplier": "0.5"}, []),
        ("memory", {"capacityKey": "memory"}, []),
        ("foo", {}, []),
        ("", {}, []),
        ("example.com/x", {}, [""]),
        ("cpu", {"allocationMultiplier": "0"}, [".allocationMultiplier"]),
        ("cpu", {"allocationMultiplier": "-1"}, [".allocationMultiplier"]),
        ("cpu", {"capacityKey": ""}, [".capacityKey"]),
        ("cpu", {"capacityKey": "gpu.example.com/memory"}, [".capacityKey NotFound"]),
    ],
)
def test_mapping(name: str, mapping: Any, errors: list[str]) -> None:
    tree = _device({"nodeAllocatableResourceMappings": {name: mapping}})
    wanted = [f"{MAPPINGS}[{name}]{p}" + ("" if " " in p else " Invalid") for p in errors]
    assert field_errors(tree) == wanted


@pytest.mark.parametrize("policy", ["AddPerClaim", "AddPerReference", "Max", "ConsumeFrom", ""])
def test_accounting_policy_of_a_mapping(policy: str) -> None:
    for form in (
        {"nodeAllocatableResourceMappings": {"cpu": {"accountingPolicy": policy}}},
        {
            "nodeAllocatableResources": {
                "cpu": {"mapping": {"deviceMultiplier": "1"}, "accountingPolicy": policy}
            }
        },
        {
            "nativeResourceMappings": {
                "cpu": {"quantityFrom": {"capacity": "memory"}, "accountingPolicy": policy}
            }
        },
    ):
        assert field_errors(_device(form)) == []
        ((field, resources),) = form.items()
        wrong = {field: {"cpu": {**resources["cpu"], "accountingPolicy": "Add"}}}
        assert field_errors(_device(wrong)) == [f"{AT}.{field}[cpu].accountingPolicy NotSupported"]


@pytest.mark.parametrize(
    ("name", "resource", "errors"),
    [
        ("cpu", {"mapping": {"deviceMultiplier": "2"}}, []),
        ("memory", {"mapping": {"capacityKey": "memory", "capacityMultiplier": "1"}}, []),
        ("hugepages-1Gi", {"overhead": {"perPod": "0", "perContainer": "1Gi"}}, []),
        ("ephemeral-storage", {"mapping": {"deviceMultiplier": "2"}}, [" Invalid"]),
        ("cpu", {}, [" Required"]),
        ("cpu", {"mapping": {}}, [".mapping Required"]),
        ("cpu", {"mapping": {"deviceMultiplier": "0"}}, [".mapping.deviceMultiplier Invalid"]),
        ("cpu", {"mapping": {"capacityKey": "memory"}}, [".mapping.capacityMultiplier Required"]),
        (
            "cpu",
            {"mapping": {"capacityMultiplier": "-1"}},
            [".mapping.capacityKey Required", ".mapping.capacityMultiplier Invalid"],
        ),
        (
            "cpu",
            {"mapping": {"capacityKey": "", "capacityMultiplier": "1", "deviceMultiplier": "1"}},
            [".mapping.capacityKey Invalid", ".mapping.deviceMultiplier Forbidden"],
        ),
        (
            "cpu",
            {"mapping": {"capacityKey": "x", "capacityMultiplier": "1"}},
            [".mapping.capacityKey NotFound"],
        ),
        ("cpu", {"overhead": {}}, [".overhead Required"]),
        (
            "cpu",
            {"overhead": {"perPod": "-1", "perContainer": "-1"}},
            [".overhead.perContainer Invalid", ".overhead.perPod Invalid"],
        ),
    ],
)
def test_newer_form_of_a_device(name: str, resource: Any, errors: list[str]) -> None:
    at = f"{AT}.nodeAllocatableResources[{name}]"
    tree = _device({"nodeAllocatableResources": {name: resource}})
    assert field_errors(tree) == [f"{at}{error}" for error in errors]


@pytest.mark.parametrize(
    ("name", "source", "errors"),
    [
        ("cpu", {"perInstanceQuantity": "2"}, []),
        ("memory", {"capacity": "memory"}, []),
        ("a.io/x", {"perInstanceQuantity": "2"}, [" Invalid"]),
        ("cpu", None, [".quantityFrom Required"]),
        ("cpu", {}, [".quantityFrom Required"]),
        ("cpu", {"perInstanceQuantity": "2", "capacity": "memory"}, [".quantityFrom Invalid"]),
        ("cpu", {"perInstanceQuantity": "0"}, [".quantityFrom.perInstanceQuantity Invalid"]),
        ("cpu", {"capacity": ""}, [".quantityFrom.capacity Invalid"]),
        ("cpu", {"capacity": "x"}, [".quantityFrom.capacity NotFound"]),
    ],
)
def test_draft_form_of_a_device(name: str, source: Any, errors: list[str]) -> None:
    tree = _device({"nativeResourceMappings": {name: {"quantityFrom": source}}})
    assert field_errors(tree) == [f"{AT}.nativeResourceMappings[{name}]{error}" for error in errors]


def test_a_device_uses_one_form() -> None:
    older: dict[str, Any] = {"nodeAllocatableResourceMappings": {"cpu": {}}}
    newer = {"nodeAllocatableResources": {"cpu": {"mapping": {"deviceMultiplier": "1"}}}}
    draft = {"nativeResourceMappings": {"cpu": {"quantityFrom": {"perInstanceQuantity": "1"}}}}
    for forms in (older | newer, newer | draft, older | draft, older | newer | draft):
        assert field_errors(_device(forms)) == [f"{AT} Invalid"]
    assert (
        field_errors(_device(older | {"nodeAllocatableResources": {}, "nativeResourceMappings": None})) == []
    )
    # Two devices of one slice may differ.
    assert field_errors(edit(_device(older), {"spec.devices.1": {"name": "gpu-1", **newer}})) == []
