"""Texts of amounts and shares, the same in all tools: 9.85 (cpu), 31.2Gi (memory), 85%.

`format_short` is for people: tables, messages and the dashboard (`assets/app/format.js` has the same rules).
`format_exact` is for values to apply, for amounts that look the same in `format_short`, and for numbers of
explanations in JSON. `format_amount` is the canonical Kubernetes quantity, for other JSON and YAML output.
Shares are truncated, as in kubectl describe.
"""

from __future__ import annotations

from functools import lru_cache

from plimsoll.api.quantity import Quantity
from plimsoll.ledger.amounts import is_huge_page
from plimsoll.ledger.units import CPU, PODS, STANDARD_RESOURCES, from_units, is_extended_resource, to_unit

_UNITS = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


def format_amount(resource: str, units: int) -> str:
    """Format an amount in ledger units as a Kubernetes quantity."""
    return str(units) if resource == PODS else str(from_units(resource, units))


def resource_order(resource: str) -> tuple[int, str]:
    """Return the sort key of a resource: cpu, memory, ephemeral-storage, huge pages, then by name."""
    if resource in STANDARD_RESOURCES:
        return STANDARD_RESOURCES.index(resource), ""
    return (len(STANDARD_RESOURCES) if is_huge_page(resource) else len(STANDARD_RESOURCES) + 1), resource


@lru_cache(maxsize=4096)
def format_short(resource: str, units: int) -> str:
    """Format an amount for people: exact for cores and counts, one decimal for bytes."""
    if resource == CPU:
        cores, milli = divmod(abs(units), 1000)
        text = f"{cores}.{milli:03d}".rstrip("0").rstrip(".") if milli else str(cores)
        return f"-{text}" if units < 0 else text
    if resource == PODS or is_extended_resource(resource) or "/" in resource:
        return str(units)
    return short_bytes(units)


def short_bytes(units: int) -> str:
    """Format bytes with one decimal of the largest binary unit, truncated rather than rounded up."""
    size, unit = abs(units), 0
    while size >= 1024 ** (unit + 1) and unit < len(_UNITS) - 1:
        unit += 1
    integer, rest = divmod(size, 1024**unit)
    tenth = rest * 10 // 1024**unit if integer < 1000 else 0
    text = f"{integer}.{tenth}" if tenth else str(integer)
    return f"{'-' if units < 0 else ''}{text}{_UNITS[unit]}"


def percent(part: int, total: int) -> str:
    """Format usage as a percentage; "over" if something is used of a resource the node does not have."""
    if part < 0 or (total <= 0 and part == 0):
        return "-"
    if total <= 0:
        return "over"
    return f"{part * 100 // total}%"


def format_exact(resource: str, units: int) -> str:
    """Format an amount without loss: 9.85 for cpu, 1.5Gi, or 20324Mi where one decimal is not enough."""
    if resource == CPU:
        return format_short(resource, units)
    exact = format_amount(resource, units)
    short = format_short(resource, units)
    return short if Quantity.parse(short) == Quantity.parse(exact) else exact


def round_amount(resource: str, units: int, *, up: bool = False) -> Quantity:
    """Round a proposed amount of bytes to about three digits, down unless asked otherwise."""
    step = 1
    if "/" not in resource and resource not in (CPU, PODS):
        unit = 1024 ** (max(units.bit_length() - 1, 0) // 10)
        step = unit if units >= 100 * unit else unit // 2 if units >= 10 * unit else unit // 1024
        step = max(step, 1)
    return from_units(resource, units + (-units % step if up else -(units % step)))


def format_distinct(resource: str, *amounts: int) -> tuple[str, ...]:
    """Format amounts that are compared with each other: exactly if different ones would look the same."""
    texts = tuple(format_short(resource, amount) for amount in amounts)
    if len(set(texts)) == len(set(amounts)):
        return texts
    return tuple(format_exact(resource, amount) for amount in amounts)


def format_resource(resource: str, quantity: Quantity) -> str:
    """Format a quantity of a resource as `format_exact` does."""
    return format_exact(resource, to_unit(resource, quantity))


def format_quantity(quantity: Quantity) -> str:
    """Format a quantity of a capacity or counter: as Kubernetes does, but 9.85 instead of 9850m."""
    text = str(quantity)
    if not text.endswith("m"):
        return text
    return format_short(CPU, quantity.milli())
