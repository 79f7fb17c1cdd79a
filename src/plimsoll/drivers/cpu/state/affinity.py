"""CPUs near the other devices of a claim. Pure.

A claim can tie its CPUs to another driver's device (`matchAttribute` with the PCIe root or the NUMA node).
The scheduler then picks a device of CPUs that has the attribute; which of its CPUs are near is decided here.
Owns who is tied to whom (`ties`) and what that means for CPUs (`near_of`).

DIFF: CPUs near the PCIe root that was matched are preferred; the Go driver takes any of the device
(test_problem_11_cpus_near_the_matched_pcie_root).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from operator import and_

from plimsoll.api.cpuset import EMPTY, CpuSet
from plimsoll.api.resource import Device, DeviceAttribute, DeviceRequestAllocationResult, ResourceSlice
from plimsoll.drivers.cpu.settings import DRIVER_NAME
from plimsoll.drivers.cpu.state.holdings import union
from plimsoll.drivers.cpu.topology import Topology
from plimsoll.drivers.plugin.driver import AllocatedClaim

PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
NUMA_NODE = "resource.kubernetes.io/numaNode"
#: Names under which devices tell their NUMA node; all but the first are older than the standard one.
NUMA_NAMES = (NUMA_NODE, "dra.cpu/numaNodeID", "dra.net/numaNode")


def needs_neighbours(claim: AllocatedClaim) -> bool:
    """Whether the slices of other drivers matter for a claim."""
    return bool(ties(claim))


def ties(claim: AllocatedClaim) -> tuple[tuple[str, str, tuple[DeviceRequestAllocationResult, ...]], ...]:
    """Requests for CPUs, the attribute that ties each, and the devices of others that it is tied to."""
    allocation = claim.claim.status.allocation
    if allocation is None:
        return ()
    found: list[tuple[str, str, tuple[DeviceRequestAllocationResult, ...]]] = []
    for constraint in claim.claim.spec.devices.constraints:
        attribute = constraint.match_attribute
        if attribute is None or (attribute != PCIE_ROOT and attribute not in NUMA_NAMES):
            continue
        results = [r for r in allocation.devices.results if _is_for(constraint.requests, r.request)]
        others = tuple(r for r in results if r.driver != DRIVER_NAME and not r.admin_access)
        mine = dict.fromkeys(_base(r.request) for r in results if r.driver == DRIVER_NAME)
        if others:
            found.extend((request, attribute, others) for request in mine)
    return tuple(found)


def near_of(
    claim: AllocatedClaim, slices: Iterable[ResourceSlice], topology: Topology
) -> Mapping[str, CpuSet]:
    """CPUs to prefer, by request; nothing where nothing is known.

    Where there are several devices, CPUs near all of them are best, else near any.
    """
    tied = ties(claim)
    if not tied:
        return {}
    devices = _pick(slices, {(r.driver, r.pool, r.device) for _, _, others in tied for r in others})
    near: dict[str, CpuSet] = {}
    for request, attribute, others in tied:
        places = [
            _near(devices[key].attributes.get(attribute), attribute, topology)
            for key in dict.fromkeys((r.driver, r.pool, r.device) for r in others)
            if key in devices
        ]
        places = [cpus for cpus in places if cpus]
        if not places:
            continue
        cpus = reduce(and_, places) or union(places)
        near[request] = (near[request] & cpus or near[request] | cpus) if request in near else cpus
    return near


def _near(value: DeviceAttribute | None, attribute: str, topology: Topology) -> CpuSet:
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
    """Devices by driver, pool and name; of several generations of a pool the newest counts."""
    found: dict[tuple[str, str, str], Device] = {}
    newest: dict[tuple[str, str, str], int] = {}
    for piece in slices:
        spec = piece.spec
        for device in spec.devices or ():
            key = (spec.driver, spec.pool.name, device.name)
            if key in wanted and spec.pool.generation >= newest.get(key, spec.pool.generation):
                found[key], newest[key] = device, spec.pool.generation
    return found


def _is_for(names: tuple[str, ...], request: str) -> bool:
    return not names or request in names or _base(request) in names


def _base(request: str) -> str:
    return request.partition("/")[0]
