"""`Finding` and `Severity`: results of checks (audit, doctor)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from plimsoll.api.kinds import is_namespaced


class Severity(StrEnum):
    """Severity of a finding."""

    ERROR = "error"  #: double allocation or overcommit, or cannot work
    WARNING = "warning"  #: wrong now, or as soon as load increases
    INFO = "info"  #: worth knowing
    OK = "ok"  #: a check that passed, where passed checks are reported

    @property
    def rank(self) -> int:
        """Sort rank; 0 is the most severe."""
        return tuple(Severity).index(self)

    def reaches(self, other: Severity) -> bool:
        """Return whether this is at least as severe as another."""
        return self.rank <= other.rank


#: Severities of problems, the most severe first.
PROBLEMS = (Severity.ERROR, Severity.WARNING, Severity.INFO)


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of a check about one subject."""

    id: str  #: never changes its meaning
    name: str
    severity: Severity
    subject: str
    message: str
    evidence: tuple[str, ...] = ()  #: lines with numbers
    fix: str = ""
    key: str = ""  #: distinguishes findings of one check about one subject
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
