"""The suite `node-allocatable` can fail, under either profile, and knows which profiles there are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import accounting_rule
from tests.conformance.__main__ import main
from tests.conformance.node_allocatable import check_under

NOTHING = {"milliCPU": 0, "memory": 0, "ephemeralStorage": 0}
LIST = [{"name": "c", "request": "x"}, {"name": "c", "request": "y"}]


def row(want: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A pod of 1 CPU whose container refers twice to a claim that charges 4, on a node of 8."""
    device = {"name": "d", "nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "4"}}}
    result = {"request": "r", "driver": "x", "pool": "p", "device": "d"}
    container = {"name": "a", "resources": {"requests": {"cpu": "1"}, "claims": LIST}}
    spec = {"containers": [container], "resourceClaims": [{"name": "c", "resourceClaimName": "c"}]}
    given = {
        "features": {"DRANodeAllocatableResources": True, "PodLevelResources": True},
        "node": {"name": "n", "allocatable": {"cpu": "8", "pods": "9"}},
        "existing_pods": [],
        "resource_slices": [
            {
                "spec": {
                    "driver": "x",
                    "nodeName": "n",
                    "pool": {"name": "p", "generation": 1},
                    "devices": [device],
                }
            }
        ],
        "claims": [{"metadata": {"name": "c", "namespace": "ns", "uid": "uid-c"}}],
        "allocations": {"c": {"devices": {"results": [result]}}},
        "pod": {"metadata": {"name": "p", "namespace": "ns", "uid": "uid-p"}, "spec": spec},
    }
    return {"id": "one", "kind": "filter", "in": given | changes, "want": want}


def wanted(containers: list[str], cpu: int = 5000) -> dict[str, Any]:
    statuses = [{"resourceClaimName": "c", "containers": containers, "resources": {"cpu": "4"}}]
    return {
        "node_requested": NOTHING,
        "claim_states": {},
        "node_resources_fit": {"code": "Success"},
        "allocator_ran": True,
        "filter": {"code": "Success"},
        "calculated_statuses": statuses,
        "pod_demand": NOTHING | {"milliCPU": cpu},
        "kubelet_admission": {"admit": True},
        "stored_statuses": statuses,
        "assumed": {
            "node_requested": NOTHING | {"milliCPU": 5000},
            "claim_states": {"ns/c": ["uid-p"]},
            "non_zero_requested": {"milliCPU": 5000, "memory": 200 << 20},
        },
        "forgotten": {"node_requested": NOTHING, "claim_states": {}},
    }


@pytest.mark.parametrize("profile", ["default", "upstream-1.36"])
def test_a_row_as_upstream_answers_passes(profile: str) -> None:
    """By default the container is listed once, and that is checked instead of upstream's list."""
    assert check_under(profile)(row(wanted(["a", "a"]))) is None


@pytest.mark.parametrize("profile", ["default", "upstream-1.36"])
def test_a_row_with_a_wrong_number_fails(profile: str) -> None:
    assert "pod_demand" in str(check_under(profile)(row(wanted(["a", "a"], cpu=5001))))
    assert "calculated_statuses" in str(check_under(profile)(row(wanted(["a"]))))


def test_the_second_computation_distinguishes_ours_from_upstream() -> None:
    given = row({})["in"]
    plain, ours = (accounting_rule.filter_outcome(given, ours=ours) for ours in (False, True))
    assert plain["stored_statuses"][0]["containers"] == ["a", "a"]
    assert ours["stored_statuses"][0]["containers"] == ["a"]
    assert accounting_rule.mismatch(plain, ours) is not None
    assert accounting_rule.mismatch(ours, ours) is None


def test_profiles_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row(wanted(["a", "a"]))))
    assert main(["node-allocatable", str(path), "--profile", "upstream-1.36"]) == 0
    assert main(["node-allocatable", str(path)]) == 0
    assert main(["node-allocatable", str(path), "--profile", "upstream-1.0"]) == 2
    assert main(["quantity", str(path), "--profile", "default"]) == 2
    assert "suite quantity has no profiles" in capsys.readouterr().err
