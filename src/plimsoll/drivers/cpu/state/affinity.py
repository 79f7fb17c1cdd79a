"""CPU affinity to other devices of a claim. Pure.

A claim can align its CPUs with another driver's device (`matchAttribute` with the PCIe root or the NUMA
node). The scheduler then picks a CPU device with that attribute; `find_affinity` selects which of its CPUs
are local to the other device.

DIFF: CPUs local to the matched PCIe root are preferred; the Go driver takes any CPU of the device
(test_problem_11_cpus_near_the_matched_pcie_root).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from operator import and_

from plimsoll.api.cpuset import EMPTY, CpuSet, union
from plimsoll.api.resource import (
    NUMA_NODE,
    PCIE_ROOT,
    Device,
    DeviceAttribute,
    DeviceRequestAllocationResult,
    ResourceSlice,
)
from plimsoll.drivers.cpu.settings import DRIVER_NAME
from plimsoll.drivers.cpu.topology import Topology
from plimsoll.drivers.plugin.driver import AllocatedClaim, applies_to

#: Attributes with the NUMA node of a device; all but the first predate the standard one.
NUMA_NAMES = (NUMA_NODE, "dra.cpu/numaNodeID", "dra.net/numaNode")


def needs_affinity(claim: AllocatedClaim) -> bool:
    """Report whether the slices of other drivers matter for a claim."""
    return bool(find_constraints(claim))


def find_constraints(
    claim: AllocatedClaim,
) -> tuple[tuple[str, str, tuple[DeviceRequestAllocationResult, ...]], ...]:
    """Return CPU requests with their matched attribute and the devices of other drivers they match."""
    allocation = claim.claim.status.allocation
    if allocation is None:
        return ()
    found: list[tuple[str, str, tuple[DeviceRequestAllocationResult, ...]]] = []
    for constraint in claim.claim.spec.devices.constraints:
        attribute = constraint.match_attribute
        if attribute is None or (attribute != PCIE_ROOT and attribute not in NUMA_NAMES):
            continue
        results = [r for r in allocation.devices.results if applies_to(constraint.requests, r.request)]
        others = tuple(r for r in results if r.driver != DRIVER_NAME and not r.admin_access)
        mine = dict.fromkeys(_base(r.request) for r in results if r.driver == DRIVER_NAME)
        if others:
            found.extend((request, attribute, others) for request in mine)
    return tuple(found)


def find_affinity(
    claim: AllocatedClaim, slices: Iterable[ResourceSlice], topology: Topology
) -> Mapping[str, CpuSet]:
    """Return the CPUs to prefer, by request; nothing if unknown.

    With several devices, CPUs local to all of them are preferred, else CPUs local to any.
    """
    constraints = find_constraints(claim)
    if not constraints:
        return {}
    devices = _pick(slices, {(r.driver, r.pool, r.device) for _, _, others in constraints for r in others})
    affinity: dict[str, CpuSet] = {}
    for request, attribute, others in constraints:
        places = [
            _find_affinity(devices[key].attributes.get(attribute), attribute, topology)
            for key in dict.fromkeys((r.driver, r.pool, r.device) for r in others)
            if key in devices
        ]
        places = [cpus for cpus in places if cpus]
        if not places:
            continue
        cpus = reduce(and_, places) or union(places)
        affinity[request] = (
            (affinity[request] & cpus or affinity[request] | cpus) if request in affinity else cpus
        )
    return affinity


def _find_affinity(value: DeviceAttribute | None, attribute: str, topology: Topology) -> CpuSet:
    if value is None:
        return EMPTY
    if attribute == PCIE_ROOT:
        roots = {value.string_value, *(value.string_values or ())} - {None}
        return CpuSet(cpu.id for cpu in topology.cpus if roots.intersection(cpu.pcie_roots))
    nodes = {value.int_value, *(value.int_values or ())}
    return CpuSet(cpu.id for cpu in topology.cpus if cpu.numa >= 0 and cpu.numa in nodes)


def _pick(
    slices: Iterable[ResourceSlice], wanted: set[tuple[str, str, str]]
) -> dict[tuple[str, str, str], Device]:
    """Return devices by driver, pool and name, from the newest generation of each pool."""
    found: dict[tuple[str, str, str], Device] = {}
    newest: dict[tuple[str, str, str], int] = {}
    for piece in slices:
        spec = piece.spec
        for device in spec.devices or ():
            key = (spec.driver, spec.pool.name, device.name)
            if key in wanted and spec.pool.generation >= newest.get(key, spec.pool.generation):
                found[key], newest[key] = device, spec.pool.generation
    return found


def _base(request: str) -> str:
    return request.partition("/")[0]
