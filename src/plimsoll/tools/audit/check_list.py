"""Descriptions of the checks: the list (`--list`) and the explanation of one check (`--explain`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

from plimsoll.api.timestamps import parse_time
from plimsoll.errors import InputError
from plimsoll.tools.audit.findings import Check
from plimsoll.tools.colors import Paint
from plimsoll.tools.columns import format_table, wrap_text


@dataclass(frozen=True, slots=True)
class CheckListing:
    """All checks, one line each."""

    checks: tuple[Check, ...]

    def lines(self, paint: Paint, *, wide: bool = False) -> Iterator[str]:
        rows = [("ID", "SEVERITY", "NAME", "A FINDING MEANS")]
        for each in self.checks:
            first, *more = wrap(each.title, 200 if wide else 48)
            rows.append((each.id, each.severity.value, each.name, first))
            rows += [("", "", "", line) for line in more]
        heading, *rest = format_table(rows)
        yield paint.bold(heading)
        yield from rest

    def as_json(self) -> Any:
        return [as_json(check) for check in self.checks]


@dataclass(frozen=True, slots=True)
class CheckExplanation:
    """Full description of one check."""

    check: Check

    def lines(self, paint: Paint, *, wide: bool = False) -> Iterator[str]:
        check = self.check
        yield paint.bold(f"{check.id} {check.name}") + f" ({check.severity.value})"
        yield from wrap_text(f"A finding means: {check.title}.", 100, "")
        yield ""
        yield from wrap_text(check.explanation, 100, "")
        yield ""
        yield from wrap_text(f"Fix: {check.fix}.", 100, "")

    def as_json(self) -> Any:
        return as_json(self.check)


def as_json(check: Check) -> dict[str, Any]:
    return {
        "id": check.id,
        "name": check.name,
        "severity": check.severity.value,
        "title": check.title,
        "explanation": check.explanation,
        "fix": check.fix,
        "needs": list(check.needs),
    }


def read_now(text: str) -> float | None:
    """Parse the `--now` option; None if it was not given."""
    if not text:
        return None
    timestamp = parse_time(text)
    if timestamp is None:
        raise InputError(f"--now: must be a time such as 2026-01-31T12:00:00Z, not {text!r}")
    return timestamp
