"""Texts of amounts and shares, the same in all tools: 9.85 (cpu), 31.2Gi (memory), 85%.

`format_short` is for people: in tables, messages and the dashboard. `format_amount` is the exact Kubernetes
quantity, for JSON and YAML output and for values to apply.
"""

from __future__ import annotations

from plimsoll.ledger.amounts import is_huge_page
from plimsoll.ledger.units import CPU, PODS, STANDARD_RESOURCES, from_units, is_extended_resource

_UNITS = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


def format_amount(resource: str, units: int) -> str:
    """Format an amount in ledger units as a Kubernetes quantity."""
    return str(units) if resource == PODS else str(from_units(resource, units))


def resource_order(resource: str) -> tuple[int, str]:
    """Return the sort key of a resource: cpu, memory, ephemeral-storage, huge pages, then by name."""
    if resource in STANDARD_RESOURCES:
        return STANDARD_RESOURCES.index(resource), ""
    return (len(STANDARD_RESOURCES) if is_huge_page(resource) else len(STANDARD_RESOURCES) + 1), resource


def format_short(resource: str, units: int) -> str:
    """Format an amount for people: exact for cores and counts, one decimal for bytes."""
    if resource == CPU:
        cores, milli = divmod(abs(units), 1000)
        text = f"{cores}.{milli:03d}".rstrip("0").rstrip(".") if milli else str(cores)
        return f"-{text}" if units < 0 else text
    if resource == PODS or is_extended_resource(resource) or "/" in resource:
        return format_amount(resource, units)
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
