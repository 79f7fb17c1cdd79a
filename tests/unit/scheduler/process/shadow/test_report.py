"""Report of shadow mode: bounded, restored after a restart, readable."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plimsoll.errors import ConfigError
from plimsoll.scheduler.process.shadow.comparison import ScoreDifference, ShadowComparison, ShadowOutcome
from plimsoll.scheduler.process.shadow.report import (
    MAX_DIFFERENCES,
    MAX_REASONS,
    ReportFile,
    ShadowReport,
)
from tests.outputs import check_output

START = 1_800_000_000.0
SAME = ShadowComparison(ShadowOutcome.SAME, "n1", "n1")
WORSE = ShadowComparison(
    ShadowOutcome.ELSEWHERE,
    "n2",
    "n1",
    ("score 270 on n1, 251 on n2",),
    ("NodeResourcesFit",),
    (ScoreDifference("NodeResourcesFit", 95, 70), ScoreDifference("ImageLocality", 0, 6)),
)
WAITS = ShadowComparison(
    ShadowOutcome.WAITS,
    "n1",
    "",
    ("0/2 nodes are available: 1 Insufficient cpu, 1 cannot allocate all claims.",),
    ("DynamicResources", "NodeResourcesFit"),
)


def sample() -> ShadowReport:
    report = ShadowReport(["default-scheduler"])
    report.start(START)
    for number in range(7):
        report.add(f"default/web-{number}", SAME, [], START + number)
    report.add("default/web-7", WORSE, ["other pods were being scheduled"], START + 60)
    report.add("ml/trainer", WAITS, [], START + 61)
    report.add("ml/waiting", ShadowComparison(ShadowOutcome.SOONER, "", "n1"), [], START + 62)
    return report


def test_the_text() -> None:
    report = sample()
    report.start(START + 3600)
    check_output("scheduler/shadow.txt", report.format_text())


def test_an_empty_report_has_a_text() -> None:
    report = ShadowReport(["a", "b"])
    report.start(START)
    assert report.format_text().startswith("shadow of a, b: 0 pods from 2027-01-15T08:00:00Z to ")


def test_a_report_survives_its_process(tmp_path: Path) -> None:
    path, warnings = tmp_path / "shadow.json", list[str]()
    file = ReportFile(path, warnings.append)
    file.save(sample())
    again = file.load(["default-scheduler"])
    assert again.to_tree() == sample().to_tree() == json.loads(path.read_bytes())
    assert (tmp_path / "shadow.json.txt").read_text() == sample().format_text()
    again.start(START + 3600)
    again.add("default/late", SAME, [], START + 3601)
    assert again.pods["same"] == 8
    assert again.runs == 2
    assert again.to_tree()["unobserved"] == [{"from": "2027-01-15T08:01:02Z", "to": "2027-01-15T09:00:00Z"}]
    assert not warnings


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"kind": "ShadowReport", "version": 2}', "\xff"])
def test_another_file_is_not_overwritten(tmp_path: Path, content: str) -> None:
    path = tmp_path / "other"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(ConfigError, match="is not a shadow report: use another file"):
        ReportFile(path, lambda text: None).load(["x"])


def test_a_report_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    warnings: list[str] = []
    ReportFile(tmp_path / "missing" / "report", warnings.append).save(sample())
    assert len(warnings) == 1
    assert "cannot write the report" in warnings[0]


def test_the_size_is_bounded() -> None:
    report = ShadowReport(["s"])
    report.start(START)
    for number in range(MAX_DIFFERENCES + 500):
        found = ShadowComparison(ShadowOutcome.ELSEWHERE, "a", "b", ("why",), (f"Plugin{number}",))
        report.add(f"default/p{number}", found, [], START)
    tree = report.to_tree()
    assert len(tree["differences"]) == MAX_DIFFERENCES
    assert tree["differencesNotListed"] == 500
    assert len(tree["reasons"]) <= MAX_REASONS + 1
    assert sum(each["pods"] for each in tree["reasons"]) == MAX_DIFFERENCES + 500
