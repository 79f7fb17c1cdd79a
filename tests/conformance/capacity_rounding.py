"""Suite `capacity-rounding`: capacity consumption of requests, and fit.

A row with the quirk `int64-overflow` wraps around upstream; it must be refused.
"""

from __future__ import annotations

from typing import Any

from plimsoll.allocator.devices.capacity import UNDEFINED, CapacityRefusal, Consumption, consume
from plimsoll.api.codec import convert
from plimsoll.api.quantity import ZERO, Quantity
from plimsoll.api.resource import DeviceCapacity

NAME = "c"


def check(row: dict[str, Any]) -> str | None:
    capacity = {NAME: convert(row["capacity"], DeviceCapacity)} if "capacity" in row else {}
    requests = {NAME: Quantity.parse(row["request"])} if "request" in row else {}
    found = consume(requests, capacity)
    fits = isinstance(found, Consumption) and _fits(row, found, capacity)
    if row.get("quirk") == "int64-overflow":
        return "an amount past 64 bits is accepted" if fits else None
    if fits != row["fits"]:
        return f"fits: expected {row['fits']}, got {fits} ({found})"
    undefined = isinstance(found, CapacityRefusal) and found.rule == UNDEFINED
    if undefined != row.get("undefinedCapacity", False):
        return f"undefined capacity: expected {not undefined}, got {undefined}"
    if "consumed" in row and isinstance(found, Consumption):
        consumed = found.amounts.get(NAME)
        # Compared as numbers: the format of rounded amounts is that of Kubernetes 1.37.
        if consumed != Quantity.parse(row["consumed"]):
            return f"consumed: expected {row['consumed']}, got {consumed}"
    return None


def _fits(row: dict[str, Any], found: Consumption, capacity: dict[str, DeviceCapacity]) -> bool:
    already = Quantity.parse(row.get("alreadyConsumed") or "0")
    return all(amount + already <= (capacity[name].value or ZERO) for name, amount in found.amounts.items())
