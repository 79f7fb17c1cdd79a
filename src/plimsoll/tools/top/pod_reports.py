"""Reports of pods and namespaces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from plimsoll.ledger.units import CPU, MEMORY
from plimsoll.tools.amounts import format_quantity, format_short, percent, resource_order
from plimsoll.tools.colors import Paint
from plimsoll.tools.columns import format_count
from plimsoll.tools.top.device_reports import device_name
from plimsoll.tools.top.list_report import ListReport
from plimsoll.tools.top.namespaces import NamespaceRow
from plimsoll.tools.top.pods import Amounts, PodRow
from plimsoll.tools.top.table import Cell, Table


def shown_resources(amounts: Iterable[Amounts], wanted: tuple[str, ...], wide: bool) -> tuple[str, ...]:
    """Return the resources to show: those requested, else cpu and memory; all of them if `wide`."""
    if wanted:
        return wanted
    if not wide:
        return CPU, MEMORY
    return tuple(sorted({CPU, MEMORY, *(name for each in amounts for name in each)}, key=resource_order))


def sums_of(resource: str, amounts: Amounts) -> tuple[str, ...]:
    """Return requests, claims, overhead and total, formatted."""
    return _format_parts(resource, amounts.get(resource, (0, 0, 0)))


@lru_cache(maxsize=4096)
def _format_parts(resource: str, parts: tuple[int, int, int]) -> tuple[str, ...]:
    return tuple(format_short(resource, each) if each else "0" for each in (*parts, sum(parts)))


@dataclass(frozen=True)
class PodsReport(ListReport[PodRow]):
    """Table of pods with their usage; `alone` for a single pod requested by name."""

    view, word, empty = "pods", "pod", "No pods found."

    resources: tuple[str, ...] = ()
    alone: bool = False

    def row_lines(self, paint: Paint, wide: bool) -> Iterator[str]:
        wide = wide or self.alone
        if not self.alone:
            pods = [row for row in self.rows if row.pod]
            pending = sum(not row.node for row in pods)
            yield f"{format_count(len(pods), 'pod')}, {pending:,} pending"
            yield ""
        names = shown_resources((row.amounts for row in self.rows), self.resources, wide)
        parts = (">REQUESTS", ">CLAIMS", ">OVERHEAD", ">TOTAL")
        table = Table(
            ("POD", "NODE", "=QOS", "=RESOURCE", *parts, "DEVICES"),
            optional=("=QOS", ">OVERHEAD", ">CLAIMS", ">REQUESTS"),
        )
        for row in self.shown:
            shown_text = [name for name in names if any(row.amounts.get(name, ())) or name in row.drawn]
            shown_text = shown_text or [names[0]]
            for index, name in enumerate(shown_text):
                first = index == 0 or not paint.color
                devices = (
                    [device_name(each.pool, each.device, row.node) for each in row.devices]
                    if index == 0
                    else []
                )
                if name in row.drawn:
                    devices.append(f"draws {format_short(name, row.drawn[name])} {name} from its claim")
                table.add(
                    f"{row.namespace}/{row.name}" if first else "",
                    (Cell(row.node) if row.node else Cell("pending", "yellow")) if first else "",
                    (row.qos or "-") if first else "",
                    name,
                    *sums_of(name, row.amounts),
                    devices or "-",
                )
        yield from table.lines(paint, wide=wide)
        yield from self.rest_lines()
        if any(not row.pod for row in self.shown):
            yield "claim/NAME: the pool of a claim, charged once for all pods that draw from it."


@dataclass(frozen=True)
class NamespacesReport(ListReport[NamespaceRow]):
    """Table of namespaces with their usage."""

    view, word, empty = "namespaces", "namespace", "No pods or claims found."

    resources: tuple[str, ...] = ()

    def row_lines(self, paint: Paint, wide: bool) -> Iterator[str]:
        names = shown_resources((row.amounts for row in self.rows), self.resources, wide)
        parts = (">REQUESTS", ">CLAIMS", ">OVERHEAD", ">TOTAL")
        heads = ("NAMESPACE", ">SCHEDULED", ">PENDING", "=RESOURCE", *parts, ">SHARE", ">DEVICES", "BY CLASS")
        table = Table(heads, optional=(">OVERHEAD", ">SHARE", ">CLAIMS", ">REQUESTS"))
        for row in self.shown:
            for index, name in enumerate(names):
                first = index == 0 or not paint.color
                table.add(
                    row.namespace if first else "",
                    str(row.pods) if first else "",
                    str(row.pending) if first else "",
                    name,
                    *sums_of(name, row.amounts),
                    row.share(name),
                    str(sum(row.devices.values())) if first else "",
                    [*_devices(row)] if index == 0 and row.devices else "-",
                )
        yield from table.lines(paint, wide=wide)
        yield from self.rest_lines()
        if any(row.quotas for row in self.shown):
            yield ""
            yield from _quota_table(self.shown, paint, wide)


def _quota_table(rows: Iterable[NamespaceRow], paint: Paint, wide: bool) -> Iterator[str]:
    """Yield the quotas with their usage; full ones are red."""
    table = Table(("NAMESPACE", "QUOTA", "RESOURCE", ">USED", ">HARD", ">SHARE"))
    for row in rows:
        for quota in row.quotas:
            color = "red" if quota.is_full else ""
            used = "-" if quota.used is None else format_quantity(quota.used)
            share = "-" if quota.used is None else percent(quota.used.nano, quota.hard.nano)
            hard = format_quantity(quota.hard)
            table.add(row.namespace, quota.quota, quota.resource, used, hard, Cell(share, color))
    yield from table.lines(paint, wide=wide)


def _devices(row: NamespaceRow) -> Iterator[str]:
    """Yield `gpu 8` per class, with the number of shares if there are any."""
    for name, number in row.devices.items():
        shares = row.shares.get(name, 0)
        extra = f" ({format_count(shares, 'share')})" if shares else ""
        yield f"{name or 'no class'} {number}{extra}"
