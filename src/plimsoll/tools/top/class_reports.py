"""Report of device classes: what can still be allocated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from plimsoll.tools.availability import ClassAvailability
from plimsoll.tools.colors import Paint
from plimsoll.tools.columns import format_count, wrap_text
from plimsoll.tools.top.device_reports import format_capacity
from plimsoll.tools.top.devices import plain_name
from plimsoll.tools.top.list_report import ListReport, not_shown
from plimsoll.tools.top.table import Cell, Table

_NOTE = "FREE is what claims can still get: choices that exclude each other are not added up."
_TYPES_NOTE = "FREE of a type counts as if no other were allocated: types of one device exclude each other."


@dataclass(frozen=True)
class ClassesReport(ListReport[ClassAvailability]):
    """Table of classes; `alone` for a single class requested by name, with its nodes."""

    view, word, empty = "classes", "class", "No device classes found."

    alone: bool = False
    unusable: Mapping[str, int] = field(default_factory=dict)  #: driver -> devices in unusable pools

    def row_lines(self, paint: Paint, wide: bool) -> Iterator[str]:
        shown = self.shown
        table = Table(("CLASS", ">DEVICES", ">HELD", ">FREE", ">MOST ON ONE NODE", ">NODES", "CAPACITY LEFT"))
        table.optional = ("CAPACITY LEFT",)
        for row in shown:
            table.add(
                row.device_class,
                str(row.devices),
                str(row.held),
                Cell(_count(row), "green" if row.total else ""),
                str(row.most),
                str(len(row.nodes)),
                [*_capacities(row)] or "-",
            )
            for type, each in row.partitions:
                counts = (str(each.devices), str(each.held), str(each.total), str(each.most), "", "-")
                table.add(f"  {type or 'other devices'}", *counts)
        yield from table.lines(paint, wide=wide)
        for row in shown:
            if row.problem:
                yield paint.red(f"{row.device_class} selects nothing: {row.problem}")
        yield from self.rest_lines()
        yield _NOTE
        if any(sum(each.total for _, each in row.partitions) > row.total for row in shown):
            yield from wrap_text(_TYPES_NOTE, paint.width)
        yield from _taint_notes(shown, paint)
        if self.unusable:
            published = ", ".join(f"{driver} {count}" for driver, count in self.unusable.items())
            yield from wrap_text(f"Not counted, in unusable pools (top pools): {published}", paint.width)
        if self.alone and self.rows[0].nodes:
            yield ""
            yield from _node_table(self.rows[0], paint, wide)


def _taint_notes(rows: Iterable[ClassAvailability], paint: Paint) -> Iterator[str]:
    """Yield what FREE counts only for claims and pods with tolerations, and what it leaves out."""
    notes: dict[str, list[str]] = {}
    for row in rows:
        for taints, each in row.tainted.items():
            notes.setdefault(f"FREE on nodes with taint {taints}", []).append(
                f"{row.device_class} {each.devices}"
            )
        for reason, each in row.closed.items():
            text = f"{row.device_class} {each.devices} on {format_count(each.nodes, 'node')}"
            notes.setdefault(f"Not counted, {reason}", []).append(text)
        for taint, count in row.device_taints.items():
            notes.setdefault(f"Not counted, devices with taint {taint}", []).append(
                f"{row.device_class} {count}"
            )
    for text, parts in sorted(notes.items()):
        yield from wrap_text(f"{text}: {', '.join(parts)}", paint.width)


def _count(row: ClassAvailability) -> str:
    return str(row.total) if row.is_exact else f"{row.total}+"


def _capacities(row: ClassAvailability) -> Iterator[str]:
    """Yield what is left of the capacity of shareable devices."""
    for name, each in row.capacity.items():
        left, total, most = (format_capacity(name, amount) for amount in (each.left, each.total, each.most))
        yield f"{plain_name(name)} {left} of {total}" + (f" (at most {most})" if most != left else "")


def _node_table(row: ClassAvailability, paint: Paint, wide: bool) -> Iterator[str]:
    nodes = sorted(row.nodes.items(), key=lambda item: (-item[1], item[0]))
    shown = nodes if wide else nodes[:20]
    table = Table(("NODE", ">FREE"))
    for name, count in shown:
        table.add(name, str(count))
    yield from table.lines(paint, wide=True)
    yield from not_shown(len(nodes) - len(shown), "node")
