"""Reports of nodes: all nodes as a table, or one node with its holders and devices.

Nodes past their line are listed first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from plimsoll.ledger.units import CPU, MEMORY
from plimsoll.tools.amounts import format_amount, format_short, percent, resource_order
from plimsoll.tools.colors import PLAIN, Paint
from plimsoll.tools.columns import format_count
from plimsoll.tools.top.device_reports import device_name, device_table
from plimsoll.tools.top.devices import DeviceRow
from plimsoll.tools.top.list_report import ListReport
from plimsoll.tools.top.nodes import NodeRow, ResourceHolder, ResourceRow
from plimsoll.tools.top.table import BAR, Cell, Table
from plimsoll.tools.top.uncounted_notes import UncountedNote

#: Resources shown by default; others if requested, held by claims, or past their line.
USUAL = (CPU, MEMORY)
NODE_SORTS = ("name", "free", "used", "claims")
_HEADINGS = (">ALLOCATABLE", ">REQUESTS", ">CLAIMS", ">OVERHEAD", ">FREE", ">USED")
NOT_COUNTED = ">NOT COUNTED"
FREE_DEVICES = "FREE DEVICES BY CLASS"
READY = "Ready"
_BAR = 10
_HOLDERS = 8


@dataclass(frozen=True)
class NodesReport(ListReport[NodeRow]):
    """Table of nodes with allocatable, used and free resources."""

    view, word, empty = "nodes", "node", "No nodes found."

    resources: tuple[str, ...] = ()  #: only these
    uncounted: UncountedNote = field(default_factory=UncountedNote)
    #: Computes `free_devices`, which only wide tables and JSON show.
    find_free_devices: Callable[[], Mapping[str, Mapping[str, int]]] = dict

    @cached_property
    def free_devices(self) -> Mapping[str, Mapping[str, int]]:
        """Node -> class -> devices that one pod can still get."""
        return self.find_free_devices()

    @property
    def past(self) -> list[NodeRow]:
        return [node for node in self.rows if node.past]

    def row_lines(self, paint: Paint, wide: bool) -> Iterator[str]:
        yield from _overcommit_lines(self.past, len(self.rows), paint)
        bars = paint.color and self._width(paint, wide) <= paint.width
        yield from self._table(paint, wide, bars).lines(paint, wide=wide)
        if bars:
            marks = (paint.blue("="), paint.yellow("#"), paint.green("+"), paint.dim("."))
            yield "{} requests  {} claims  {} overhead  {} free".format(*marks)
        yield from self.rest_lines()
        if self.uncounted:
            yield ""
            yield from self.uncounted.lines(paint)

    def _width(self, paint: Paint, wide: bool) -> int:
        """Return the width of the table with bars."""
        return max(map(len, self._table(paint, wide, bars=True).lines(PLAIN, wide=True)))

    def _table(self, paint: Paint, wide: bool, bars: bool) -> Table:
        """Build the table, with bars if they fit; on a terminal the node name is shown in its first row
        only.
        """
        extra = (NOT_COUNTED,) if self.uncounted else ()
        last = (FREE_DEVICES,) if wide and self.free_devices else ()
        table = Table(
            ("NODE", "=RESOURCE", *_HEADINGS, *extra, *(("",) if bars else ()), *last),
            optional=(">OVERHEAD",),
        )
        groups = [
            (
                label_of(node),
                "red" if node.past or node.past_uncounted else "bold",
                self._rows(node, wide),
                format_free_devices(self.free_devices.get(node.name, {})) if last else "",
            )
            for node in self.shown
        ]
        if len(self.rows) > 1:
            groups.append((f"all {format_count(len(self.rows), 'node')}", "bold", self._totals(wide), ""))
        for name, color, rows, free in groups:
            for index, row in enumerate(rows):
                shown_text = name if index == 0 or not paint.color else ""
                cells = cells_of(row, bars, uncounted=bool(self.uncounted))
                end = ((free if index == 0 else "") or "-",) if last else ()
                table.add(Cell(shown_text, color), row.resource, *cells, *end)
        return table

    def _rows(self, node: NodeRow, wide: bool) -> list[ResourceRow]:
        if self.resources:
            return [node.row(name) for name in self.resources]
        if wide:
            return list(node.rows)
        return [
            row for row in node.rows if row.resource in USUAL or row.claims or row.free < 0 or row.uncounted
        ]

    def _totals(self, wide: bool) -> list[ResourceRow]:
        shown_text = {row.resource for node in self.shown for row in self._rows(node, wide)}
        return [row for row in totals_of(self.rows) if row.resource in shown_text]

    def as_json(self) -> dict[str, Any]:
        wanted = self.resources or None
        return {
            **super().as_json(),
            "totals": [
                row.as_json() for row in totals_of(self.rows) if wanted is None or row.resource in wanted
            ],
            "pastLine": [node.name for node in self.past],
            **({"notCounted": self.uncounted.as_json()} if self.uncounted else {}),
        }

    def row_json(self, row: NodeRow) -> dict[str, Any]:
        free = dict(self.free_devices.get(row.name, {}))
        return {**node_json(row, self.resources or None), "freeDevices": free}


@dataclass(frozen=True, slots=True)
class NodeReport:
    """One node: its resources, their holders, and its devices."""

    node: NodeRow
    holders: tuple[ResourceHolder, ...]
    devices: tuple[DeviceRow, ...]
    resources: tuple[str, ...] = ()
    uncounted: UncountedNote = field(default_factory=UncountedNote)
    free_devices: Mapping[str, int] = field(default_factory=dict)  #: class -> devices one pod can still get

    def lines(self, paint: Paint, *, wide: bool = False) -> Iterator[str]:
        node = self.node
        pods = (
            f"{node.pods} of {format_count(node.pod_line, 'pod')}"
            if node.pod_line
            else format_count(node.pods, "pod")
        )
        yield f"{paint.bold(node.name)}: {status_of(node)}, {pods}"
        for row in node.rows:
            if row.free < 0:
                past = format_short(row.resource, -row.free)
                yield paint.red(f"{row.resource} is past its line by {past}")
        if self.free_devices:
            yield f"devices that can still be allocated: {format_free_devices(self.free_devices)}"
        yield ""
        extra = (NOT_COUNTED,) if self.uncounted else ()
        table = Table(("=RESOURCE", *_HEADINGS, *extra, *(("",) if paint.color else ())))
        for row in self._rows():
            table.add(row.resource, *cells_of(row, paint.color, uncounted=bool(self.uncounted)))
        yield from table.lines(paint, wide=True)
        if self.uncounted:
            yield ""
            yield from self.uncounted.lines(paint)
        for name in sorted({holder.resource for holder in self.holders}, key=resource_order):
            yield ""
            yield from self._holder_lines(name, paint, wide)
        if self.devices:
            yield ""
            yield "Devices"
            yield from device_table(self.devices, paint, wide=wide, limit=0 if wide else 20, node=node.name)

    def _rows(self) -> list[ResourceRow]:
        return [row for row in self.node.rows if not self.resources or row.resource in self.resources]

    def _holder_lines(self, resource: str, paint: Paint, wide: bool) -> Iterator[str]:
        held = [holder for holder in self.holders if holder.resource == resource]
        shown = held if wide else held[:_HOLDERS]
        line = self.node.row(resource).line
        yield f"Holders of {resource}"
        last = ("PLACEHOLDER",) if any(holder.placeholder for holder in shown) else ()
        table = Table((">AMOUNT", ">SHARE", "BY", "POD", "CLAIM", "DEVICES", *last), optional=last)
        for holder in shown:
            table.add(
                format_short(resource, holder.amount),
                percent(holder.amount, line),
                holder.rule,
                _pod_of(holder),
                (holder.claim if holder.pod else f"{holder.namespace}/{holder.claim}") or "-",
                [device_name(each.pool, each.device, self.node.name) for each in holder.devices] or "-",
                *([holder.placeholder or "-"] if last else ()),
            )
        for each in self.uncounted.claims if len(shown) == len(held) else ():
            if each.resource == resource:
                table.add(
                    format_short(resource, each.missing),
                    percent(each.missing, line),
                    "not counted",
                    ", ".join(pod.metadata.full_name for pod in each.pods),
                    each.claim.metadata.name,
                    [
                        device_name(result.pool, result.device, self.node.name)
                        for result in each.claim.allocation_results
                    ]
                    or "-",
                    *(["-"] if last else ()),
                )
        yield from table.lines(paint, wide=wide)
        if len(held) > len(shown):
            rest = sum(holder.amount for holder in held[len(shown) :])
            others = format_count(len(held) - len(shown), "other")
            yield f"{others} with {format_short(resource, rest)}; -o wide shows all."

    def as_json(self) -> dict[str, Any]:
        return {
            **node_json(self.node, self.resources or None),
            "freeDevices": dict(self.free_devices),
            "holders": [holder.as_json() for holder in self.holders],
            "devices": [row.as_json() for row in self.devices],
            **({"notCounted": self.uncounted.as_json()} if self.uncounted else {}),
        }


def _pod_of(holder: ResourceHolder) -> str:
    if holder.stands_for:
        return f"{holder.namespace}/{holder.pod} (for {holder.stands_for})"
    return f"{holder.namespace}/{holder.pod}" if holder.pod else "(shared)"


# -- order


def sort_nodes(nodes: Iterable[NodeRow], sort: str, resources: Sequence[str] = ()) -> list[NodeRow]:
    """Sort nodes past their line first, then by name, free or used share, or claimed amount.

    Compares the first requested resource, by default cpu: as a share of allocatable for `free` and `used`, as
    an amount for `claims`.
    """
    resource = resources[0] if resources else CPU

    def key(node: NodeRow) -> tuple[Any, ...]:
        row = node.row(resource)
        # Per mille of the line, as integers for reproducible order.
        share = row.free * 1000 // row.line if row.line > 0 else -1
        by = {"name": 0, "free": -share, "used": share, "claims": -row.claims}[sort]
        return not node.past, not node.past_uncounted, by, node.name

    return sorted(nodes, key=key)


def totals_of(nodes: Iterable[NodeRow]) -> list[ResourceRow]:
    """Return the totals of all nodes."""
    sums: dict[str, list[int]] = {}
    for node in nodes:
        for row in node.rows:
            total = sums.setdefault(row.resource, [0] * 6)
            amounts = (row.line, row.requests, row.claims, row.overhead, row.free, row.uncounted)
            for index, amount in enumerate(amounts):
                total[index] += amount
    return [ResourceRow(name, *sums[name]) for name in sorted(sums, key=resource_order)]


# -- texts


def label_of(node: NodeRow) -> str:
    """Return the node name, with its status if that is not Ready."""
    status = status_of(node)
    return node.name if status == READY else f"{node.name} ({status})"


def status_of(node: NodeRow) -> str:
    """Return the status of a node as kubectl get prints it."""
    status = READY if node.ready else "NotReady"
    return f"{status},SchedulingDisabled" if node.unschedulable else status


def format_free_devices(counts: Mapping[str, int]) -> str:
    """Format counts by class: `gpu 3, nic 1`."""
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def _overcommit_lines(past: list[NodeRow], of: int, paint: Paint) -> Iterator[str]:
    if not past:
        return
    yield paint.red(f"{len(past):,} of {format_count(of, 'node')} past the line:")
    for node in past[:5]:
        over = [
            f"{row.resource} by {format_short(row.resource, -row.free)}" for row in node.rows if row.free < 0
        ]
        yield paint.red(f"  {node.name}: {', '.join(over)}")
    if len(past) > 5:
        yield paint.red(f"  and {len(past) - 5:,} more")
    yield ""


def cells_of(row: ResourceRow, bar: bool, *, uncounted: bool = False) -> list[str | Cell]:
    """Return the cells of a row, with a bar and with what is not counted if wanted."""
    name = row.resource
    color = "red" if row.free < 0 else ""
    amounts = [format_short(name, each) for each in (row.line, row.requests, row.claims, row.overhead)]
    cells: list[str | Cell] = [*amounts, Cell(format_short(name, row.free), color)]
    cells.append(Cell(percent(row.used, row.line), color))
    if uncounted:
        hidden = "red" if row.hidden_excess else ""
        cells.append(Cell(format_short(name, row.uncounted) if row.uncounted else "-", hidden))
    if bar:
        cells.append(Cell(bar_of(row), BAR))
    return cells


def bar_of(row: ResourceRow, width: int = _BAR) -> str:
    """Render usage as `====##+.....`: requests, claims, overhead, free; a full bar if past the line."""
    total = max(row.line, row.used, 1)
    ends = [max(0, part) for part in (row.requests, row.requests + row.claims, row.used)]
    marks = [min(width, -(-end * width // total)) for end in ends]
    text = "=" * marks[0] + "#" * max(0, marks[1] - marks[0])
    text += "+" * max(0, marks[2] - len(text))
    return text.ljust(width, ".")


def node_json(node: NodeRow, resources: Sequence[str] | None = None) -> dict[str, Any]:
    return {
        "name": node.name,
        "ready": node.ready,
        "unschedulable": node.unschedulable,
        "pods": format_amount("pods", node.pods),
        "podLine": format_amount("pods", node.pod_line),
        "pastLine": list(node.past),
        **({"pastLineUncounted": list(node.past_uncounted)} if node.past_uncounted else {}),
        "resources": [row.as_json() for row in node.rows if resources is None or row.resource in resources],
    }
