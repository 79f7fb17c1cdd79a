"""Precomputed topology masks for the CPU allocator, cached per topology. Pure.

`TopologyTables` holds sockets, NUMA nodes, L3 caches and cores as masks with one bit per CPU, and their
nesting.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from plimsoll.drivers.cpu.topology import Cpu, Topology


class CpuGroup(NamedTuple):
    """CPUs of one socket, NUMA node, cache or core.

    `inside` are those that are also in the enclosing group (a core may extend beyond its NUMA node if IDs are
    not unique). `whole` is the number of free CPUs at which the group counts as completely free.
    """

    id: int
    mask: int
    inside: int
    size: int
    whole: int


Groups: TypeAlias = tuple[CpuGroup, ...]


@dataclass(frozen=True, slots=True)
class TopologyTables:
    """Groups of a machine, sorted by ID.

    With `quirks`, the sizes of cores, sockets and caches are quotients of machine-wide counts, as in the
    kubelet; on machines with uneven cores they are wrong. Without, they are the real sizes.

    `lower` are the NUMA nodes of each socket, or the sockets of each NUMA node if there are at least as many
    sockets as nodes; `cores` are keyed by the ID of the lower group.
    """

    quirks: bool
    all: int
    numa_first: bool
    sockets: Groups
    numas: Groups
    lower: dict[int, Groups]
    cores: dict[int, Groups]
    caches: dict[int, Groups]
    cache_cores: dict[int, Groups]
    per_core: int
    per_cache: int
    least_socket: int
    least_numa: int
    least_cache: int
    least_core: int
    core_masks: tuple[int, ...]
    cpus_of_numa: dict[int, int]
    #: CPUs without an L3 cache: their socket takes its place.
    without_l3: int = 0


def get_tables(topology: Topology, *, quirks: bool = True) -> TopologyTables:
    """Return the tables of a topology, cached for its lifetime."""
    key = id(topology)
    found = TABLES_BY_TOPOLOGY.get(key)
    if found is None or found[0]() is not topology:
        found = TABLES_BY_TOPOLOGY[key] = (
            weakref.ref(topology, lambda _: TABLES_BY_TOPOLOGY.pop(key, None)),
            {},
        )
    made = found[1].get(quirks)
    if made is None:
        made = found[1][quirks] = _make(topology.cpus, quirks)
    return made


# By identity: comparing topologies by value costs more than most assignments.
TABLES_BY_TOPOLOGY: dict[int, tuple[weakref.ref[Topology], dict[bool, TopologyTables]]] = {}


def _make(cpus: tuple[Cpu, ...], quirks: bool) -> TopologyTables:
    sockets = _masks(cpus, lambda cpu: cpu.socket)
    numas = _masks(cpus, lambda cpu: cpu.numa)
    cores = _masks(cpus, lambda cpu: cpu.core)
    # Without L3 caches the kubelet uses the socket as cache.
    caches = _masks(cpus, lambda cpu: cpu.socket if cpu.l3 < 0 else cpu.l3)
    per_core = len(cpus) // len(cores) if cores else 0
    per_cache = len(cpus) // len(caches) if caches else 0
    per_socket = len(cpus) // len(sockets) if sockets else 0

    def inside(masks: dict[int, int], within: int, whole: int | None = None) -> Groups:
        return tuple(
            CpuGroup(
                key, mask, mask & within, mask.bit_count(), whole if quirks and whole else mask.bit_count()
            )
            for key, mask in masks.items()
            if mask & within
        )

    everything = sum(1 << cpu.id for cpu in cpus)
    numa_first = len(sockets) >= len(numas)
    upper, lower = (numas, sockets) if numa_first else (sockets, numas)
    return TopologyTables(
        quirks=quirks,
        all=everything,
        numa_first=numa_first,
        sockets=inside(sockets, everything, per_socket),
        numas=inside(numas, everything),
        lower={key: inside(lower, mask, per_socket if numa_first else None) for key, mask in upper.items()},
        cores={key: inside(cores, mask, per_core) for key, mask in lower.items()},
        caches={key: inside(caches, mask) for key, mask in numas.items()},
        cache_cores={key: inside(cores, mask) for key, mask in caches.items()},
        per_core=per_core,
        per_cache=per_cache,
        least_socket=_least(sockets),
        least_numa=_least(numas),
        least_cache=_least(caches),
        least_core=_least(cores),
        core_masks=tuple(cores.values()),
        cpus_of_numa=numas,
        without_l3=sum(1 << cpu.id for cpu in cpus if cpu.l3 < 0),
    )


def _masks(cpus: Iterable[Cpu], key: Callable[[Cpu], int]) -> dict[int, int]:
    masks: dict[int, int] = {}
    for cpu in cpus:
        group = key(cpu)
        masks[group] = masks.get(group, 0) | 1 << cpu.id
    return dict(sorted(masks.items()))


def _least(masks: dict[int, int]) -> int:
    return min((mask.bit_count() for mask in masks.values()), default=0)
