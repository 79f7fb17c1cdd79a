"""Commands on single objects: sources, -n and -o, and errors."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias

import pytest
import yaml

from plimsoll.api.gates import Gates
from plimsoll.cli.main import main
from plimsoll.tools.check import check_all, read_kinds
from plimsoll.tools.cluster_state.manifests import ParsedObject
from plimsoll.tools.colors import Paint
from tests.dumps import big_cluster, write_dump

QUESTIONS = {
    "check": ["check"],
    "select": ["select", "true"],
    "allocate": ["allocate"],
    "convert": ["convert", "--form", "1.37"],
    "cgroups": ["cgroups", "--memory", "8Gi"],
}
Run: TypeAlias = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    def call(*words: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return call


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    return write_dump(big_cluster(1, devices=1, pending=2), tmp_path / "dump.json", "json")


@pytest.mark.parametrize("question", QUESTIONS)
def test_unreachable_clusters(run: Run, dump: Path, tmp_path: Path, question: str) -> None:
    words = QUESTIONS[question]
    (tmp_path / "odd").write_text("kind: Config\ncontexts: 3\n")
    for more, message in (
        ([], "no cluster configured"),
        (["--kubeconfig", tmp_path / "nowhere"], "no such file"),
        (["--kubeconfig", tmp_path / "odd"], "odd"),
        (["-f", dump, "--context", "x"], "cannot be combined"),
        (["-f", dump, "-A", "-n", "x"], "cannot be combined"),
    ):
        code, out, err = run(*words, *more)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert message in err


@pytest.mark.parametrize("question", ["check", "select", "allocate", "cgroups"])
def test_json_and_yaml_have_the_same_content(run: Run, dump: Path, question: str) -> None:
    words = [*QUESTIONS[question], "-f", dump]
    code, table, _ = run(*words)
    assert run(*words, "-o", "text") == run(*words, "-o", "table") == (code, table, "")
    assert re.sub(r"\x1b\[\d+m", "", run(*words, "--color", "always")[1]) == table
    as_json, as_yaml = run(*words, "-o", "json"), run(*words, "-o", "yaml")
    assert (as_json[0], as_yaml[0]) == (code, code)
    assert json.loads(as_json[1]) == yaml.safe_load(as_yaml[1])


def test_devices_allocated_in_other_namespaces_are_not_free(run: Run, dump: Path, tmp_path: Path) -> None:
    """The only GPU is held by a claim of `work`: -n says whose claims are tried, not what counts."""
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "mine", "namespace": "team"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}},
    }
    (tmp_path / "claim.json").write_text(json.dumps(claim))
    code, out, _ = run("allocate", "-f", dump, "-f", tmp_path / "claim.json", "-n", "team")
    assert code == 1
    assert out.startswith("team/mine: cannot be allocated on any of 1 nodes\n")
    assert "1 x already allocated: gpu.example.com/node-0000/gpu-0" in out
    assert "waiting" not in out  # of work


def test_cgroups_are_those_of_one_node(run: Run, tmp_path: Path) -> None:
    path = write_dump(big_cluster(3, pending=0), tmp_path / "three.json", "json")
    code, out, err = run("cgroups", "-f", path)
    assert (code, out) == (2, "")
    assert err == "plimsoll: select one node with --node; existing: node-0000, node-0001, node-0002\n"
    code, out, _ = run("cgroups", "-f", path, "--node", "node-0001", "-o", "json")
    assert code == 0
    pods = [pod["pod"] for pod in json.loads(out)["pods"]]
    assert pods == ["work/plain-0001-0", "work/cpu-0001-1", "work/gpu-0001-2", "work/plain-0001-3"]
    # -n shows less and counts all.
    some = json.loads(run("cgroups", "-f", path, "--node", "node-0001", "-n", "none", "-o", "json")[1])
    assert (some["pods"], some["tiers"]) == ([], json.loads(out)["tiers"])


def test_converted_documents_can_be_read_again(run: Run, dump: Path, tmp_path: Path) -> None:
    code, out, _ = run("convert", "--form", "1.37", "-f", dump, "-o", "yaml")
    assert code == 0
    _, lines, _ = run("convert", "--form", "1.37", "-f", dump)
    assert list(yaml.safe_load_all(out)) == [json.loads(line) for line in lines.splitlines()]
    (tmp_path / "again.yaml").write_text(out)
    assert run("convert", "--form", "1.37", "-f", tmp_path / "again.yaml", "-o", "yaml")[1] == out


def test_kinds_can_be_selected_by_name() -> None:
    assert read_kinds(["slices,Pods"]) == {"resourceslices": "ResourceSlice", "pods": "Pod"}
    assert read_kinds(["ResourceClaim", "resourceclaims"]) == {"resourceclaims": "ResourceClaim"}
    assert len(read_kinds([])) == 6
    assert list(read_kinds([]))[-1] == "pods"


def test_stored_objects_that_validation_rejects_are_reported() -> None:
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "team"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "g", "count": -1}}]}},
    }
    found = ParsedObject(claim, "https://c, resourceclaims")
    report = check_all([found], datetime(2026, 1, 1, tzinfo=UTC), Gates.default(), "https://c")
    assert list(report.lines()) == [
        "ResourceClaim team/c:",
        "  spec.devices.requests[0].exactly.count: must be larger than zero (got -1)",
        "1 of https://c checked: 0 valid, 1 invalid",
    ]
    assert report.as_json()[0]["where"] == "https://c, resourceclaims team/c"
    assert next(report.lines(Paint(True))) == "\x1b[31mResourceClaim team/c\x1b[0m:"
