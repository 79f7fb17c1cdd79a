"""Report of GPUs and other accelerators: one row per physical device, with its partitions and holders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
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
from plimsoll.tools.top.physical import PARTITIONS, WHOLE, PhysicalDevice, natural_key
from plimsoll.tools.top.table import Cell, Table

_STATES = {FREE: "free", PARTLY: "partly used", SHARED: "partly used", TAKEN: "taken"}
_NOTE = "FREE devices are unused, with all their partitions. What claims can get: plimsoll top classes."
_TYPES_NOTE = "FREE of a partition type: as many as still fit if no other type is allocated."


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
        if _has_partitions(self.devices):
            yield _TYPES_NOTE
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
        """Build the table of products and their partition types, with totals of several products."""
        products: dict[str, list[PhysicalDevice]] = {}
        for each in self.devices:
            products.setdefault(each.product or each.parts[0].driver, []).append(each)
        table = Table(("PRODUCT", ">DEVICES", ">FREE", ">PARTLY USED", ">TAKEN", ">UNAVAIL."))
        total = Counter[str]()
        for name, devices in sorted(products.items()):
            states = Counter(self._counted_as(each) for each in devices)
            total += states
            _add_counts(table, name, states)
            for kind, count in self._types(devices):
                table.add(f"  {kind or WHOLE}", str(count[""]), str(count[FREE]), "", str(count[TAKEN]), "")
        if len(products) > 1:
            _add_counts(table, "all", total)
        return table

    def _counted_as(self, device: PhysicalDevice) -> str:
        """Return the column of the product table in which a device counts; "" if it is not available."""
        if device.state == FREE and device.parts[0].node in self.closed:
            return ""
        return {FREE: FREE, PARTLY: PARTLY, SHARED: PARTLY, TAKEN: TAKEN}.get(device.state, "")

    def _types(self, devices: Sequence[PhysicalDevice]) -> list[tuple[str, Counter[str]]]:
        """Count the partitions of each type: published (""), those that still fit, and those in use. Whole
        devices are listed if not every device can be allocated as a whole.
        """
        found: dict[str, Counter[str]] = {}
        for device in devices:
            for part in device.parts:
                count = found.setdefault(device.type_of(part), Counter())
                count[""] += 1
                count[TAKEN] += any(not holder.admin for holder in part.holders)
            for kind, number in device.fits.items() if device.parts[0].node not in self.closed else ():
                found[kind][FREE] += number
        if not _has_partitions(devices) or found.get("", Counter())[""] == len(devices):
            found.pop("", None)
        return sorted(found.items(), key=lambda item: natural_key(item[0]))

    def as_json(self) -> dict[str, Any]:
        shown = self.devices[: self.limit] if self.limit else self.devices
        return {
            "gpus": [
                {**each.as_json(), "nodeAvailable": each.parts[0].node not in self.closed} for each in shown
            ],
            "notShown": len(self.devices) - len(shown),
        }


def _add_counts(table: Table, name: str, states: Counter[str]) -> None:
    table.add(name, str(states.total()), *(str(states[state]) for state in (FREE, PARTLY, TAKEN, "")))


def _has_partitions(devices: Iterable[PhysicalDevice]) -> bool:
    return any(each.kind == PARTITIONS for each in devices)


def _fits(device: PhysicalDevice, wide: bool) -> Iterator[str]:
    """Yield what can still be allocated: shared capacity, the whole device, or partitions by type."""
    if len(device.parts) == 1 and device.parts[0].shareable:
        yield from remaining_shares(device.parts[0])
        return
    if "" in device.fits:
        yield WHOLE
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
