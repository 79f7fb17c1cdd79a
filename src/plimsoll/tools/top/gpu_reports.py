"""Report of GPUs and other accelerators: one row per physical device, with its partitions and holders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from plimsoll.allocator.availability import FREE, PARTLY, SHARED, TAKEN
from plimsoll.api.identity import DeviceId
from plimsoll.tools.availability import DeviceAvailability, NodeShortage
from plimsoll.tools.colors import Paint
from plimsoll.tools.top.device_reports import (
    COLORS,
    device_name,
    format_capacity,
    format_holders,
    place_of,
    remaining_shares,
)
from plimsoll.tools.top.devices import UNAVAILABLE
from plimsoll.tools.top.list_report import ListReport
from plimsoll.tools.top.physical import PARTITIONS, WHOLE, PhysicalDevice, count_states, natural_key
from plimsoll.tools.top.table import Cell, Table

_STATES = {FREE: "free", PARTLY: "partly used", SHARED: "partly used", TAKEN: "taken"}
_NOTE = "FREE devices are unused, with all their partitions, and their nodes can take claims for them."
_TYPES_NOTE = "FREE of a partition type: as many as still fit if no other type is allocated."


@dataclass(frozen=True)
class GpusReport(ListReport[PhysicalDevice]):
    """Table of physical devices, after their number by product."""

    view, word, empty = "gpus", "device", "No GPUs or other accelerators found."

    availability: DeviceAvailability
    labels: Mapping[str, str]  #: node -> name and status
    closed: Set[str]  #: nodes that take no pods

    def row_lines(self, paint: Paint, wide: bool) -> Iterator[str]:
        yield from self._product_table().lines(paint, wide=wide)
        refused = Counter(filter(None, map(_refusal, self.rows)))
        for text, number in sorted(refused.items()):
            yield f"UNAVAIL. includes {number:,} {text}."
        free = [each for each in self.rows if each.state == FREE]
        excess = len(free) - count_states(free, self.availability)[FREE]
        if excess:
            yield f"UNAVAIL. includes {excess:,} on nodes with too little left for all of them as a whole."
        yield _NOTE
        if _has_partitions(self.rows):
            yield _TYPES_NOTE
        yield ""
        drivers = wide or len({each.parts[0].driver for each in self.rows}) > 1
        columns = {
            "DRIVER": drivers,
            "PRODUCT": any(each.product for each in self.rows),
            ">MEMORY": any(each.memory is not None for each in self.rows),
        }
        optional = tuple(name for name, is_shown in columns.items() if is_shown)
        table = Table(
            ("NODE", "DEVICE", *optional, "=STATE", "STILL FITS", "HELD BY / WHY NOT"), optional=optional
        )
        for each in self.shown:
            first = each.parts[0]
            memory = "-" if each.memory is None else format_capacity("memory", each.memory)
            described = {"DRIVER": first.driver, "PRODUCT": each.product or "-", ">MEMORY": memory}
            table.add(
                self.labels.get(first.node) or place_of(first),
                device_name(first.pool, each.name, first.node),
                *(described[name] for name in optional),
                Cell(_STATES.get(each.state, each.state), COLORS[each.state]),
                [*self._fits(each, wide)] or "-",
                [*_reasons(each), *_holders(each)] or "-",
            )
        yield from table.lines(paint, wide=wide)
        yield from self.rest_lines()

    def _product_table(self) -> Table:
        """Build the table of products and their partition types, with totals of several products."""
        products: dict[str, list[PhysicalDevice]] = {}
        for each in self.rows:
            products.setdefault(each.product or each.parts[0].driver, []).append(each)
        table = Table(("PRODUCT", ">DEVICES", ">FREE", ">PARTLY USED", ">TAKEN", ">UNAVAIL."))
        total = Counter[str]()
        for name, devices in sorted(products.items()):
            states = self._count_states(devices)
            total += states
            _add_counts(table, name, states)
            for kind, count in self._types(devices):
                table.add(f"  {kind or WHOLE}", str(count[""]), str(count[FREE]), "", str(count[TAKEN]), "")
        if len(products) > 1:
            _add_counts(table, "all", total)
        return table

    def _count_states(self, devices: Sequence[PhysicalDevice]) -> Counter[str]:
        """Count devices by the columns of the product table; "" are those that are not available."""
        columns = {FREE: FREE, PARTLY: PARTLY, SHARED: PARTLY, TAKEN: TAKEN}
        counts = Counter[str]()
        for state, number in count_states(devices, self.availability).items():
            counts[columns.get(state, "")] += number
        return counts

    def _types(self, devices: Sequence[PhysicalDevice]) -> list[tuple[str, Counter[str]]]:
        """Count the partitions of each type: published (""), those that still fit, and those in use. Whole
        devices are listed if not every device can be allocated as a whole.
        """
        found: dict[str, Counter[str]] = {}
        available: dict[str, list[DeviceId]] = {}
        for device in devices:
            for part in device.parts:
                count = found.setdefault(device.type_of(part), Counter())
                count[""] += 1
                count[TAKEN] += any(not holder.admin for holder in part.holders)
                if part.is_available:
                    available.setdefault(device.type_of(part), []).append(part.id)
        for kind, ids in available.items():
            found[kind][FREE] = self.availability.count(ids)
        if not _has_partitions(devices) or found.get("", Counter())[""] == len(devices):
            found.pop("", None)
        return sorted(found.items(), key=lambda item: natural_key(item[0]))

    def _fits(self, device: PhysicalDevice, wide: bool) -> Iterator[str]:
        """Yield what can still be allocated: shared capacity, the whole device, or partitions by type."""
        if len(device.parts) == 1 and device.parts[0].shareable:
            yield from remaining_shares(device.parts[0])
            return
        fits = device.count_fitting(self.availability)
        if "" in fits:
            yield WHOLE
        if wide or "" not in fits:
            yield from (f"{name} {number}" for name, number in fits.items() if name)

    def row_json(self, row: PhysicalDevice) -> dict[str, Any]:
        is_available = row.parts[0].node not in self.closed
        return {**row.as_json(self.availability), "nodeAvailable": is_available}


def _add_counts(table: Table, name: str, states: Counter[str]) -> None:
    table.add(name, str(states.total()), *(str(states[state]) for state in (FREE, PARTLY, TAKEN, "")))


def _refusal(device: PhysicalDevice) -> str:
    """Return why the node of an unused device does not take claims for it; "" if it does."""
    refusal = next((part.refusal for part in device.parts if part.refusal), None)
    if refusal is None or device.is_held or device.state == FREE:
        return ""
    if isinstance(refusal, NodeShortage):
        return f"on nodes with too little {refusal.resource} left"
    return f"on nodes that take no pods ({refusal})"


def _reasons(device: PhysicalDevice) -> list[str]:
    """Return why nothing of a device fits."""
    found = (part.why for part in device.parts if part.why)
    return [next(found, "")] if device.state in UNAVAILABLE else []


def _has_partitions(devices: Iterable[PhysicalDevice]) -> bool:
    return any(each.kind == PARTITIONS for each in devices)


def _holders(device: PhysicalDevice) -> list[str]:
    """Return the holders, each once, with the partitions that it has."""
    held: Counter[tuple[str, str]] = Counter()
    for part in device.parts:
        for text in format_holders(part):
            held[text, "" if part is device.whole else part.partition or part.device] += 1
    return [
        text + (f" ({kind}{f' x{number}' if number > 1 else ''})" if kind else "")
        for (text, kind), number in held.items()
    ]
