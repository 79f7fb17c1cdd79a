"""DeviceClass: selectors, configuration, the extended resource, accounting policies."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.apiserver.validation.objects import GONE, class_, edit, field_errors, run, stored

SELECTOR = "spec.selectors[0].cel"


@pytest.mark.parametrize(
    ("changes", "errors"),
    [
        ({}, []),
        ({"spec": GONE}, []),
        ({"spec.selectors": [{}]}, [f"{SELECTOR} Required"]),
        ({"spec.selectors": [{}] * 33}, ["spec.selectors TooMany"]),
        ({"spec.selectors.0.cel.expression": "device.nothing"}, [f"{SELECTOR}.expression Invalid"]),
        ({"spec.config": [{}]}, ["spec.config[0].opaque Required"]),
        ({"spec.config": [{}] * 33}, ["spec.config TooMany"]),
        ({"spec.config.0.opaque.parameters": []}, ["spec.config[0].opaque.parameters Invalid"]),
        ({"spec.extendedResourceName": "cpu"}, ["spec.extendedResourceName Invalid"]),
        ({"spec.extendedResourceName": ""}, ["spec.extendedResourceName Invalid"]),
        ({"spec.extendedResourceName": "kubernetes.io/gpu"}, ["spec.extendedResourceName Invalid"]),
        ({"spec.extendedResourceName": GONE}, []),
    ],
)
def test_new_class(changes: dict[str, Any], errors: list[str]) -> None:
    assert field_errors(edit(class_(), changes)) == errors


def test_a_class_may_change() -> None:
    old = stored(class_(), generation=4)
    new = edit(old, {"spec.selectors": [], "spec.extendedResourceName": "example.com/other"})
    prepared = run(new, old)
    assert prepared.errors == ()
    assert prepared.tree["metadata"]["generation"] == 5
    assert run(class_()).tree["metadata"]["generation"] == 1


def test_changes_are_counted_after_dropping() -> None:
    old = stored(edit(class_(), {"spec.extendedResourceName": GONE}), generation=4)
    new = edit(old, {"spec.extendedResourceName": "example.com/gpu"})
    prepared = run(new, old, gates={"DRAExtendedResource": False})
    assert prepared.tree["metadata"]["generation"] == 4
    assert "extendedResourceName" not in prepared.tree["spec"]


def test_unchanged_selectors_keep_their_cel_version() -> None:
    newer = {"spec.selectors.0.cel.expression": "device.allowMultipleAllocations"}
    off = {"DRAConsumableCapacity": False}
    old = stored(edit(class_(), newer))
    assert field_errors(edit(class_(), newer), gates=off) == [f"{SELECTOR}.expression Invalid"]
    assert field_errors(edit(old, {"metadata.labels": {"a": "b"}}), old, gates=off) == []
    more = edit(old, {"spec.selectors": [*old["spec"]["selectors"], {"cel": {"expression": "true"}}]})
    assert field_errors(more, old, gates=off) == [f"{SELECTOR}.expression Invalid"]


def test_unchanged_configuration_may_be_larger_than_the_limit() -> None:
    old = stored(edit(class_(), {"spec.config.0.opaque.parameters": {"a": "x" * 20_000}}))
    assert field_errors(edit(old, {"metadata.labels": {"a": "b"}}), old) == []
    changed = edit(old, {"spec.config.0.opaque.driver": "other.example.com"})
    assert field_errors(changed, old) == ["spec.config[0].opaque.parameters TooLong"]
    stale = stored(edit(class_(), {"spec.config.0.opaque.parameters": []}))
    assert field_errors(stale, stale) == ["spec.config[0].opaque.parameters Invalid"]


@pytest.mark.parametrize(
    "field", ["nodeAllocatableResourceAccountingPolicies", "nativeResourceAccountingPolicies"]
)
def test_accounting_policies_of_a_class(field: str) -> None:
    def policies(given: dict[str, str]) -> list[str]:
        return field_errors(edit(class_(), {f"spec.{field}": given}))

    assert policies({"cpu": "AddPerClaim", "memory": "Max", "hugepages-2Mi": "ConsumeFrom"}) == []
    assert policies({"cpu": "AddPerReference", "example.com/x": "Max"}) == [
        f"spec.{field}[example.com/x] Invalid"
    ]
    assert policies({"cpu": "Add"}) == [f"spec.{field}[cpu] NotSupported"]
    assert policies({"cpu": ""}) == [f"spec.{field}[cpu] NotSupported"]


def test_a_class_uses_one_policy_field() -> None:
    both = {
        "spec.nodeAllocatableResourceAccountingPolicies": {"cpu": "Max"},
        "spec.nativeResourceAccountingPolicies": {"cpu": "Max"},
        "spec.managesNodeAllocatableResources": True,
        "spec.managesNativeResources": True,
    }
    assert field_errors(edit(class_(), both)) == [
        "spec.managesNativeResources Invalid",
        "spec.nativeResourceAccountingPolicies Invalid",
    ]
    assert field_errors(edit(class_(), {"spec.managesNativeResources": True})) == []
    assert field_errors(edit(class_(), {"spec.managesNodeAllocatableResources": False})) == []
