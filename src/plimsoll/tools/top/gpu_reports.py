"""Report of GPUs and other accelerators: one row per physical device, with its partitions and holders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from plimsoll.allocator.availability import FREE, PARTLY, SHARED, TAKEN
from plimsoll.tools.colors import Paint
from plimsoll.tools.top.device_reports import (
    COLORS,
    device_name,
    format_capacity,
    format_holders,
    not_shown,
    place_of,
    remaining_shares,
)
from plimsoll.tools.top.devices import UNAVAILABLE
from plimsoll.tools.top.node_reports import label_of
from plimsoll.tools.top.nodes import NodeRow
from plimsoll.tools.top.physical import PhysicalDevice
from plimsoll.tools.top.table import Cell, Table

_STATES = {FREE: "free", PARTLY: "partly used", SHARED: "partly used", TAKEN: "taken"}
_NOTE = "FREE: whole and unused. What claims can get of them: plimsoll top classes."


@dataclass(frozen=True, slots=True)
class GpusReport:
    """Table of physical devices, after their number by product."""

    devices: tuple[PhysicalDevice, ...]
    closed: dict[str, NodeRow]  #: nodes that take no pods: not ready or cordoned
    limit: int = 0

    def lines(self, paint: Paint, *, wide: bool = False) -> Iterator[str]:
        if not self.devices:
            yield "No GPUs or other accelerators found."
            return
        yield from self._product_table().lines(paint, wide=wide)
        on_closed = sum(each.state == FREE and each.parts[0].node in self.closed for each in self.devices)
        if on_closed:
            yield f"UNAVAIL. includes {on_closed:,} free on nodes that are not ready or cordoned."
        yield _NOTE
        yield ""
        shown = self.devices[: self.limit] if self.limit else self.devices
        drivers = wide or len({each.parts[0].driver for each in self.devices}) > 1
        columns = {
            "DRIVER": drivers,
            "PRODUCT": any(each.product for each in self.devices),
            ">MEMORY": any(each.memory is not None for each in self.devices),
        }
        optional = tuple(name for name, is_shown in columns.items() if is_shown)
        table = Table(
            ("NODE", "DEVICE", *optional, "=STATE", "STILL FITS", "HELD BY / WHY NOT"), optional=optional
        )
        for each in shown:
            first = each.parts[0]
            node = label_of(self.closed[first.node]) if first.node in self.closed else place_of(first)
            memory = "-" if each.memory is None else format_capacity("memory", each.memory)
            described = {"DRIVER": first.driver, "PRODUCT": each.product or "-", ">MEMORY": memory}
            table.add(
                node,
                device_name(first.pool, each.name, first.node),
                *(described[name] for name in optional),
                Cell(_STATES.get(each.state, each.state), COLORS[each.state]),
                [*_fits(each, wide)] or "-",
                _holders(each) or "-",
            )
        yield from table.lines(paint, wide=wide)
        yield from not_shown(len(self.devices) - len(shown), "device")

    def _product_table(self) -> Table:
        """Build the table of products, with totals if there are several."""
        counts: dict[str, Counter[str]] = {}
        for each in self.devices:
            state = {FREE: FREE, PARTLY: PARTLY, SHARED: PARTLY, TAKEN: TAKEN}.get(each.state, "")
            if state == FREE and each.parts[0].node in self.closed:
                state = ""
            counts.setdefault(each.product or each.parts[0].driver, Counter())[state] += 1
        rows = sorted(counts.items())
        if len(rows) > 1:
            rows.append(("all", sum(counts.values(), Counter())))
        table = Table(("PRODUCT", ">DEVICES", ">FREE", ">PARTLY USED", ">TAKEN", ">UNAVAIL."))
        for name, count in rows:
            table.add(name, str(count.total()), *(str(count[state]) for state in (FREE, PARTLY, TAKEN, "")))
        return table

    def as_json(self) -> dict[str, Any]:
        shown = self.devices[: self.limit] if self.limit else self.devices
        return {
            "gpus": [
                {**each.as_json(), "nodeAvailable": each.parts[0].node not in self.closed} for each in shown
            ],
            "notShown": len(self.devices) - len(shown),
        }


def _fits(device: PhysicalDevice, wide: bool) -> Iterator[str]:
    """Yield what can still be allocated: shared capacity, the whole device, or partitions by type."""
    if len(device.parts) == 1 and device.parts[0].shareable:
        yield from remaining_shares(device.parts[0])
        return
    if "" in device.fits:
        yield "whole"
    if wide or "" not in device.fits:
        yield from (f"{name} {number}" for name, number in device.fits.items() if name and number)


def _holders(device: PhysicalDevice) -> list[str]:
    """Return the holders, each once, with the partitions that it has; else why nothing fits."""
    held: Counter[tuple[str, str]] = Counter()
    for part in device.parts:
        for text in format_holders(part):
            held[text, "" if part is device.whole else part.partition or part.device] += 1
    found = [
        text + (f" ({kind}{f' x{number}' if number > 1 else ''})" if kind else "")
        for (text, kind), number in held.items()
    ]
    why = next((part.why for part in device.parts if part.why), "")
    return [*([why] if why and device.state in UNAVAILABLE else []), *found]
