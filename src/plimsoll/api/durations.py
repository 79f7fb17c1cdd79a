"""Durations as Go writes and parses them, such as `1h30m`; in nanoseconds."""

from __future__ import annotations

import re

_MAX = 2**63 - 1
_SECOND = 10**9
_TERM = re.compile(r"(\d*)(?:(\.)(\d*))?([^\d.]+)", re.ASCII)
_UNITS = {
    "ns": 1,
    "us": 1000,
    "µs": 1000,
    "μs": 1000,
    "ms": 10**6,
    "s": _SECOND,
    "m": 60 * _SECOND,
    "h": 3600 * _SECOND,
}


def parse_duration(text: str) -> int | None:
    """Parse a duration such as `1h30m` or `-1.5s`; None if it is invalid or does not fit into 64 bits."""
    body = text[1:] if text[:1] in ("-", "+") else text
    if body == "0":
        return 0
    if not body:
        return None
    total = at = 0
    while at < len(body):
        match = _TERM.match(body, at)
        if match is None or not (match[1] or match[3]):
            return None
        unit = _UNITS.get(match[4])
        if unit is None or len(match[1].lstrip("0")) > 19:
            return None
        total += int(match[1] or "0") * unit + _fraction(match[3] or "", unit)
        if total > _MAX + 1:
            return None
        at = match.end()
    if text.startswith("-"):
        return -total
    return total if total <= _MAX else None


def _fraction(digits: str, unit: int) -> int:
    """Return the fraction of a unit in nanoseconds, through a double as Go computes it."""
    value, scale = 0, 1.0
    for digit in digits:
        if value > _MAX // 10 or value * 10 + int(digit) > _MAX + 1:
            break  # further digits are below the double's precision
        value = value * 10 + int(digit)
        scale *= 10
    return int(float(value) * (float(unit) / scale)) if value else 0
