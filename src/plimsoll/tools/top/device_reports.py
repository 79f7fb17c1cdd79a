"""Reports of devices, pools and claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from plimsoll.allocator.availability import BLOCKED, FREE, PARTLY, SHARED, TAINTED, TAKEN
from plimsoll.api.quantity import ZERO, Format, Quantity
from plimsoll.ledger.messages import format_reason
from plimsoll.tools.amounts import format_quantity, format_short, short_bytes
from plimsoll.tools.colors import Paint
from plimsoll.tools.columns import format_count
from plimsoll.tools.top import claims as claim_words
from plimsoll.tools.top.claims import ClaimChargeRow, ClaimRow
from plimsoll.tools.top.device_holders import DeviceHolder
from plimsoll.tools.top.devices import STALE, STATES, DeviceRow, is_memory, plain_name
from plimsoll.tools.top.list_report import ListReport, not_shown
from plimsoll.tools.top.physical import COUNTED
from plimsoll.tools.top.pools import PoolRow
from plimsoll.tools.top.table import Cell, Table
from plimsoll.tools.top.uncounted_notes import UncountedNote

COLORS = {
    FREE: "green",
    PARTLY: "yellow",
    SHARED: "yellow",
    TAKEN: "",
    BLOCKED: "dim",
    TAINTED: "red",
    STALE: "red",
}
_LEFT = "LEFT OF SHARES AND COUNTERS"
#: Counters of a pool that are listed one by one.
_COUNTERS = 4


def _state_cell(state: str) -> Cell:
    if state.startswith(claim_words.DELETED):
        return Cell(state, "red")
    return Cell(state, "dim" if state == claim_words.PENDING else "")


# -- devices


@dataclass(frozen=True)
class DevicesReport(ListReport[DeviceRow]):
    """Table of devices, after the states of the physical devices that they are parts of."""

    view, word, empty = "devices", "device", "No devices found: no ResourceSlice publishes any."

    physical: Counter[str]  #: state -> physical devices

    def row_lines(self, paint: Paint, wide: bool) -> Iterator[str]:
        states = ", ".join(f"{self.physical[state]:,} {state}" for state in STATES if self.physical[state])
        number = self.physical.total()
        partitions = f", {len(self.rows):,} with partitions" if len(self.rows) != number else ""
        yield f"{format_count(number, 'device')}{partitions}: {states}"
        yield ""
        yield from device_table(self.rows, paint, wide=wide, limit=self.limit)

    def as_json(self) -> dict[str, Any]:
        return {
            **super().as_json(),
            "states": {state: sum(row.state == state for row in self.rows) for state in STATES},
            "physicalStates": {state: self.physical[state] for state in STATES},
        }


def device_table(
    rows: Sequence[DeviceRow], paint: Paint, *, wide: bool, limit: int = 0, node: str = ""
) -> Iterator[str]:
    """Yield the device table: state, remaining capacity and holders; no NODE column if `node` is given.

    A wide table also has product and memory, where drivers publish them.
    """
    shown = rows[:limit] if limit else rows
    several = len({row.driver for row in rows}) > 1 or wide
    described = wide and any(row.product or row.memory is not None for row in rows)
    shares = any(row.shareable for row in rows)
    table = Table(
        (
            *(() if node else ("NODE",)),
            "DEVICE",
            *(("DRIVER",) if several else ()),
            *(("PRODUCT", ">MEMORY") if described else ()),
            "=STATE",
            *(("LEFT",) if shares else ()),
            "HELD BY / WHY NOT",
        ),
        optional=("DRIVER",),
    )
    for row in shown:
        memory = "-" if row.memory is None else format_capacity("memory", row.memory)
        table.add(
            *(() if node else (place_of(row),)),
            device_name(row.pool, row.device, row.node),
            *((row.driver,) if several else ()),
            *((row.product or "-", memory) if described else ()),
            Cell(row.state, COLORS[row.state]),
            *(([*remaining_shares(row)] or "-",) if shares else ()),
            _why(row),
        )
    yield from table.lines(paint, wide=wide)
    yield from not_shown(len(rows) - len(shown), "device")


def place_of(row: DeviceRow) -> str:
    """Return the node of a device, "several" if it has no single node, "-" if it is not published."""
    return row.node or ("-" if row.state == STALE else "several")


def device_name(pool: str, device: str, node: str) -> str:
    """Return POOL/DEVICE without a pool name that only repeats the node."""
    return device if pool == node else f"{pool}/{device}"


def format_capacity(name: str, amount: Quantity) -> str:
    """Format an amount of a capacity or counter: memory in one unit, however it is published."""
    if is_memory(name) or amount.format is Format.BINARY_SI:
        return short_bytes(amount.nano // 10**9)
    return format_quantity(amount)


def format_left(name: str, left: Quantity, total: Quantity) -> str:
    """Format what is left of a capacity or counter: `memory 40Gi of 80Gi`."""
    return f"{plain_name(name)} {format_capacity(name, left)} of {format_capacity(name, total)}"


def remaining_shares(row: DeviceRow) -> Iterator[str]:
    """Yield the remaining capacities of a shareable device."""
    if row.shareable and row.state != STALE:
        for name, (total, _) in row.capacity.items():
            yield format_left(name, row.left(name), total)


def format_holders(row: DeviceRow) -> Iterator[str]:
    """Yield the holders of a device: `ns/claim (memory 4Gi)`, those with admin access last."""
    for holder in sorted(row.holders, key=lambda holder: holder.admin):
        inside = _usage_of(holder)
        extra = f" ({' '.join(inside)})" if inside else ""
        yield f"{holder.namespace}/{holder.claim}{extra}"


def _usage_of(holder: DeviceHolder) -> list[str]:
    """Return the amounts that a claim consumes of a device, and its admin access."""
    amounts = [f"{plain_name(name)} {format_capacity(name, amount)}" for name, amount in holder.consumed]
    return [*amounts, *(["admin access"] if holder.admin else [])]


def _why(row: DeviceRow) -> list[str] | str:
    found = [*([row.why] if row.why else []), *format_holders(row)]
    if row.taints and row.state not in (TAINTED, STALE):
        found.append("taint " + " ".join(row.taints))
    return found or "-"


# -- pools


@dataclass(frozen=True)
class PoolsReport(ListReport[PoolRow]):
    """Table of pools with device counts and remaining shares and counters."""

    view, word, empty = "pools", "pool", "No pools found: there are no ResourceSlices."

    def row_lines(self, paint: Paint, wide: bool) -> Iterator[str]:
        broken = [row for row in self.rows if not row.complete]
        if broken:
            yield paint.red(f"{format_count(len(broken), 'pool')} not usable:")
            for row in broken[:5]:
                yield paint.red(f"  {row.driver}/{row.pool}: {row.standing}, {row.why}")
            if len(broken) > 5:
                yield paint.red(f"  and {len(broken) - 5:,} more")
            yield ""
        several = len({row.driver for row in self.rows}) > 1 or wide
        headings = ["POOL", *(["DRIVER"] if several else []), "NODE"]
        headings += [">DEVICES", ">FREE", ">PARTLY", ">TAKEN", ">UNAVAIL."]
        if wide:
            headings += [">PARTS", ">GEN", ">SLICES"]
        table = Table((*headings, _LEFT), optional=("NODE", _LEFT, "DRIVER"))
        for row in self.shown:
            table.add(*self._cells(row, several, wide))
        yield from table.lines(paint, wide=wide)
        yield from self.rest_lines()
        if len(self.rows) > 1:
            total = {state: sum(row.devices[state] for row in self.rows) for state in COUNTED}
            pools, devices = format_count(len(self.rows), "pool"), format_count(total.pop("all"), "device")
            yield f"{pools}, {devices}: {', '.join(f'{number:,} {state}' for state, number in total.items())}"

    def _cells(self, row: PoolRow, several: bool, wide: bool) -> list[Any]:
        every, free, *used = (row.devices[state] for state in COUNTED)
        cells = [Cell(row.pool, "" if row.complete else "red"), *([row.driver] if several else [])]
        cells += [
            row.node or ("several" if row.complete else "-"),
            str(every),
            Cell(str(free), "green" if free else ""),
            *map(str, used),
        ]
        if wide:
            cells += [str(row.partitions), str(row.generation), f"{row.slices}/{row.expected}"]
        left = [format_left(name, rest, total) for name, (total, rest) in row.shares.items()]
        return [*cells, [*left, *_counters_left(row)] or "-"]


def _counters_left(row: PoolRow) -> Iterator[str]:
    """Yield what is left of the counters: each one of a few, else how many of the counter sets are used."""
    if len(row.counters) <= _COUNTERS:
        for (group, name), (total, rest) in row.counters.items():
            yield f"{group}/{format_left(name, rest, total)}"
        return
    sets = row.counter_sets
    yield f"counter sets: {sets['unused']} unused, {sets['partlyUsed']} partly used, {sets['usedUp']} used up"
    memory = [stock for (_, name), stock in row.counters.items() if is_memory(name)]
    if memory:
        total, rest = (sum((stock[at] for stock in memory), ZERO) for at in (0, 1))
        yield f"their {format_left('memory', rest, total)}"


# -- claims


@dataclass(frozen=True)
class ClaimsReport(ListReport[ClaimRow]):
    """Table of claims with devices and charges; `alone` for a single claim requested by name."""

    view, word, empty = "claims", "claim", "No claims found."

    alone: bool = False
    uncounted: UncountedNote = field(default_factory=UncountedNote)

    def row_lines(self, paint: Paint, wide: bool) -> Iterator[str]:
        if self.alone:
            yield from _claim_lines(self.rows[0], paint)
            yield from self.uncounted.lines(paint)
            return
        states = Counter(row.state for row in self.rows)
        shown_text = ", ".join(f"{states[state]:,} {state}" for state in claim_words.STATES if states[state])
        yield f"{format_count(len(self.rows), 'claim')}: {shown_text}"
        yield ""
        table = Table(("CLAIM", "=STATE", "NODE", "PODS", "CHARGES", "DEVICES"), optional=("CHARGES", "PODS"))
        for row in self.shown:
            table.add(
                f"{row.namespace}/{row.claim}",
                _state_cell(row.state),
                row.node or "-",
                row.reserved_for or "-",
                [*charges_of(row)] or "-",
                [*_devices(row)] or "-",
            )
        yield from table.lines(paint, wide=wide)
        for row in self.shown:
            if row.problem is not None:
                yield paint.red(f"{row.namespace}/{row.claim} cannot be priced: {format_reason(row.problem)}")
        yield from self.rest_lines()
        if any(row.charges and not row.booked for row in self.shown):
            yield "(...) would be charged: no scheduled pod uses the claim."
        if self.uncounted:
            yield ""
            yield from self.uncounted.lines(paint)

    def as_json(self) -> dict[str, Any]:
        extra = {"notCounted": self.uncounted.as_json()} if self.uncounted else {}
        return {**super().as_json(), **extra}


def _claim_lines(row: ClaimRow, paint: Paint) -> Iterator[str]:
    """Yield the details of one claim."""
    where = f" on {row.node}" if row.node else ""
    yield f"{paint.bold(f'{row.namespace}/{row.claim}')}: {row.state}{where}"
    pods = ", ".join(row.reserved_for) or "no pod"
    yield f"  class      {', '.join(row.classes) or '-'}"
    yield f"  reserved   for {pods}"
    for text in _devices(row):
        yield f"  device     {text}"
    for text in charges_of(row):
        yield f"  charges    {text}"
    if row.problem is not None:
        yield paint.red(f"  charges    cannot be computed: {format_reason(row.problem)}")
    elif not row.charges and not row.inside and not row.uncounted:
        yield "  charges    nothing to its node"
    elif row.charges and not row.booked:
        yield "  (...)      would be charged: no scheduled pod uses the claim"


def charges_of(row: ClaimRow) -> Iterator[str]:
    """Yield the charges as `cpu 6 AddPerClaim`; in parentheses if they are not charged yet."""
    for charge in row.charges:
        text = _charge(charge)
        yield text if row.booked else f"({text})"
    for resource in row.inside:
        yield f"{resource} in pod-level request"
    for resource, amount in row.uncounted:
        yield f"{resource} {format_short(resource, amount)} not counted"


def _charge(charge: ClaimChargeRow) -> str:
    drawn = "" if charge.drawn is None else f" ({format_short(charge.resource, charge.drawn)} drawn)"
    return f"{charge.resource} {format_short(charge.resource, charge.amount)} {charge.rule}{drawn}"


def _devices(row: ClaimRow) -> Iterator[str]:
    for device, holder in row.devices:
        parts = _usage_of(holder)
        cpus = row.cpus.get(device)
        if cpus:
            parts.append(f"CPUs {cpus}")
        extra = f" ({'; '.join(parts)})" if parts else ""
        yield f"{device_name(device.pool, device.device, row.node)}{extra}"
