"""`plimsoll audit`: recorded outputs, exit codes, and the documentation of the checks."""

from __future__ import annotations

import json
import os
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from plimsoll.cli.main import main
from plimsoll.tools.audit import CHECKS, audit
from plimsoll.tools.cluster_state import Source, read_cluster_state
from tests.dumps import SHARED, USECASES, big_cluster, usecase_dump, write_dump
from tests.outputs import check_output
from tests.unit.tools.audit.build import well
from tests.unit.tools.audit.sarif_rules import check_sarif

ROOT = Path(__file__).parents[4]
BROKEN = ROOT / "examples" / "audit" / "cluster.yaml"
NOW = ("--now", "2026-11-15T01:00:00Z")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stopped:
        main(["audit", *arguments])
    out, err = capsys.readouterr()
    code = stopped.value.code
    return (code if isinstance(code, int) else 0), out, err


@pytest.fixture(autouse=True)
def in_example_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a short, constant file name, because it appears in the output."""
    monkeypatch.chdir(BROKEN.parent)


def test_findings_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "-f", "cluster.yaml", *NOW)
    assert (code, err) == (1, "")
    check_output("audit/broken.txt", out)
    assert max(map(len, out.splitlines())) <= 100
    _, wide, _ = run(capsys, "-f", "cluster.yaml", "-o", "wide", *NOW)
    assert len(wide.splitlines()) >= len(out.splitlines())
    assert "and 1 more" in out
    assert "and 1 more" not in wide


def test_findings_in_other_formats(capsys: pytest.CaptureFixture[str]) -> None:
    """`examples/audit/known.json` is the recorded JSON."""
    texts = {}
    for form in ("json", "yaml", "junit", "sarif"):
        code, texts[form], err = run(capsys, "-f", "cluster.yaml", "-o", form, *NOW)
        assert (code, err) == (1, "")
    known = json.loads((BROKEN.parent / "known.json").read_text())
    assert json.loads(texts["json"]) == yaml.safe_load(texts["yaml"]) == known
    assert ElementTree.fromstring(texts["junit"]).get("failures") == "4"
    tree = json.loads(texts["sarif"])
    check_sarif(tree)
    found = [(result["ruleId"], result["message"]["text"]) for result in tree["runs"][0]["results"]]
    assert len(found) == len(known["findings"]) == 20
    for finding, (rule, text) in zip(known["findings"], found, strict=True):
        assert finding["id"] == rule
        assert finding["message"] in text


def test_the_list_and_an_explanation(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--list")
    assert code == 0
    check_output("audit/list.txt", out)
    code, out, _ = run(capsys, "--explain", "claim-counted-twice")
    assert code == 0
    check_output("audit/explain.txt", out)


@pytest.mark.parametrize(
    ("fail_on", "code"), [("error", 0), ("warning", 1), ("info", 1), ("never", 0)], ids=str
)
def test_exit_codes(capsys: pytest.CaptureFixture[str], fail_on: str, code: int) -> None:
    arguments = ("-f", "cluster.yaml", "--only", "numa-split", "--fail-on", fail_on)
    assert run(capsys, *arguments)[0] == code


def test_a_cluster_without_findings(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = write_dump(well(), tmp_path / "dump.yaml")
    code, out, _ = run(capsys, "-f", str(path), "--fail-on", "info")
    assert code == 0
    assert out.startswith("No problems found.\n")


def test_a_baseline(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "-f", "cluster.yaml", "--baseline", "known.json", "--fail-on", "info")[0] == 0
    code, _, err = run(capsys, "-f", "cluster.yaml", "--baseline", "cluster.yaml")
    assert code == 2
    assert err.startswith("plimsoll: cluster.yaml: not valid JSON")
    assert err.count("\n") == 1


def test_one_namespace(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "-f", "cluster.yaml", "-n", "missing")[0] == 0
    _, out, _ = run(capsys, "-f", "cluster.yaml", "-n", "work", "-o", "json")
    assert {finding["subject"].split("/")[1] for finding in json.loads(out)["findings"]} == {"work"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "nonsense"], "unknown check nonsense; see plimsoll audit --list"),
        (["--explain", "PLM999"], "unknown check PLM999"),
        (["-f", "cluster.yaml", "--now", "noon"], "--now: must be a time such as"),
        (["-f", "nowhere.yaml"], "nowhere.yaml"),
    ],
)
def test_invalid_arguments(capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


# -- observed clusters


@pytest.mark.parametrize("name", USECASES)
def test_observed_use_cases(name: str) -> None:
    """Errors are found just where kube-scheduler 1.36 is known to go wrong."""
    cluster_state = read_cluster_state(Source((str(usecase_dump(name)),)))
    found = {each.id for each in audit(cluster_state).findings if each.severity.value == "error"}
    expected = {
        "preallocated-claim": {"PLM001"},
        "pool-name-clash-many": {"PLM012"},
        "validation": {"PLM013"},
    }
    assert found == expected.get(name, set())


@pytest.mark.skipif(not USECASES, reason=f"the observed use cases are not in {SHARED}")
@pytest.mark.parametrize("name", ["preallocated-claim", "pool-name-clash-many", "overcommit"])
def test_observed_use_cases_are_explained(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = usecase_dump(name)
    _, out, _ = run(capsys, "-f", str(path))
    check_output(f"audit/usecase-{name}.txt", out.replace(str(path), f"{name}.yaml"))


def test_a_big_cluster_has_no_findings(tmp_path: Path) -> None:
    path = write_dump(big_cluster(40, pods_per_node=8), tmp_path / "dump.json", "json")
    assert audit(read_cluster_state(Source((str(path),)))).findings == ()


# -- documentation


def test_the_documentation_lists_every_check() -> None:
    """The table of docs/audit.md is written from the checks by PLIMSOLL_GOLDEN=write."""
    page = ROOT / "docs" / "audit.md"
    before, _, rest = page.read_text().partition("| check | severity |")
    after = rest[rest.index("\n\n") :]
    rows = [f"| {check.id} `{check.name}` | {check.severity.value} | {check.title} |" for check in CHECKS]
    table = "\n".join(["| check | severity | a finding means |", "|---|---|---|", *rows])
    if os.environ.get("PLIMSOLL_GOLDEN") == "write":
        page.write_text(before + table + after)
    assert page.read_text() == before + table + after
