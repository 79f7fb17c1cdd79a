"""Overdrafts of a snapshot: resources that are overcommitted or allocated twice."""

from __future__ import annotations

from plimsoll.allocator import AllocationFault
from plimsoll.allocator.devices.usage import DeviceUsage
from plimsoll.scheduler.snapshot.snapshot import Snapshot


def find_overdrafts(snapshot: Snapshot) -> list[str]:
    """Return overcommitted node resources, devices allocated twice, and exceeded capacity and counters."""
    found: list[str] = []
    for row in snapshot.rows():
        ledger = snapshot.ledger(row)
        found += [
            f"node {ledger.name}: {name} {left}" for name, left in ledger.headroom().items() if left < 0
        ]
        devices = snapshot.inventory.devices_for(snapshot.node(row))
        if isinstance(devices, AllocationFault):
            continue
        usage = DeviceUsage(devices, snapshot.state)
        found += [
            f"node {ledger.name}: counter {n} {left}" for n, left in enumerate(usage.available) if left < 0
        ]
        for number, entry in enumerate(devices.entries):
            if usage.consumed.get(number) and min(usage.free(number), default=0) < 0:
                found.append(f"device {entry.id}: capacity {usage.free(number)}")
    for device, holding in snapshot.state:
        if holding.exclusive > 1 or (holding.exclusive and holding.shares):
            found.append(f"device {device}: held {holding.exclusive} times, {len(holding.shares)} shares")
    return found
