"""Slice annotation that describes the machine's CPUs, for tools that display them. Pure.

Grouped devices do not show the topology of their CPUs. The format is that of `api/cpu_map.py`.

DIFF: the Go driver publishes nothing of the kind (test_one_slice_describes_the_machine).
"""

from __future__ import annotations

from plimsoll.api.cpu_map import ANNOTATION, CpuLocation, CpuMap, format_cpu_map
from plimsoll.drivers.cpu.devices.groups import CpuLayout
from plimsoll.drivers.cpu.topology import CoreKind, Topology


def make_annotations(topology: Topology, layout: CpuLayout) -> dict[str, str]:
    """Build the annotations of one slice of the pool."""
    lowest = {core: min(cpus) for core, cpus in topology.cores.items()}
    caches = _cache_names(topology)
    machine = CpuMap(
        locations={
            cpu.id: CpuLocation(cpu.socket, cpu.numa, caches.get(cpu.l3, -1), lowest[cpu.core])
            for cpu in topology.cpus
        },
        reserved=layout.reserved,
        shared=layout.always_shared,
        offline=topology.offline,
        kinds={cpu.id: cpu.kind.value for cpu in topology.cpus if cpu.kind is not CoreKind.STANDARD},
    )
    return {ANNOTATION: format_cpu_map(machine)}


def _cache_names(topology: Topology) -> dict[int, int]:
    """Number caches by the machine's IDs, unless several caches of one NUMA node share an ID."""
    found = {cpu.l3: cpu.l3_id for cpu in topology.cpus if cpu.l3 >= 0}
    near: dict[tuple[int, int, int], set[int]] = {}
    for cpu in topology.cpus:
        if cpu.l3 >= 0:
            near.setdefault((cpu.socket, cpu.numa, cpu.l3_id), set()).add(cpu.l3)
    for caches in near.values():
        if len(caches) > 1:
            found |= {cache: cache for cache in caches}
    return found
