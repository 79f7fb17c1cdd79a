"""The conformance runner itself: it can fail, and says how."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.conformance.__main__ import main

GOOD = {"id": "q-1", "op": "cmp", "in": {"a": "1", "b": "1000m"}, "want": {"cmp": 0, "equal": True}}
BAD = {"id": "q-2", "op": "cmp", "in": {"a": "1", "b": "2"}, "want": {"cmp": 0, "equal": True}}
BROKEN = {"id": "q-3", "op": "cmp", "in": {"a": "nonsense", "b": "2"}, "want": {"cmp": 0, "equal": True}}


def write(path: Path, *rows: Mapping[str, object]) -> str:
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n\n")
    return str(path)


def test_passes_and_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quantity", write(tmp_path / "a.jsonl", GOOD), write(tmp_path / "b.jsonl", GOOD)]) == 0
    assert capsys.readouterr().out == "2 passed, 0 failed\n"


def test_mismatches_and_crashes_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quantity", write(tmp_path / "a.jsonl", GOOD, BAD, BROKEN)]) == 1
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "q-2: cmp: got -1, wanted 0"
    assert out[1].startswith("q-3: raised QuantityError")
    assert out[-1] == "1 passed, 2 failed"


def test_reads_gzip_and_picks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.jsonl.gz"
    with gzip.open(path, "wt") as file:
        file.write(json.dumps(GOOD) + "\n" + json.dumps(BAD) + "\n")
    assert main(["quantity", str(path), "--name", "q-1"]) == 0
    assert main(["quantity", str(path), "--limit", "1"]) == 0
    assert main(["quantity", str(path), "--json"]) == 1
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert report["failed"] == 1
    assert report["mismatches"] == [{"name": "q-2", "text": "cmp: got -1, wanted 0"}]


def test_nothing_to_run_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quantity", write(tmp_path / "a.jsonl", GOOD), "--name", "zzz"]) == 2
    assert main(["quantity", str(tmp_path / "missing.jsonl")]) == 2
    (tmp_path / "broken.jsonl").write_text("{")
    assert main(["quantity", str(tmp_path / "broken.jsonl")]) == 2
    assert "line 1: not JSON" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["no-such-suite", "x"])


ROW = {
    "name": "a-1",
    "features": dict.fromkeys(
        (
            "DRAAdminAccess",
            "DRAConsumableCapacity",
            "DRADeviceBindingConditions",
            "DRADeviceTaints",
            "DRAListTypeAttributes",
            "DRAPartitionableDevices",
            "DRAPrioritizedList",
            "DRAResourceClaimDeviceStatus",
        ),
        True,
    ),
    "node": {"metadata": {"name": "n"}},
    "deviceClasses": [],
    "resourceSlices": [],
    "claimsToAllocate": [],
    "allocatedDevices": [],
    "allocatedSharedDevices": [],
    "consumedCapacity": [],
    "expect": {"infeasible": True},
}


def test_a_newer_outcome_wins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = write(tmp_path / "a.jsonl", ROW)
    assert main(["allocator", rows]) == 1
    assert capsys.readouterr().out.startswith("a-1: expected")
    given = write(tmp_path / "given.jsonl", {"name": "a-1", "expect": {"results": []}})
    assert main(["allocator", rows, "--diff", given]) == 0
    write(tmp_path / "v137_diff_a.jsonl", {"name": "a-1", "expect": {"results": []}})
    assert main(["allocator", rows]) == 0


#: Two NUMA nodes of two cores each.
CPUS = [
    {"cpu": cpu, "core": cpu, "socket": cpu // 2, "numa": cpu // 2, "uncore": cpu // 2} for cpu in range(4)
]
ASSIGNMENT: dict[str, object] = {
    "id": "c-1",
    "topology": CPUS,
    "available": "0-3",
    "numCPUs": 2,
    "algorithm": "packed",
    "options": {"cpuGroupSize": 1, "sortingStrategy": "packed", "preferAlignByUncore": False},
    "expect": "0-1",
}


def test_choices_of_cpus_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "not enough cpus available to satisfy request: requested=5, available=4"
    good = [
        ASSIGNMENT,
        ASSIGNMENT | {"numCPUs": 5, "expect": {"error": text}},
        ASSIGNMENT | {"algorithm": "distributed", "numCPUs": 4, "expect": {"terminates": True}},
    ]
    assert main(["cpu-assignment", write(tmp_path / "good.jsonl", *good)]) == 0
    assert main(["cpu-assignment", write(tmp_path / "bad.jsonl", ASSIGNMENT | {"expect": "2-3"})]) == 1
    assert "c-1: is '0-1', wanted '2-3'" in capsys.readouterr().out


def test_sets_of_cpus_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good: list[dict[str, object]] = [
        {"op": "parse", "input": "1,0", "expect": {"cpus": [0, 1], "size": 2, "string": "0-1"}},
        {"op": "parse", "input": "x", "expect": {"error": 'strconv.Atoi: parsing "x": invalid syntax'}},
        {"op": "format", "cpus": [1, 3, 1], "expect": "1,3"},
        {"op": "union", "a": "1", "b": "2", "expect": "1-2"},
        {"op": "intersection", "a": "1-2", "b": "2", "expect": "2"},
        {"op": "difference", "a": "1-2", "b": "2", "expect": "1"},
        {"op": "isSubsetOf", "a": "1-2", "b": "2", "expect": False},
        {"op": "equals", "a": "1-2", "b": "2,1", "expect": True},
    ]
    assert main(["cpuset", write(tmp_path / "good.jsonl", *good)]) == 0
    bad: list[dict[str, object]] = [
        {"op": "equals", "a": "1", "b": "2", "expect": True},
        {"op": "odd", "a": "", "b": "", "expect": 1},
    ]
    assert main(["cpuset", write(tmp_path / "bad.jsonl", *bad)]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "0 passed, 2 failed"
