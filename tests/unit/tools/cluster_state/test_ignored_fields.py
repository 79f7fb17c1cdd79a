"""Mappings in mixed forms: `check` and `audit` report the fields that the server warns about."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from plimsoll.apiserver.registry.schema import check_fields, schema_for
from plimsoll.tools.audit import audit, choose_checks
from plimsoll.tools.check import check_object
from plimsoll.tools.cluster_state import Source, read_cluster_state
from tests.unit.tools.audit.build import cpus, node, slice_of

KEY = "dra.cpu/cpu"
ROOT = "spec.devices[0]"
MIXED: dict[str, tuple[str, dict[str, Any], list[str], str]] = {
    "draft in 1.36": (
        "nodeAllocatableResourceMappings",
        {"quantityFrom": {"capacity": KEY}},
        ["quantityFrom"],
        "cpu 1 per device",
    ),
    "1.37 in 1.36": (
        "nodeAllocatableResourceMappings",
        {"capacityKey": KEY, "capacityMultiplier": "2"},
        ["capacityMultiplier"],
        f"cpu 1 per unit of {KEY}",
    ),
    "1.36 in 1.37": (
        "nodeAllocatableResources",
        {"mapping": {"capacityKey": KEY, "capacityMultiplier": "2"}, "allocationMultiplier": "3"},
        ["allocationMultiplier"],
        f"cpu 2 per unit of {KEY}",
    ),
    "1.36 in the draft": (
        "nativeResourceMappings",
        {"quantityFrom": {"capacity": KEY, "allocationMultiplier": "3"}},
        ["quantityFrom.allocationMultiplier"],
        f"cpu 1 per unit of {KEY}",
    ),
}


def mixed_slice(name: str) -> dict[str, Any]:
    field, mapping, _, _ = MIXED[name]
    return slice_of(cpus(8, form="none") | {field: {"cpu": mapping}}, driver="dra.cpu")


def messages(name: str) -> list[str]:
    field, _, paths, _ = MIXED[name]
    return [f'unknown field "{ROOT}.{field}.cpu.{path}"' for path in paths]


@pytest.mark.parametrize("name", MIXED)
@pytest.mark.parametrize("form", ["json", "yaml", "manifest"])
def test_audit_reports_ignored_fields(name: str, form: str, tmp_path: Path) -> None:
    trees = [node(), mixed_slice(name)]
    if form == "manifest":  # without UIDs, defaults are applied
        for tree in trees:
            del tree["metadata"]["uid"]
    path = tmp_path / ("dump.json" if form == "json" else "dump.yaml")
    # YAML is a superset of JSON, and a leading line makes it a document of its own.
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": trees})
    path.write_text(text if form == "json" else f"---\n{text}\n")
    report = audit(read_cluster_state(Source((str(path),))), checks=choose_checks(["PLM016"]))
    assert [finding.message for finding in report.findings] == [
        f"{text} is ignored" for text in messages(name)
    ]
    assert report.findings[0].evidence == (f"device cpus charges {MIXED[name][3]}",)
    assert report.findings[0].subject == "ResourceSlice/dra.cpu-n1-1"


@pytest.mark.parametrize("name", MIXED)
def test_check_warns_as_the_server_does(name: str) -> None:
    schema = schema_for("resource.k8s.io", "v1", "ResourceSlice")
    assert schema is not None
    assert check_fields(mixed_slice(name), schema).strict_errors == messages(name)
    result = check_object(mixed_slice(name), datetime(2026, 1, 1, tzinfo=UTC))
    assert [text for text in result.warnings if "unknown field" in text] == messages(name)


def test_mappings_in_one_form_have_no_ignored_fields(tmp_path: Path) -> None:
    for form in ("1.36", "1.37"):
        tree = slice_of(cpus(8, form=form), driver="dra.cpu")
        path = tmp_path / f"{form}.json"
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [node(), tree]}))
        assert read_cluster_state(Source((str(path),))).objects.ignored_fields == {}
        assert check_object(tree, datetime(2026, 1, 1, tzinfo=UTC)).warnings == ()
