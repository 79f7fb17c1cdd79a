"""`Check`, `CheckProblem` and `AuditFinding`: a check with a stable ID, and what it reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from plimsoll.api.kinds import is_namespaced

if TYPE_CHECKING:
    from plimsoll.tools.audit.facts import AuditFacts


class AuditSeverity(StrEnum):
    """Severity of a finding."""

    ERROR = "error"  #: double allocation or overcommit, or cannot work
    WARNING = "warning"  #: wrong now, or as soon as load increases
    INFO = "info"  #: worth knowing

    @property
    def rank(self) -> int:
        """Sort rank; 0 is the most severe."""
        return _ORDER.index(self)

    def reaches(self, other: AuditSeverity) -> bool:
        """Return whether this is at least as severe as another."""
        return self.rank <= other.rank


_ORDER = (AuditSeverity.ERROR, AuditSeverity.WARNING, AuditSeverity.INFO)


@dataclass(frozen=True, slots=True)
class CheckProblem:
    """Problem that a check reports about one subject; unset fields default to those of the check."""

    subject: str  #: `Node/n1`, `Pod/namespace/name`, `Device/driver/pool/device`
    message: str
    evidence: tuple[str, ...] = ()
    fix: str = ""
    key: str = ""  #: distinguishes findings of one check about one subject
    severity: AuditSeverity | None = None
    proven: bool = False  #: the fix was tried in memory; others are hints


@dataclass(frozen=True, slots=True)
class Check:
    """One check."""

    id: str  #: such as `PLM001`; never reused for another check
    name: str
    severity: AuditSeverity  #: of most of its findings
    title: str  #: meaning of a finding, in one line
    explanation: str  #: causes and consequences
    fix: str
    run: Callable[[AuditFacts], Iterator[CheckProblem]]
    #: Plural names of the kinds that the check needs.
    needs: tuple[str, ...] = ()

    def has_name(self, name: str) -> bool:
        return name.lower() in (self.id.lower(), self.name)


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """Problem with the data of its check."""

    id: str
    name: str
    severity: AuditSeverity
    subject: str
    message: str
    evidence: tuple[str, ...] = ()  #: lines with numbers
    fix: str = ""
    key: str = ""
    proven: bool = False  #: the fix was tried in memory; others are hints

    @property
    def fix_label(self) -> str:
        return "fix" if self.proven else "hint"

    @property
    def identity(self) -> tuple[str, str, str]:
        """Key that is equal for the same finding in two audits, whatever its numbers."""
        return self.id, self.subject, self.key

    @property
    def namespace(self) -> str:
        """Namespace of the subject; "" if it has none."""
        kind, _, rest = self.subject.partition("/")
        return rest.partition("/")[0] if is_namespaced(kind) else ""

    def as_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "name": self.name,
            "severity": self.severity.value,
            "subject": self.subject,
            "key": self.key,
            "message": self.message,
            "evidence": list(self.evidence),
            "fix": self.fix,
            "proven": self.proven,
        }


def make_finding(check: Check, problem: CheckProblem) -> AuditFinding:
    """Combine a check and its problem into a finding."""
    return AuditFinding(
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


def finding_order(finding: AuditFinding) -> tuple[object, ...]:
    """Return the sort key: most severe first, then by subject."""
    return finding.severity.rank, finding.subject, finding.id, finding.key, finding.message
