"""Findings of the doctor. An ID is `area.check` and never changes its meaning; docs/doctor.md lists all."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from plimsoll.tools.doctor.repairs import Repair


class Level(StrEnum):
    """Severity of a finding. A note (`info`) needs no action."""

    OK = "ok"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    @property
    def is_bad(self) -> bool:
        return self in (Level.WARNING, Level.ERROR)


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """Result of one check: subject, evidence, fix, and repair if there is one."""

    id: str
    level: Level
    subject: str
    evidence: str
    fix: str = ""
    repair: Repair | None = None

    @property
    def area(self) -> str:
        return self.id.partition(".")[0]


def ok(id: str, subject: str, evidence: str) -> DoctorFinding:
    return DoctorFinding(id, Level.OK, subject, evidence)


def note(id: str, subject: str, evidence: str, fix: str = "", repair: Repair | None = None) -> DoctorFinding:
    return DoctorFinding(id, Level.INFO, subject, evidence, fix, repair)


def warning(id: str, subject: str, evidence: str, fix: str, repair: Repair | None = None) -> DoctorFinding:
    return DoctorFinding(id, Level.WARNING, subject, evidence, fix, repair)


def error(id: str, subject: str, evidence: str, fix: str, repair: Repair | None = None) -> DoctorFinding:
    return DoctorFinding(id, Level.ERROR, subject, evidence, fix, repair)
