"""A node's CPUs as a map: sockets, NUMA nodes, L3 caches, cores, and who holds what.

Owns `read_topology`. The map is made from what a driver has published: the annotation
`plimsoll.dev/cpu-topology` of its slices, or devices that stand for one CPU each. Who holds a CPU is read
from the status of claims (`data.cpuset`) and from such devices. Nothing that others wrote is trusted: what
cannot be read is passed by, and a map has an end. Pure. docs/dashboard.md, "The map of CPUs".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from plimsoll.api import codec
from plimsoll.api.cpuset import EMPTY, CpuSet
from plimsoll.api.resource import DeviceAttribute, ResourceClaim, ResourceSlice
from plimsoll.errors import InputError
from plimsoll.tools.dashboard.devices import newest_slices
from plimsoll.tools.picture import Picture

ANNOTATION = "plimsoll.dev/cpu-topology"
#: Larger annotations, and machines with more CPUs, are not drawn.
MOST_BYTES = 128 * 1024
MOST_CPUS = 8192
_NUMA = ("dra.cpu/numaNodeID", "resource.kubernetes.io/numaNode")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a CPU is; what is not known is -1."""

    socket: int
    numa: int
    l3: int
    core: int


@dataclass(frozen=True, slots=True)
class Machine:
    """The CPUs of a node. `fixed` cannot be claimed; `kinds` are those that are not like most."""

    places: Mapping[int, Place]
    source: str
    reserved: CpuSet = EMPTY
    fixed: CpuSet = EMPTY
    offline: CpuSet = EMPTY
    kinds: Mapping[int, str] = field(default_factory=dict)


def read_topology(picture: Picture, node: str, claims: Iterable[ResourceClaim]) -> dict[str, Any] | None:
    """The map of a node as the page draws it; None if nobody published its CPUs."""
    slices = list(newest_slices(picture, node=node))
    devices = cpu_devices(slices)
    machine = read_machine(slices)
    if machine is None:
        return None
    return draw(machine, hold_cpus(claims, devices, {each.spec.pool.name for each in slices}))


# -- what was published


def read_machine(slices: Iterable[ResourceSlice]) -> Machine | None:
    """The CPUs of a node, from an annotation of its slices or else from devices."""
    known = list(slices)
    for each in known:
        text = each.metadata.annotations.get(ANNOTATION)
        if text is not None and (machine := read_annotation(text)) is not None:
            return machine
    return _from_devices(known)


def read_annotation(text: str) -> Machine | None:
    """The CPUs that an annotation describes, or None if it cannot be read."""
    if len(text) > MOST_BYTES:
        return None
    try:
        tree = codec.decode_tree(text)
        places = {}
        for group in tree["groups"]:
            socket, numa, l3 = (_number(group.get(key, -1)) for key in ("socket", "numa", "l3"))
            for core in group["cores"]:
                cpus = _cpus(core)
                first = next(iter(cpus))
                for cpu in cpus:
                    places[cpu] = Place(socket, numa, l3, first)
        if not places or len(places) > MOST_CPUS:
            return None
        kinds = {cpu: str(kind) for kind, cpus in tree.get("kinds", {}).items() for cpu in _cpus(cpus)}
        reserved, shared, offline = (_cpus(tree.get(key, "")) for key in ("reserved", "shared", "offline"))
        return Machine(places, "driver annotation", reserved, shared, offline, kinds)
    except (InputError, KeyError, TypeError, ValueError, AttributeError, StopIteration):
        return None


def _cpus(text: Any) -> CpuSet:
    found = CpuSet.parse(text) if isinstance(text, str) else None
    if found is None or len(found) > MOST_CPUS:
        raise ValueError("no set of CPUs")
    return found


def _number(value: Any) -> int:
    if type(value) is not int or not -1 <= value < 2**31:
        raise ValueError("no number of a socket, node or cache")
    return value


def cpu_devices(slices: Iterable[ResourceSlice]) -> dict[tuple[str, str, str], int]:
    """CPUs by (driver, pool, device), where a device stands for one."""
    return {
        (each.spec.driver, each.spec.pool.name, device.name): cpu
        for each in slices
        for device in each.spec.devices or ()
        if (cpu := _attribute(device.attributes, "dra.cpu/cpuID")) >= 0
    }


def _from_devices(slices: list[ResourceSlice]) -> Machine | None:
    places: dict[int, Place] = {}
    kinds: dict[int, str] = {}
    cores: dict[tuple[int, int], int] = {}
    found = []
    for each in slices:
        for device in each.spec.devices or ():
            cpu = _attribute(device.attributes, "dra.cpu/cpuID")
            if 0 <= cpu < 2**31:
                found.append((cpu, device.attributes))
    for cpu, attributes in sorted(found, key=lambda pair: pair[0])[:MOST_CPUS]:
        socket = _attribute(attributes, "dra.cpu/socketID")
        core = _attribute(attributes, "dra.cpu/coreID")
        numa = max(_attribute(attributes, name) for name in _NUMA)
        first = cores.setdefault((socket, core), cpu) if core >= 0 else cpu
        places[cpu] = Place(socket, numa, _attribute(attributes, "dra.cpu/cacheL3ID"), first)
        kind = attributes.get("dra.cpu/coreType")
        if kind is not None and kind.string_value not in (None, "", "standard"):
            kinds[cpu] = str(kind.string_value)
    return Machine(places, "slices", kinds=kinds) if places else None


def _attribute(attributes: Mapping[str, DeviceAttribute], name: str) -> int:
    """A whole number among attributes, with the driver's domain or without; -1 if there is none."""
    found = attributes.get(name) or attributes.get(name.partition("/")[2])
    return found.int_value if found is not None and found.int_value is not None else -1


# -- who holds it


def cpus_of_claim(claim: ResourceClaim) -> CpuSet:
    """The CPUs that the status of a claim tells."""
    found = EMPTY
    for each in claim.status.devices:
        text = each.data.get("cpuset") if isinstance(each.data, dict) else None
        try:
            found |= _cpus(text)
        except (ValueError, InputError):
            continue
    return found


def hold_cpus(
    claims: Iterable[ResourceClaim], devices: Mapping[tuple[str, str, str], int], pools: set[str]
) -> dict[int, str]:
    """CPUs by the claim that holds them (the first by name, should there be several).

    `devices` stand for one CPU each; only what is told of `pools` is about this node.
    """
    held: dict[int, str] = {}
    for claim in sorted(claims, key=lambda each: (each.metadata.namespace, each.metadata.name)):
        name = f"{claim.metadata.namespace}/{claim.metadata.name}"
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


def draw(machine: Machine, held: Mapping[int, str]) -> dict[str, Any]:
    """Sockets, NUMA nodes, L3 caches, cores and CPUs, one in the other."""
    tree: dict[int, dict[int, dict[int, dict[int, list[dict[str, Any]]]]]] = {}
    for cpu, place in sorted(machine.places.items()):
        numa = tree.setdefault(place.socket, {}).setdefault(place.numa, {})
        cores = numa.setdefault(place.l3, {})
        cores.setdefault(place.core, []).append(_cpu(machine, held, cpu))
    away = sorted({*machine.offline, *held} - machine.places.keys())
    return {
        "source": machine.source,
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


def _cpu(machine: Machine, held: Mapping[int, str], cpu: int) -> dict[str, Any]:
    claim = held.get(cpu)
    if cpu in machine.offline or cpu not in machine.places:
        state = "offline"
    elif claim is not None:
        state = "claimed"
    elif cpu in machine.reserved:
        state = "reserved"
    else:
        state = "shared"
    drawn: dict[str, Any] = {"id": cpu, "state": state, "claim": claim}
    if cpu in machine.fixed or cpu in machine.reserved:
        drawn["claimable"] = False
    if cpu in machine.kinds:
        drawn["kind"] = machine.kinds[cpu]
    return drawn
