"""The machine described for who wants to draw it. Pure.

Owns `make_annotations`: what is said about the CPUs of a node beside its devices, which in groups do not tell
where their CPUs are. The form is that of `api/cpu_map.py`.

DIFF: the Go driver says nothing of the kind (test_one_slice_describes_the_machine).
"""

from __future__ import annotations

from plimsoll.api.cpu_map import ANNOTATION, CpuLocation, CpuMap, format_cpu_map
from plimsoll.drivers.cpu.devices.groups import Arrangement
from plimsoll.drivers.cpu.topology import CoreKind, Topology


def make_annotations(topology: Topology, arrangement: Arrangement) -> dict[str, str]:
    """What one slice of the pool says about the machine."""
    lowest = {core: min(cpus) for core, cpus in topology.cores.items()}
    caches = _cache_names(topology)
    machine = CpuMap(
        places={
            cpu.id: CpuLocation(cpu.socket, cpu.numa, caches.get(cpu.l3, -1), lowest[cpu.core])
            for cpu in topology.cpus
        },
        reserved=arrangement.reserved,
        shared=arrangement.floor,
        offline=topology.offline,
        kinds={cpu.id: cpu.kind.value for cpu in topology.cpus if cpu.kind is not CoreKind.STANDARD},
    )
    return {ANNOTATION: format_cpu_map(machine)}


def _cache_names(topology: Topology) -> dict[int, int]:
    """Caches by the numbers that the machine itself gives them, unless several near each other share one."""
    found = {cpu.l3: cpu.l3_id for cpu in topology.cpus if cpu.l3 >= 0}
    near: dict[tuple[int, int, int], set[int]] = {}
    for cpu in topology.cpus:
        if cpu.l3 >= 0:
            near.setdefault((cpu.socket, cpu.numa, cpu.l3_id), set()).add(cpu.l3)
    for caches in near.values():
        if len(caches) > 1:
            found |= {cache: cache for cache in caches}
    return found
