"""`DiffReport`: differences of two states as text and JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

from plimsoll.allocator.availability import BLOCKED, FREE
from plimsoll.tools.amounts import format_distinct, format_short
from plimsoll.tools.colors import Paint
from plimsoll.tools.columns import format_count
from plimsoll.tools.diff.diff import (
    ADDED,
    CHANGED,
    REMOVED,
    ChargeChange,
    FieldChange,
    ObjectDifference,
    StateChanges,
)
from plimsoll.tools.findings import Finding
from plimsoll.tools.top.nodes import ResourceRow
from plimsoll.tools.top.table import Table

#: Lines of a section without `wide`.
SHOWN = 12
_MARKS = {ADDED: "+", REMOVED: "-", CHANGED: "~"}


@dataclass(frozen=True, slots=True)
class DiffReport:
    """Differences, by kind: counts, then one line per object."""

    changes: StateChanges
    old: str  #: origins of the two states
    new: str

    def lines(self, paint: Paint, *, wide: bool = False) -> Iterator[str]:
        changes = self.changes
        if not changes:
            yield paint.green("No differences found.")
            return
        yield f"{self.old} -> {self.new}"
        sections = (
            ("NODES", changes.nodes),
            ("DEVICE CLASSES", changes.classes),
            ("DEVICES", [each for each in changes.devices if each.name not in changes.blocked]),
            ("CLAIMS", changes.claims),
            ("PODS", changes.pods),
        )
        for title, objects in sections:
            blocked = title == "DEVICES" and bool(changes.blocked)
            if objects or blocked:
                yield ""
                yield f"{paint.bold(title)}  {_counts(objects)}".rstrip()
                yield from _object_lines(objects, paint, wide)
            if blocked:
                yield from _blocked_lines(changes, paint, wide)
        if changes.charges:
            yield ""
            yield from _charge_lines(changes, paint, wide)
        if changes.new_findings or changes.resolved_findings:
            yield ""
            yield from _finding_lines(changes, paint, wide)
        if changes.skipped_checks:
            yield ""
            count = format_count(len(changes.skipped_checks), "check")
            which = f" ({', '.join(changes.skipped_checks)})" if wide else ""
            yield f"{count} not compared: run on one side only{which}"

    def as_json(self) -> dict[str, Any]:
        changes = self.changes
        return {
            "old": self.old,
            "new": self.new,
            "same": not changes,
            "nodes": [each.as_json() for each in changes.nodes],
            "classes": [each.as_json() for each in changes.classes],
            "devices": [each.as_json() for each in changes.devices],
            "claims": [each.as_json() for each in changes.claims],
            "pods": [each.as_json() for each in changes.pods],
            "charges": [each.as_json() for each in changes.charges],
            "totals": [each.as_json() for each in changes.totals],
            "findings": {
                "new": [each.as_json() for each in changes.new_findings],
                "resolved": [each.as_json() for each in changes.resolved_findings],
            },
            "notCompared": list(changes.skipped_checks),
        }


def _counts(objects: Sequence[ObjectDifference]) -> str:
    counts = Counter(each.change for each in objects)
    return ", ".join(f"{counts[word]:,} {word}" for word in _MARKS if counts[word])


def _object_lines(objects: Sequence[ObjectDifference], paint: Paint, wide: bool) -> Iterator[str]:
    shown = objects if wide else objects[:SHOWN]
    paints = {ADDED: paint.green, REMOVED: paint.red, CHANGED: paint.yellow}
    for each in shown:
        text = f"{_MARKS[each.change]} {each.name}"
        details = [_field(field, each.change) for field in each.fields]
        if details:
            text += f"  {'; '.join(details)}"
        yield from (f"  {paints[each.change](line)}" for line in _wrap(text, paint, wide))
    yield from _rest(len(objects) - len(shown))


def _wrap(text: str, paint: Paint, wide: bool) -> list[str]:
    if wide:
        return [text]
    return wrap(text, max(40, paint.width - 2), subsequent_indent="    ", break_on_hyphens=False)


def _blocked_lines(changes: StateChanges, paint: Paint, wide: bool) -> Iterator[str]:
    """Yield one line for each physical device of which parts became blocked or free."""
    groups: dict[tuple[str, str], list[str]] = {}
    for each in changes.devices:
        if each.name in changes.blocked:
            after = next((field.after for field in each.fields if field.field == "state"), "")
            groups.setdefault((changes.blocked[each.name], after), []).append(each.name)
    shown = [*groups.items()] if wide else [*groups.items()][:SHOWN]
    words = {BLOCKED: "blocked", FREE: "no longer blocked", "": "blocked as before, by more or less"}
    for (device, after), names in shown:
        others = len(names) - (device in names)
        parts = [device] if device in names else []
        if others:
            parts.append(f"{format_count(others, 'partition')} of {'it' if parts else device}")
        yield paint.dim(f"  ~ {' and '.join(parts)}: {words[after]}")
    yield from _rest(len(groups) - len(shown))


def _field(field: FieldChange, change: str) -> str:
    if change == CHANGED:
        return f"{field.field} {field.before or '(none)'} -> {field.after or '(none)'}"
    return f"{field.field} {field.before or field.after}"


def _rest(left: int) -> Iterator[str]:
    if left > 0:
        yield f"  and {left:,} more; -o wide lists them"


def _charge_lines(changes: StateChanges, paint: Paint, wide: bool) -> Iterator[str]:
    nodes = len({each.node for each in changes.charges})
    yield f"{paint.bold('CHARGES')}  {format_count(nodes, 'node')} changed"
    rows = [*changes.totals, *changes.charges]
    shown = rows if wide else rows[: len(changes.totals) + SHOWN]
    table = Table(("NODE", "RESOURCE", ">REQUESTS", ">CLAIMS", ">OVERHEAD", ">FREE", ">ALLOCATABLE"))
    for each in shown:
        table.add(each.node or "all nodes", each.resource, *_amount_cells(each))
    yield from table.lines(paint, wide=True, indent="  ")
    yield from _rest(len(rows) - len(shown))


def _amount_cells(each: ChargeChange) -> Iterator[str]:
    absent = ResourceRow(each.resource, 0, 0, 0, 0, 0)
    old, new = each.before or absent, each.after or absent
    for name in ("requests", "claims", "overhead", "free", "line"):
        before, after = getattr(old, name), getattr(new, name)
        if before == after:
            yield format_short(each.resource, after)
        else:
            yield " -> ".join(format_distinct(each.resource, before, after))


def _finding_lines(changes: StateChanges, paint: Paint, wide: bool) -> Iterator[str]:
    new, resolved = changes.new_findings, changes.resolved_findings
    yield f"{paint.bold('FINDINGS')}  {len(new):,} new, {len(resolved):,} resolved"
    for findings, mark, color in ((new, "+", paint.red), (resolved, "-", paint.green)):
        shown = findings if wide else findings[:SHOWN]
        for each in shown:
            lines = _wrap(_finding(each, mark), paint, wide)
            yield from (f"  {color(line)}" for line in lines)
        yield from _rest(len(findings) - len(shown))


def _finding(each: Finding, mark: str) -> str:
    return f"{mark} {each.severity.value} {each.id} {each.name}: {each.subject}: {each.message}"
