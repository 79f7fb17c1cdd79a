"""Audit reports: text, JSON, SARIF, JUnit, and baselines."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from plimsoll.errors import InputError
from plimsoll.tools.audit import CHECKS, AuditReport, choose_checks, find_check
from plimsoll.tools.audit.baseline import read_baseline
from plimsoll.tools.audit.check_list import CheckExplanation, CheckListing
from plimsoll.tools.audit.junit import as_junit
from plimsoll.tools.audit.report import SkippedCheck
from plimsoll.tools.audit.sarif import as_sarif
from plimsoll.tools.colors import PLAIN, Paint
from plimsoll.tools.findings import Finding, Severity
from tests.unit.tools.audit.build import node, pod, report_on, well
from tests.unit.tools.audit.sarif_rules import check_sarif


def finding(id: str = "PLM001", subject: str = "Node/n1", **body: Any) -> Finding:
    check = find_check(id)
    given = {"severity": check.severity, "message": "cpu: 9 of 8", "evidence": ("a", "b"), "fix": "do"}
    return Finding(id, check.name, subject=subject, **{**given, **body})


def report(*findings: Finding, **body: Any) -> AuditReport:
    return AuditReport(tuple(findings), CHECKS, **body)


MANY = report(
    *(finding(subject=f"Node/n{number:04d}") for number in range(5000)),
    finding("PLM050", "Pod/work/p"),
    finding("PLM006", "Pod/team/p", key="c"),
    origin="dump.yaml",
    size={"node": 5000, "pod": 2},
)


# -- lines


def test_many_findings_fit_one_screen() -> None:
    lines = list(MANY.lines(PLAIN))
    assert len(lines) < 40
    assert lines[0] == "5,000 errors, 1 warning, 1 info"
    assert any("4996 more of Node: -o wide lists them" in line for line in lines)
    assert max(map(len, lines)) <= 100
    assert sum("Node/n" in line for line in MANY.lines(PLAIN, wide=True)) == 5000


def test_nothing_found() -> None:
    assert next(iter(report().lines(PLAIN))) == "No problems found."


def test_colours_do_not_change_the_text() -> None:
    painted = "\n".join(MANY.lines(Paint(color=True)))
    assert re.sub("\x1b\\[[0-9]+m", "", painted) == "\n".join(MANY.lines(PLAIN))
    assert "\x1b[31m" in painted


def test_control_characters_are_escaped() -> None:
    odd = finding(subject="Node/\x1b[31mn1", message="\x1b[2Jgone\n", evidence=("\x07bell",), fix="\x1bx")
    text = "\n".join(report(odd).lines(PLAIN, wide=True))
    assert "\x1b" not in text
    assert "\x07" not in text


def test_unchecked_parts_are_reported() -> None:
    skipped = (SkippedCheck("PLM010", "mapping-missing", "the input has no resourceslices"),)
    lines = list(report(skipped=skipped).lines(PLAIN))
    assert lines[-1] == "1 check not run: the input has no resourceslices"


# -- selection of findings


def test_findings_are_sorted_by_severity() -> None:
    trees = [node("b", pods="0"), node("a", pods="0"), pod("p", on="b"), pod("q", on="a"), *well()[1:3]]
    one, other = report_on(*trees), report_on(*reversed(trees))
    assert one.as_json()["findings"] == other.as_json()["findings"]
    ranks = [each.severity.rank for each in one.findings]
    assert ranks == sorted(ranks)


def test_severities() -> None:
    assert MANY.fails(Severity.ERROR)
    assert not report(finding("PLM006")).fails(Severity.WARNING)
    assert report(finding("PLM006")).fails(Severity.INFO)
    assert not MANY.fails(None)


def test_one_namespace() -> None:
    assert [each.subject for each in MANY.within("team").findings] == ["Pod/team/p"]


def test_checks_by_id_and_name() -> None:
    assert [check.id for check in choose_checks(["plm001", "numa-split"])] == ["PLM001", "PLM050"]
    assert len(choose_checks(skip=["PLM001"])) == len(CHECKS) - 1
    with pytest.raises(InputError, match="unknown check PLM999; see plimsoll audit --list"):
        choose_checks(["PLM999"])


def test_ids_and_names_are_unique_and_every_check_explains_itself() -> None:
    assert len({check.id for check in CHECKS}) == len({check.name for check in CHECKS}) == len(CHECKS)
    assert [check.id for check in CHECKS] == sorted(check.id for check in CHECKS)
    for check in CHECKS:
        assert len(check.explanation) > 100
        assert check.fix
        assert len(check.title) < 90
        assert max(map(len, CheckExplanation(check).lines(PLAIN))) <= 110
    assert max(map(len, CheckListing(CHECKS).lines(PLAIN))) <= 100
    assert len(list(CheckListing(CHECKS).lines(PLAIN, wide=True))) == len(CHECKS) + 1


# -- baseline


def test_a_baseline_hides_known_findings(tmp_path: Path) -> None:
    path = tmp_path / "known.json"
    old = report(finding(), finding("PLM050", "Pod/work/p"))
    path.write_text(json.dumps(old.as_json()))
    now = report(finding(message="cpu: 10 of 8"), finding(subject="Node/n2"), finding(key="memory"))
    new = now.beyond(read_baseline(path))
    assert [each.identity[1:] for each in new.findings] == [("Node/n2", ""), ("Node/n1", "memory")]
    assert len(new.known) == 1
    assert "1 finding from the baseline not shown." in list(new.lines(PLAIN))
    assert old.beyond(read_baseline(path)).fails(Severity.INFO) is False


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{", "not valid JSON"),
        ("[]", "no findings field"),
        ('{"findings": [1]}', r"findings\[0\]: must have id, subject and key"),
        ('{"findings": [{"id": "PLM001"}]}', r"findings\[0\]: must have"),
    ],
)
def test_invalid_baselines(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "known.json"
    path.write_text(text)
    with pytest.raises(InputError, match=expected):
        read_baseline(path)
    with pytest.raises(InputError, match="No such file"):
        read_baseline(tmp_path / "none.json")


# -- SARIF


def test_sarif() -> None:
    tree = as_sarif(MANY, ["my dump.yaml"])
    check_sarif(tree)
    results = tree["runs"][0]["results"]
    assert len(results) == 5002
    assert {result["level"] for result in results} == {"error", "warning", "note"}
    uri = results[0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == "my%20dump.yaml"
    marks = {result["partialFingerprints"]["plimsollFinding/v1"] for result in results}
    assert len(marks) == 5002


def test_sarif_of_a_cluster_or_of_several_files_has_no_file() -> None:
    for files in ([], ["-"], ["a", "b"]):
        tree = as_sarif(report(finding()), files)
        check_sarif(tree)
        assert "physicalLocation" not in tree["runs"][0]["results"][0]["locations"][0]


def test_sarif_with_a_baseline_and_skipped_checks() -> None:
    one = report(finding(), skipped=(SkippedCheck("PLM010", "mapping-missing", "no slices"),))
    tree = as_sarif(one.beyond([("PLM001", "Node/n1", "")]))
    check_sarif(tree)
    assert [result["baselineState"] for result in tree["runs"][0]["results"]] == ["unchanged"]
    (note,) = tree["runs"][0]["invocations"][0]["toolConfigurationNotifications"]
    assert note["descriptor"] == {"id": "PLM010"}


# -- JUnit


def test_junit() -> None:
    one = report(finding(), finding("PLM006"), skipped=(SkippedCheck("PLM099", "x", "no slices"),))
    root = ElementTree.fromstring(as_junit(one, Severity.ERROR))
    (suite,) = root
    cases = list(suite)
    assert root.tag == "testsuites"
    assert suite.get("tests") == str(len(cases)) == str(len(CHECKS) + 1)
    assert suite.get("failures") == "1"
    assert suite.get("skipped") == "1"
    failed = [case for case in cases if case.find("failure") is not None]
    assert [case.get("classname") for case in failed] == ["PLM001.node-past-line"]
    assert "cpu: 9 of 8" in (failed[0].find("failure").get("message") or "")  # type: ignore[union-attr]
    with_output = [case for case in cases if case.find("system-out") is not None]
    assert [case.get("classname") for case in with_output] == ["PLM006.charge-differs"]


def test_junit_escapes_all_names() -> None:
    odd = finding(subject="Pod/a/<&\x00\x1b\ud800\ufffe>", message='"\x0b"')
    root = ElementTree.fromstring(as_junit(report(odd), None).encode("utf-8"))
    assert root.find(".//failure") is None
    assert "Pod/a/<&????>" in [case.get("name") for case in root.iter("testcase")]
