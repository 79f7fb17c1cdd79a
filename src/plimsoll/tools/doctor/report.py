"""Report of the doctor as a table or JSON. Every row is one line of printable text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from plimsoll.tools.colors import printable
from plimsoll.tools.columns import format_table
from plimsoll.tools.doctor.findings import DoctorFinding, Level
from plimsoll.tools.doctor.repairs import Repair, RepairResult

_LONGEST = 400
EXIT_OK, EXIT_PROBLEMS = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorReport:
    """Findings about a node by area; `outcomes` are the results of repairs."""

    root: str
    node: str
    owner: str
    running: bool
    findings: tuple[DoctorFinding, ...]
    outcomes: tuple[RepairResult, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 if there are no problems; 1 if there is an error, a warning or a failed repair."""
        ill = any(each.level.is_bad for each in self.findings) or any(each.problem for each in self.outcomes)
        return EXIT_PROBLEMS if ill else EXIT_OK

    @property
    def repairs(self) -> tuple[Repair, ...]:
        """Distinct repairs of all findings."""
        return tuple(dict.fromkeys(each.repair for each in self.findings if each.repair is not None))

    def count(self, level: Level) -> int:
        return sum(each.level is level for each in self.findings)

    def may(self, repair: Repair) -> bool:
        """Return whether a repair is possible now: while an agent runs if it is not exclusive, never while a
        kubelet runs.
        """
        return not self.running or (self.owner == "agent" and not repair.exclusive)


def lines(report: DoctorReport) -> Iterator[str]:
    """Yield the report as text."""
    for outcome in report.outcomes:
        what = _text(outcome.repair.what)
        yield (
            f"repaired: {what}" if not outcome.problem else f"not repaired: {what}: {_text(outcome.problem)}"
        )
    if report.outcomes:
        yield ""
    rows = [("AREA", "LEVEL", "CHECK", "SUBJECT", "FOUND")]
    last = ""
    for each in report.findings:
        area, _, check = each.id.partition(".")
        rows.append(
            (area if area != last else "", each.level.value, check, _text(each.subject), _text(each.evidence))
        )
        last = area
        if each.fix and each.level is not Level.OK:
            rows.append(("", "", "", "", f"  fix: {_text(each.fix)}"))
        if each.repair is not None:
            when = "repair" if report.may(each.repair) else "repair after stopping it"
            rows.append(("", "", "", "", f"  {when}: {_text(each.repair.what)}"))
    yield from format_table(rows)
    yield summary(report)


def summary(report: DoctorReport) -> str:
    """Return the last line."""
    nouns = {Level.ERROR: "error", Level.WARNING: "warning", Level.INFO: "note"}
    counts = [_number(report.count(level), noun) for level, noun in nouns.items()]
    text = f"{_number(len(report.findings), 'check')}: {', '.join(counts)}"
    now = sum(map(report.may, report.repairs))
    later = len(report.repairs) - now
    if now:
        text += f"; --repair fixes {now}"
    if later:
        text += f"; {later} can be repaired after the {report.owner} is stopped"
    return text


def as_json(report: DoctorReport) -> dict[str, Any]:
    """Return the report as JSON values."""
    return {
        "root": _utf8(report.root),
        "node": report.node,
        "owner": report.owner,
        "running": report.running,
        "findings": [
            {
                "id": each.id,
                "level": each.level.value,
                "subject": _utf8(each.subject),
                "evidence": _utf8(each.evidence),
                "fix": _utf8(each.fix),
                "repair": _utf8(each.repair.what) if each.repair is not None else None,
                "repairable": each.repair is not None and report.may(each.repair),
            }
            for each in report.findings
        ],
        "repairs": [
            {"what": _utf8(each.repair.what), "done": not each.problem, "problem": _utf8(each.problem)}
            for each in report.outcomes
        ],
        "summary": {level.value: report.count(level) for level in Level},
    }


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _text(text: str) -> str:
    shown = printable(text)
    return shown if len(shown) <= _LONGEST else shown[: _LONGEST - 3] + "..."


def _utf8(text: str) -> str:
    """Escape bytes of file names that are not valid UTF-8."""
    return text.encode(errors="backslashreplace").decode()
