"""Devices that look like a part of the node itself: CPUs, memory, huge pages.

Owns the guess what an allocation takes from its node when nobody says so. Drivers of node resources are known
by name (`SURE`); of any other driver the names of capacities and attributes are a hint, never more, and what
is told about it is worded so. A capacity called memory is a hint for nothing: GPUs have memory of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from plimsoll.api.quantity import ZERO, Quantity
from plimsoll.api.resource import Device, DeviceRequestAllocationResult
from plimsoll.ledger.units import CPU, MEMORY

#: Drivers that hand out what the node counts as its own.
SURE = {"dra.cpu": CPU, "dra.memory": MEMORY}
_CPU_NAMES = frozenset({"cpu", "cpus"})
_ONE = Quantity.of(1)


@dataclass(frozen=True, slots=True)
class NodeResourceGuess:
    """A device that is, or looks like, so much of a node's resource."""

    resource: str
    amount: Quantity
    sure: bool
    why: str  #: what gives it away
    capacity: str = ""  #: the capacity it goes by


def guess_node_resources(driver: str, device: Device) -> Iterator[NodeResourceGuess]:
    """What a whole device is of its node."""
    sure = SURE.get(driver, "")
    for name, entry in device.capacity.items():
        last = name.rpartition("/")[2].lower()
        resource = ""
        if last in _CPU_NAMES:
            resource = CPU
        elif last.startswith("hugepages-"):
            resource = last.replace("ki", "Ki").replace("mi", "Mi").replace("gi", "Gi")
        elif sure == MEMORY and last in ("memory", "size"):
            resource = MEMORY
        if resource:
            yield NodeResourceGuess(resource, entry.value or ZERO, bool(sure), f"capacity {name}", name)
            return
    for name in device.attributes:
        if name.rpartition("/")[2] == "cpuID":
            yield NodeResourceGuess(CPU, _ONE, bool(sure), f"attribute {name}")
            return


def taken_by(result: DeviceRequestAllocationResult, device: Device) -> Iterator[NodeResourceGuess]:
    """What an allocation takes of its node: its share, or all that the device is."""
    if result.admin_access:
        return
    for guess in guess_node_resources(result.driver, device):
        consumed = result.consumed_capacity.get(guess.capacity)
        amount = guess.amount if consumed is None else consumed
        if consumed is None and device.allow_multiple_allocations and result.consumed_capacity:
            continue  # a share of something else
        yield NodeResourceGuess(guess.resource, amount, guess.sure, guess.why, guess.capacity)
