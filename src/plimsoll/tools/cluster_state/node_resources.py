"""Recognition of devices that are node resources without a mapping: CPUs, memory, huge pages.

The only place that decides it; the claims of such devices are "not counted" (`tools/uncounted.py`), or
counted on request (`assumed_mappings.py`). Drivers of node resources are known by name (`KNOWN_DRIVERS`), or
declared by a DeviceClass with managesNodeAllocatableResources. For other drivers, the names of driver,
capacities and attributes are a hint only, and findings are worded accordingly. A capacity called memory is no
hint: GPUs have their own memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from plimsoll.api.quantity import ZERO, Quantity
from plimsoll.api.resource import Device, DeviceAttribute, DeviceRequestAllocationResult
from plimsoll.ledger.units import CPU, MEMORY

#: Drivers that allocate node resources.
KNOWN_DRIVERS: Mapping[str, str] = {"dra.cpu": CPU, "dra.memory": MEMORY}
_CPU_CAPACITIES = frozenset({"cpu", "cpus"})
_MEMORY_CAPACITIES = frozenset({"memory", "size"})
#: Words in the name of a driver, such as cpu.example.com.
_DRIVER_WORDS = {"cpu": CPU, "cpus": CPU, "memory": MEMORY, "hugepages": MEMORY}
_HUGE_PAGES = "hugepages-"
_ONE = Quantity.of(1)


class NodeResourceGuess(Struct, frozen=True):
    """Amount of a node resource that a device represents or seems to represent."""

    resource: str
    amount: Quantity
    sure: bool
    why: str  #: evidence
    capacity: str = ""  #: capacity that holds the amount


#: Guesses by the identity of the device, which is kept alive so that no other device gets it.
_known: dict[int, tuple[Device, str, tuple[NodeResourceGuess, ...]]] = {}
_MOST = 4096


def guess_node_resources(driver: str, device: Device) -> tuple[NodeResourceGuess, ...]:
    """Return the node resource that an entire device represents, if any.

    Machines of one type share their devices: guesses are found again by the identity of the device.
    """
    known = _known.get(id(device))
    if known is not None and known[1] == driver:
        return known[2]
    found = tuple(_guess(driver, device))
    if len(_known) >= _MOST:
        _known.clear()
    _known[id(device)] = device, driver, found
    return found


def _guess(driver: str, device: Device) -> Iterator[NodeResourceGuess]:
    if not _may_represent(driver, tuple(device.capacity), tuple(device.attributes)):  # most devices
        return
    known = KNOWN_DRIVERS.get(driver, "")
    named = known or _named_resource(driver)
    for name, entry in device.capacity.items():
        resource = _capacity_resource(name, named, device)
        if resource:
            yield NodeResourceGuess(resource, entry.value or ZERO, bool(known), f"capacity {name}", name)
            return
    for name, attribute in device.attributes.items():
        last = _last_part(name)
        if last == "cpuid":
            yield NodeResourceGuess(CPU, _ONE, bool(known), f"attribute {name}")
            return
        count = attribute.int_value or 0 if last == "numcpus" else 0
        if count > 0:
            yield NodeResourceGuess(CPU, Quantity.of(count), bool(known), f"attribute {name}")
            return
    if known == CPU:
        yield NodeResourceGuess(CPU, _ONE, True, f"driver {driver}")


def taken_by(result: DeviceRequestAllocationResult, device: Device) -> Iterator[NodeResourceGuess]:
    """Yield the node resources an allocation takes: its share, or the entire device."""
    if result.admin_access:
        return
    for guess in guess_node_resources(result.driver, device):
        consumed = result.consumed_capacity.get(guess.capacity)
        if consumed is None and device.allow_multiple_allocations and result.consumed_capacity:
            continue  # a share of something else
        yield guess if consumed is None else replace(guess, amount=consumed)


@lru_cache(maxsize=4096)
def _may_represent(driver: str, capacities: tuple[str, ...], attributes: tuple[str, ...]) -> bool:
    """Return whether a device with these names can represent a node resource; False is certain."""
    if driver in KNOWN_DRIVERS or any(_last_part(name) in ("cpuid", "numcpus") for name in attributes):
        return True
    lasts = [_last_part(name) for name in capacities]
    return any(last in _CPU_CAPACITIES or last.startswith(_HUGE_PAGES) for last in lasts) or (
        _named_resource(driver) == MEMORY and any(last in _MEMORY_CAPACITIES for last in lasts)
    )


@lru_cache(maxsize=4096)
def _last_part(name: str) -> str:
    return name.rpartition("/")[2].lower()


@lru_cache(maxsize=4096)
def _named_resource(driver: str) -> str:
    """Return the resource that the name of a driver suggests."""
    words = re.split(r"[.\-]", driver.lower())
    return next((_DRIVER_WORDS[word] for word in words if word in _DRIVER_WORDS), "")


def _capacity_resource(name: str, named: str, device: Device) -> str:
    last = _last_part(name)
    if last in _CPU_CAPACITIES:
        return CPU
    if last.startswith(_HUGE_PAGES):
        return _HUGE_PAGES + _page_size(last.removeprefix(_HUGE_PAGES))
    if named == MEMORY and last in _MEMORY_CAPACITIES:
        size = _huge_page_size(device.attributes)
        return _HUGE_PAGES + size if size else MEMORY
    return ""


def _huge_page_size(attributes: Mapping[str, DeviceAttribute]) -> str:
    """Return the page size of a device of huge pages (attributes hugeTLB and pageSize); "" for others."""
    by_name = {_last_part(name): attribute for name, attribute in attributes.items()}
    huge, size = by_name.get("hugetlb"), by_name.get("pagesize")
    if huge is None or huge.bool_value is not True or size is None or not size.string_value:
        return ""
    return _page_size(size.string_value.lower())


def _page_size(text: str) -> str:
    return text.replace("ki", "Ki").replace("mi", "Mi").replace("gi", "Gi")
