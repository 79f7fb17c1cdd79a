"""Guesses of the node resources that a device represents without a mapping: CPUs, memory, huge pages.

Drivers of node resources are known by name (`SURE`). For other drivers, capacity and attribute names are a
hint only, and findings are worded accordingly. A capacity called memory is no hint: GPUs have their own
memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from plimsoll.api.quantity import ZERO, Quantity
from plimsoll.api.resource import Device, DeviceRequestAllocationResult
from plimsoll.ledger.units import CPU, MEMORY

#: Drivers that allocate node resources.
SURE = {"dra.cpu": CPU, "dra.memory": MEMORY}
_CPU_NAMES = frozenset({"cpu", "cpus"})
_ONE = Quantity.of(1)


@dataclass(frozen=True, slots=True)
class NodeResourceGuess:
    """Amount of a node resource that a device represents or seems to represent."""

    resource: str
    amount: Quantity
    sure: bool
    why: str  #: evidence
    capacity: str = ""  #: capacity that holds the amount


def guess_node_resources(driver: str, device: Device) -> Iterator[NodeResourceGuess]:
    """Yield the node resources that an entire device represents."""
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
    """Yield the node resources an allocation takes: its share, or the entire device."""
    if result.admin_access:
        return
    for guess in guess_node_resources(result.driver, device):
        consumed = result.consumed_capacity.get(guess.capacity)
        amount = guess.amount if consumed is None else consumed
        if consumed is None and device.allow_multiple_allocations and result.consumed_capacity:
            continue  # a share of something else
        yield NodeResourceGuess(guess.resource, amount, guess.sure, guess.why, guess.capacity)
