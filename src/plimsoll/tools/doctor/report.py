"""Report of the doctor as a table or JSON. Every row is one line of printable text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from plimsoll.tools.colors import Paint, printable
from plimsoll.tools.columns import format_count, format_table
from plimsoll.tools.findings import Finding, Severity

_LONGEST = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorReport:
    """Findings about a node by area."""

    root: str
    node: str
    owner: str
    running: bool
    findings: tuple[Finding, ...]

    @property
    def exit_code(self) -> int:
        """0 if there are no problems; 1 if there is an error or a warning."""
        return int(any(each.severity.reaches(Severity.WARNING) for each in self.findings))

    def count(self, severity: Severity) -> int:
        return sum(each.severity is severity for each in self.findings)

    def lines(self, paint: Paint, *, wide: bool = False) -> Iterator[str]:
        rows = [("AREA", "SEVERITY", "CHECK", "SUBJECT", "FOUND")]
        last = ""
        for each in self.findings:
            area = each.id.partition(".")[0]
            first = area if area != last else ""
            rows.append((first, each.severity.value, each.name, _short(each.subject), _short(each.message)))
            last = area
            if each.fix:
                # Not shortened: it may end with a command.
                rows.append(("", "", "", "", f"  fix: {printable(each.fix)}"))
        yield from format_table(rows)
        nouns = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
        counts = ", ".join(format_count(self.count(severity), noun) for severity, noun in nouns.items())
        yield f"{format_count(len(self.findings), 'check')}: {counts}"

    def as_json(self) -> dict[str, Any]:
        return {
            "root": self.root.encode(errors="backslashreplace").decode(),
            "node": self.node,
            "owner": self.owner,
            "running": self.running,
            "findings": [each.as_json() for each in self.findings],
            "summary": {severity.value: self.count(severity) for severity in Severity},
        }


def _short(text: str) -> str:
    shown = printable(text)
    return shown if len(shown) <= _LONGEST else shown[: _LONGEST - 3] + "..."
