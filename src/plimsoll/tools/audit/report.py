"""`AuditReport`: findings grouped by check, most severe first, with the first few subjects; `wide` lists
all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from plimsoll.tools.audit.findings import Check
from plimsoll.tools.colors import Paint, printable
from plimsoll.tools.columns import format_count, wrap_text
from plimsoll.tools.findings import PROBLEMS, Finding, Severity

#: Subjects per check, and lines of evidence per subject, shown by default.
SHOWN = 4
EVIDENCE_SHOWN = 4


@dataclass(frozen=True, slots=True)
class SkippedCheck:
    """Check that was not run, and why."""

    id: str
    name: str
    why: str


@dataclass(frozen=True, slots=True)
class AuditReport:
    """All findings, most severe first."""

    findings: tuple[Finding, ...] = ()
    checks: tuple[Check, ...] = ()  #: checks that were run
    skipped: tuple[SkippedCheck, ...] = ()
    origin: str = ""
    size: dict[str, int] = field(default_factory=dict)  #: numbers of examined objects
    forms: tuple[str, ...] = ()  #: wire forms of node-allocatable fields that were found
    known: tuple[Finding, ...] = ()  #: findings of the baseline

    def count(self, severity: Severity) -> int:
        return sum(finding.severity is severity for finding in self.findings)

    def fails(self, at: Severity | None) -> bool:
        """Return whether a finding has at least this severity."""
        return at is not None and any(finding.severity.reaches(at) for finding in self.findings)

    def within(self, namespace: str) -> AuditReport:
        """Return a report of the findings in a namespace."""
        kept = tuple(finding for finding in self.findings if finding.namespace == namespace)
        return replace(self, findings=kept)

    def beyond(self, baseline: Iterable[tuple[str, str, str]]) -> AuditReport:
        """Return a report of the findings that the baseline does not have."""
        known = frozenset(baseline)
        new = tuple(finding for finding in self.findings if finding.identity not in known)
        old = tuple(finding for finding in self.findings if finding.identity in known)
        return replace(self, findings=new, known=old)

    # -- JSON

    def as_json(self) -> dict[str, Any]:
        return {
            "origin": self.origin,
            "summary": {severity.value: self.count(severity) for severity in PROBLEMS},
            "examined": dict(self.size),
            "mappingForms": list(self.forms),
            "findings": [finding.as_json() for finding in self.findings],
            "known": len(self.known),
            "checks": [check.id for check in self.checks],
            "skipped": [{"id": each.id, "name": each.name, "why": each.why} for each in self.skipped],
        }

    # -- text

    def lines(self, paint: Paint, *, wide: bool = False) -> Iterator[str]:
        yield self._headline(paint)
        yield from _fill(self._format_scope(), paint, "", "  ")
        by_check: dict[str, list[Finding]] = {}
        for finding in self.findings:
            by_check.setdefault(finding.id, []).append(finding)
        titles = {check.id: check.title for check in self.checks}
        for id, findings in sorted(by_check.items(), key=lambda item: (item[1][0].severity.rank, item[0])):
            yield ""
            yield from _group(findings, titles.get(id, ""), paint, wide)
        if self.known:
            yield ""
            yield f"{format_count(len(self.known), 'finding')} from the baseline not shown."
        if self.skipped:
            yield ""
            yield from self._skipped_lines(paint, wide)

    def _skipped_lines(self, paint: Paint, wide: bool) -> Iterator[str]:
        by_reason: dict[str, list[str]] = {}
        for each in self.skipped:
            by_reason.setdefault(each.why, []).append(each.id)
        for why, ids in by_reason.items():
            which = f" ({', '.join(ids)})" if wide else ""
            yield from _fill(f"{format_count(len(ids), 'check')} not run: {why}{which}", paint, "", "  ")

    def _headline(self, paint: Paint) -> str:
        counts = [(severity, self.count(severity)) for severity in PROBLEMS]
        if not any(count for _, count in counts):
            if self.skipped:
                return "No problems found, but some checks were not run."
            return paint.green("No new problems found." if self.known else "No problems found.")
        return ", ".join(_format_severity(severity, count, paint) for severity, count in counts if count)

    def _format_scope(self) -> str:
        parts = [format_count(count, what) for what, count in self.size.items()]
        forms = f"; mapping form {' and '.join(self.forms)}" if self.forms else ""
        where = f" in {self.origin}" if self.origin else ""
        return printable(f"{len(self.checks)} checks of {', '.join(parts)}{where}{forms}")


def _group(findings: list[Finding], title: str, paint: Paint, wide: bool) -> Iterator[str]:
    """Yield the findings of one check; common parts are printed once."""
    first = findings[0]
    head = f"{first.severity.value.upper():8}{first.id} {first.name}"
    first_line, *others = _fill(f"{head}: {title}", paint, "", "        ")
    yield _color(first.severity, first_line[: len(head)], paint) + first_line[len(head) :]
    yield from others
    shown = findings if wide else findings[:SHOWN]
    fixes = {(finding.fix, finding.proven) for finding in shown}
    for finding in shown:
        mark = "" if finding.severity is first.severity else f" ({finding.severity.value})"
        yield from _fill(printable(f"{finding.subject}{mark}: {finding.message}"), paint, "  ", "    ")
        evidence = finding.evidence if wide else finding.evidence[:EVIDENCE_SHOWN]
        for line in evidence:
            yield from _fill(printable(line), paint, "    - ", "      ")
        if len(finding.evidence) > len(evidence):
            yield f"    - and {len(finding.evidence) - len(evidence)} more"
        if len(fixes) > 1 and finding.fix:
            yield from _fix_lines(finding, paint, "    ")
    if len(findings) > len(shown):
        rest = Counter(finding.subject.partition("/")[0] for finding in findings[len(shown) :])
        counts = ", ".join(f"{count} more of {kind}" for kind, count in sorted(rest.items()))
        yield paint.dim(f"  and {counts}: -o wide lists them")
    if len(fixes) == 1 and first.fix:
        yield from _fix_lines(first, paint, "  ")


def _fix_lines(finding: Finding, paint: Paint, indent: str) -> Iterator[str]:
    """Yield the fix. YAML in its further lines, and a command that does not fit, are printed unwrapped on
    their own lines, to be copied.
    """
    first, *manifest = finding.fix.split("\n")
    text = f"{finding.fix_label}: {printable(first)}"
    lines = _fill(text, paint, indent, indent + "     ")
    before, found, command = text.rpartition(": kubectl ")
    if len(lines) > 1 and found:
        yield from _fill(before + ":", paint, indent, indent + "     ")
        yield f"{indent}     kubectl {command}"
    else:
        yield from lines
    yield from (f"{indent}     {printable(line)}" for line in manifest)


def _format_severity(severity: Severity, count: int, paint: Paint) -> str:
    text = f"{count:,} info" if severity is Severity.INFO else format_count(count, severity.value)
    return _color(severity, text, paint)


def _color(severity: Severity, text: str, paint: Paint) -> str:
    colors = {Severity.ERROR: paint.red, Severity.WARNING: paint.yellow}
    return colors.get(severity, paint.blue)(text)


def _fill(text: str, paint: Paint, first: str, rest: str = "") -> list[str]:
    """Return the text wrapped to the terminal width; words stay whole, so that commands can be copied."""
    return wrap_text(text, min(paint.width, 100), rest or first, first=first)
