"""`Check` and `CheckProblem`: a check with a stable ID, and what it reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from plimsoll.tools.findings import Finding, Severity

if TYPE_CHECKING:
    from plimsoll.tools.audit.facts import AuditFacts


#: Lines of evidence of one kind, and names in one line.
MAX_LISTED = 6


@dataclass(frozen=True, slots=True)
class CheckProblem:
    """Problem that a check reports about one subject; unset fields default to those of the check."""

    subject: str  #: `Node/n1`, `Pod/namespace/name`, `Device/driver/pool/device`
    message: str
    evidence: tuple[str, ...] = ()
    fix: str = ""
    key: str = ""  #: distinguishes findings of one check about one subject
    severity: Severity | None = None
    proven: bool = False  #: the fix was tried in memory; others are hints


@dataclass(frozen=True, slots=True)
class Check:
    """One check."""

    id: str  #: such as `PLM001`; never reused for another check
    name: str
    severity: Severity  #: of most of its findings
    title: str  #: meaning of a finding, in one line
    explanation: str  #: causes and consequences
    fix: str
    run: Callable[[AuditFacts], Iterator[CheckProblem]]
    #: Plural names of the kinds that the check needs.
    needs: tuple[str, ...] = ()

    def has_name(self, name: str) -> bool:
        return name.lower() in (self.id.lower(), self.name)


def make_finding(check: Check, problem: CheckProblem) -> Finding:
    """Combine a check and its problem into a finding."""
    return Finding(
        check.id,
        check.name,
        problem.severity or check.severity,
        problem.subject,
        problem.message,
        problem.evidence,
        problem.fix or check.fix,
        problem.key,
        problem.proven and bool(problem.fix),
    )


def list_first(lines: Iterable[str], what: str = "") -> tuple[str, ...]:
    """Return the first lines of evidence, and the number of the rest."""
    shown = [*lines]
    more = len(shown) - MAX_LISTED
    return (*shown[:MAX_LISTED], *([f"and {more} more{what}"] if more > 0 else []))


def finding_order(finding: Finding) -> tuple[object, ...]:
    """Return the sort key: most severe first, then by subject."""
    return finding.severity.rank, finding.subject, finding.id, finding.key, finding.message
