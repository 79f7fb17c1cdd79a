"""`read_topology`: CPU map of a node: sockets, NUMA nodes, L3 caches, cores, and their holders. Pure.

Built from what a driver publishes: the annotation `plimsoll.dev/cpu-topology` of its slices, or devices that
represent one CPU each. Holders are read from the status of claims (`data.cpuset`) and from such devices.
Input is untrusted: invalid parts are ignored and the size is bounded. See docs/dashboard.md, "CPU map".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from plimsoll.api.cpu_map import ANNOTATION, MAX_CPUS, CpuLocation, CpuMap, parse_cpu_map
from plimsoll.api.cpuset import EMPTY, CpuSet
from plimsoll.api.resource import DeviceAttribute, ResourceClaim, ResourceSlice
from plimsoll.errors import InputError
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.dashboard.devices import newest_slices

_NUMA = ("dra.cpu/numaNodeID", "resource.kubernetes.io/numaNode")


def read_topology(
    cluster_state: ClusterState, node: str, claims: Iterable[ResourceClaim]
) -> dict[str, Any] | None:
    """Return the CPU map of a node, or None if no driver published its CPUs."""
    slices = list(newest_slices(cluster_state, node=node))
    devices = cpu_devices(slices)
    found = read_machine(slices)
    if found is None:
        return None
    machine, source = found
    return {"source": source} | draw(
        machine, hold_cpus(claims, devices, {each.spec.pool.name for each in slices})
    )


# -- published CPUs


def read_machine(slices: Iterable[ResourceSlice]) -> tuple[CpuMap, str] | None:
    """Return the CPUs of a node from an annotation of its slices or from devices, and the source."""
    known = list(slices)
    for each in known:
        text = each.metadata.annotations.get(ANNOTATION)
        if text is not None and (machine := parse_cpu_map(text)) is not None:
            return machine, "driver annotation"
    return _from_devices(known)


def cpu_devices(slices: Iterable[ResourceSlice]) -> dict[tuple[str, str, str], int]:
    """Return {(driver, pool, device): CPU} for devices that represent one CPU."""
    return {
        (each.spec.driver, each.spec.pool.name, device.name): cpu
        for each in slices
        for device in each.spec.devices or ()
        if (cpu := _attribute(device.attributes, "dra.cpu/cpuID")) >= 0
    }


def _from_devices(slices: list[ResourceSlice]) -> tuple[CpuMap, str] | None:
    places: dict[int, CpuLocation] = {}
    kinds: dict[int, str] = {}
    cores: dict[tuple[int, int, int, int], int] = {}
    found = []
    for each in slices:
        for device in each.spec.devices or ():
            cpu = _attribute(device.attributes, "dra.cpu/cpuID")
            if 0 <= cpu < 2**31:
                found.append((cpu, device.attributes))
    for cpu, attributes in sorted(found, key=lambda pair: pair[0])[:MAX_CPUS]:
        socket = _attribute(attributes, "dra.cpu/socketID")
        core = _attribute(attributes, "dra.cpu/coreID")
        numa = max(_attribute(attributes, name) for name in _NUMA)
        l3 = _attribute(attributes, "dra.cpu/cacheL3ID")
        # Dies of a socket may reuse core IDs.
        first = cores.setdefault((socket, numa, l3, core), cpu) if core >= 0 else cpu
        places[cpu] = CpuLocation(socket, numa, l3, first)
        kind = attributes.get("dra.cpu/coreType")
        if kind is not None and kind.string_value not in (None, "", "standard"):
            kinds[cpu] = str(kind.string_value)
    return (CpuMap(places, kinds=kinds), "slices") if places else None


def _attribute(attributes: Mapping[str, DeviceAttribute], name: str) -> int:
    """Return an integer attribute, with or without the driver's domain; -1 if it is missing."""
    found = attributes.get(name) or attributes.get(name.partition("/")[2])
    return found.int_value if found is not None and found.int_value is not None else -1


# -- holders


def cpus_of_claim(claim: ResourceClaim) -> CpuSet:
    """Return the CPUs in the status of a claim."""
    found = EMPTY
    for each in claim.status.devices:
        text = each.data.get("cpuset") if isinstance(each.data, dict) else None
        try:
            cpus = CpuSet.parse(text) if isinstance(text, str) else EMPTY
        except InputError:
            continue
        if len(cpus) <= MAX_CPUS:
            found |= cpus
    return found


def hold_cpus(
    claims: Iterable[ResourceClaim], devices: Mapping[tuple[str, str, str], int], pools: set[str]
) -> dict[int, str]:
    """Return {CPU: claim}; the first claim by name wins.

    `devices` represent one CPU each; only status about `pools` is relevant to this node.
    """
    held: dict[int, str] = {}
    for claim in sorted(claims, key=lambda each: each.metadata.key):
        name = claim.metadata.full_name
        allocation = claim.status.allocation
        results = allocation.devices.results if allocation is not None else ()
        if not any(result.pool in pools for result in results):
            continue
        cpus = set(cpus_of_claim(claim))
        cpus |= {
            devices[result.driver, result.pool, result.device]
            for result in results
            if (result.driver, result.pool, result.device) in devices and not result.admin_access
        }
        for cpu in cpus:
            held.setdefault(cpu, name)
    return held


# -- the map


def draw(machine: CpuMap, held: Mapping[int, str]) -> dict[str, Any]:
    """Return the nested tree of sockets, NUMA nodes, L3 caches, cores and CPUs."""
    tree: dict[int, dict[int, dict[int, dict[int, list[dict[str, Any]]]]]] = {}
    for cpu, place in sorted(machine.locations.items()):
        numa = tree.setdefault(place.socket, {}).setdefault(place.numa, {})
        cores = numa.setdefault(place.l3, {})
        cores.setdefault(place.core, []).append(_cpu(machine, held, cpu))
    away = sorted({*machine.offline, *held} - machine.locations.keys())
    return {
        "sockets": [
            {
                "id": socket,
                "numa": [
                    {
                        "id": numa,
                        "l3": [
                            {
                                "id": l3,
                                "cores": [{"id": core, "cpus": cpus} for core, cpus in sorted(cores.items())],
                            }
                            for l3, cores in sorted(caches.items())
                        ],
                    }
                    for numa, caches in sorted(nodes.items())
                ],
            }
            for socket, nodes in sorted(tree.items())
        ],
        "offline": [_cpu(machine, held, cpu) for cpu in away],
    }


def _cpu(machine: CpuMap, held: Mapping[int, str], cpu: int) -> dict[str, Any]:
    claim = held.get(cpu)
    if cpu in machine.offline or cpu not in machine.locations:
        state = "offline"
    elif claim is not None:
        state = "claimed"
    elif cpu in machine.reserved:
        state = "reserved"
    else:
        state = "shared"
    drawn: dict[str, Any] = {"id": cpu, "state": state, "claim": claim}
    if cpu in machine.shared or cpu in machine.reserved:
        drawn["claimable"] = False
    if cpu in machine.kinds:
        drawn["kind"] = machine.kinds[cpu]
    return drawn
