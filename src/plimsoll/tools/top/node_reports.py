"""Nodes for people and programs: all of them as a table, or one with everything that is held on it.

Owns `NodesReport` and `NodeReport`. Nodes past their line come first and are said first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from plimsoll.ledger.units import CPU, MEMORY
from plimsoll.tools.colors import PLAIN, Paint
from plimsoll.tools.top.nodes import BookRow, Holder, NodeBook, order_of, text_of
from plimsoll.tools.top.device_reports import device_table
from plimsoll.tools.top.devices import DeviceRow
from plimsoll.tools.top.table import BAR, Cell, Table, count, percent, short_of

#: What everybody wants to know; everything else if asked for, held by claims, or past its line.
USUAL = (CPU, MEMORY)
SORTS = ("name", "free", "used", "claims")
_HEADINGS = (">ALLOCATABLE", ">REQUESTS", ">CLAIMS", ">OVERHEAD", ">FREE", ">USED")
_BAR = 10
_HOLDERS = 8


@dataclass(frozen=True, slots=True)
class NodesReport:
    """The books of many nodes."""

    books: tuple[NodeBook, ...]  #: in the order they are told
    resources: tuple[str, ...] = ()  #: only these
    limit: int = 0  #: how many nodes are told; 0: all

    @property
    def shown(self) -> tuple[NodeBook, ...]:
        return self.books[: self.limit] if self.limit else self.books

    @property
    def past(self) -> list[NodeBook]:
        return [book for book in self.books if book.past]

    def lines(self, paint: Paint, *, wide: bool = False) -> Iterator[str]:
        if not self.books:
            yield "There are no nodes."
            return
        yield from _tell_past(self.past, len(self.books), paint)
        rows = list(self._table(paint, wide, paint.colour).lines(PLAIN, wide=True))
        bars = paint.colour and max(map(len, rows)) <= paint.width
        yield from self._table(paint, wide, bars).lines(paint, wide=True)
        if bars:
            marks = (paint.blue("="), paint.yellow("#"), paint.green("+"), paint.dim("."))
            yield "{} requests  {} claims  {} overhead  {} free".format(*marks)
        left = len(self.books) - len(self.shown)
        if left:
            yield f"{count(left, 'more node')} not shown; --limit 0 shows all."

    def _table(self, paint: Paint, wide: bool, bars: bool) -> Table:
        """With bars if there is room for them; names are told once at a terminal, else in every row."""
        table = Table(("NODE", "RESOURCE", *_HEADINGS, *(("",) if bars else ())))
        groups = [
            (label_of(book), "red" if book.past else "bold", self._rows(book, wide)) for book in self.shown
        ]
        if len(self.books) > 1:
            groups.append((f"all {count(len(self.books), 'node')}", "bold", self._totals(wide)))
        for name, colour, rows in groups:
            for place, row in enumerate(rows):
                told = name if place == 0 or not paint.colour else ""
                table.add(Cell(told, colour), row.resource, *cells_of(row, bars))
        return table

    def _rows(self, book: NodeBook, wide: bool) -> list[BookRow]:
        if self.resources:
            return [book.row(name) for name in self.resources]
        if wide:
            return list(book.rows)
        return [row for row in book.rows if row.resource in USUAL or row.claims or row.free < 0]

    def _totals(self, wide: bool) -> list[BookRow]:
        told = {row.resource for book in self.shown for row in self._rows(book, wide)}
        return [row for row in totals_of(self.books) if row.resource in told]

    def as_json(self) -> dict[str, Any]:
        wanted = self.resources or None
        return {
            "nodes": [book_json(book, wanted) for book in self.shown],
            "totals": [
                row.as_json() for row in totals_of(self.books) if wanted is None or row.resource in wanted
            ],
            "pastLine": [book.name for book in self.past],
            "notShown": len(self.books) - len(self.shown),
        }


@dataclass(frozen=True, slots=True)
class NodeReport:
    """One node: its book, who holds it, and its devices."""

    book: NodeBook
    holders: tuple[Holder, ...]
    devices: tuple[DeviceRow, ...]
    resources: tuple[str, ...] = ()

    def lines(self, paint: Paint, *, wide: bool = False) -> Iterator[str]:
        book = self.book
        pods = f"{book.pods} of {count(book.pod_line, 'pod')}" if book.pod_line else count(book.pods, "pod")
        yield f"{paint.bold(book.name)}: {', '.join(status_of(book))}, {pods}"
        for row in book.rows:
            if row.free < 0:
                past = short_of(row.resource, -row.free)
                yield paint.red(f"{row.resource} is past its line by {past}")
        yield ""
        table = Table(("RESOURCE", *_HEADINGS, *(("",) if paint.colour else ())))
        for row in self._rows():
            table.add(row.resource, *cells_of(row, paint.colour))
        yield from table.lines(paint, wide=True)
        for name in sorted({holder.resource for holder in self.holders}, key=order_of):
            yield ""
            yield from self._tell_holders(name, paint, wide)
        if self.devices:
            yield ""
            yield "Devices"
            yield from device_table(self.devices, paint, wide=wide, limit=0 if wide else 20, node=book.name)

    def _rows(self) -> list[BookRow]:
        return [row for row in self.book.rows if not self.resources or row.resource in self.resources]

    def _tell_holders(self, resource: str, paint: Paint, wide: bool) -> Iterator[str]:
        held = [holder for holder in self.holders if holder.resource == resource]
        shown = held if wide else held[:_HOLDERS]
        line = self.book.row(resource).line
        yield f"Who holds {resource}"
        table = Table((">AMOUNT", ">SHARE", "BY", "POD", "CLAIM", "DEVICES"))
        for holder in shown:
            table.add(
                short_of(resource, holder.amount),
                percent(holder.amount, line),
                holder.rule,
                f"{holder.namespace}/{holder.pod}" if holder.pod else "all that use it",
                (holder.claim if holder.pod else f"{holder.namespace}/{holder.claim}") or "-",
                [f"{each.pool}/{each.device}" for each in holder.devices] or "-",
            )
        yield from table.lines(paint, wide=wide)
        if len(held) > len(shown):
            rest = sum(holder.amount for holder in held[len(shown) :])
            others = count(len(held) - len(shown), "other")
            yield f"{others} with {short_of(resource, rest)}; -o wide shows all."

    def as_json(self) -> dict[str, Any]:
        return {
            **book_json(self.book, self.resources or None),
            "holders": [holder.as_json() for holder in self.holders],
            "devices": [row.as_json() for row in self.devices],
        }


# -- order


def sort_books(books: Iterable[NodeBook], sort: str, resources: Sequence[str] = ()) -> list[NodeBook]:
    """Those past their line first, then by name, by what is free or used, or by what claims take.

    What is compared is the first resource asked for, cpu if none was: a share of the line for `free` and
    `used`, the amount for `claims`.
    """
    resource = resources[0] if resources else CPU

    def key(book: NodeBook) -> tuple[Any, ...]:
        row = book.row(resource)
        # Thousandths of the line: whole numbers, which are the same everywhere.
        share = row.free * 1000 // row.line if row.line > 0 else -1
        by = {"name": 0, "free": -share, "used": share, "claims": -row.claims}[sort]
        return not book.past, by, book.name

    return sorted(books, key=key)


def totals_of(books: Iterable[NodeBook]) -> list[BookRow]:
    """The books of all nodes together."""
    sums: dict[str, list[int]] = {}
    for book in books:
        for row in book.rows:
            total = sums.setdefault(row.resource, [0, 0, 0, 0, 0])
            for place, amount in enumerate((row.line, row.requests, row.claims, row.overhead, row.free)):
                total[place] += amount
    return [BookRow(name, *sums[name]) for name in sorted(sums, key=order_of)]


# -- texts


def label_of(book: NodeBook) -> str:
    """A node's name, with what is the matter with it."""
    odd = [word for word in status_of(book) if word != "ready"]
    return f"{book.name} ({', '.join(odd)})" if odd else book.name


def status_of(book: NodeBook) -> list[str]:
    return ["ready" if book.ready else "not ready", *(["cordoned"] if book.unschedulable else [])]


def _tell_past(past: list[NodeBook], of: int, paint: Paint) -> Iterator[str]:
    if not past:
        return
    yield paint.red(f"{len(past):,} of {count(of, 'node')} past the line:")
    for book in past[:5]:
        over = [f"{row.resource} by {short_of(row.resource, -row.free)}" for row in book.rows if row.free < 0]
        yield paint.red(f"  {book.name}: {', '.join(over)}")
    if len(past) > 5:
        yield paint.red(f"  and {len(past) - 5:,} more")
    yield ""


def cells_of(row: BookRow, bar: bool) -> list[str | Cell]:
    """The numbers of a row, and its bar if that is wanted."""
    name = row.resource
    colour = "red" if row.free < 0 else ""
    amounts = [short_of(name, each) for each in (row.line, row.requests, row.claims, row.overhead)]
    cells: list[str | Cell] = [*amounts, Cell(short_of(name, row.free), colour)]
    cells.append(Cell(percent(row.used, row.line), colour))
    if bar:
        cells.append(Cell(bar_of(row), BAR))
    return cells


def bar_of(row: BookRow, width: int = _BAR) -> str:
    """`====##+.....`: requests, claims, overhead and what is free; a whole bar if it is past the line."""
    whole = max(row.line, row.used, 1)
    ends = [max(0, part) for part in (row.requests, row.requests + row.claims, row.used)]
    marks = [min(width, -(-end * width // whole)) for end in ends]
    text = "=" * marks[0] + "#" * max(0, marks[1] - marks[0])
    text += "+" * max(0, marks[2] - len(text))
    return text.ljust(width, ".")


def book_json(book: NodeBook, resources: Sequence[str] | None = None) -> dict[str, Any]:
    return {
        "name": book.name,
        "ready": book.ready,
        "unschedulable": book.unschedulable,
        "pods": text_of("pods", book.pods),
        "podLine": text_of("pods", book.pod_line),
        "pastLine": list(book.past),
        "resources": [row.as_json() for row in book.rows if resources is None or row.resource in resources],
    }
