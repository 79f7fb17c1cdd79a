"""What of a topology is asked again and again while CPUs are chosen, worked out once for each topology.

Owns `Tables`: sockets, NUMA nodes, L3 caches and cores as masks with one bit for each CPU, and which of them
lie in which. Pure.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from plimsoll.drivers.cpu.topology import Cpu, Topology


class Group(NamedTuple):
    """CPUs that have a socket, NUMA node, cache or core in common.

    `inside` are those of them that are also in the group asked about (a core may reach out of its NUMA node
    where ids are not unique). `whole` is how many free CPUs make it count as wholly free.
    """

    id: int
    mask: int
    inside: int
    size: int
    whole: int


Groups: TypeAlias = tuple[Group, ...]


@dataclass(frozen=True, slots=True)
class Tables:
    """The groups of a machine, each list lowest id first.

    With `quirks`, how many CPUs a core, socket or cache has is a division of machine-wide counts, as the
    kubelet has it; on machines with uneven cores that is wrong. Without, it is what each really has.

    `lower` are the NUMA nodes of each socket, or the sockets of each NUMA node if these are not fewer than
    nodes; `cores` are by the id of what is lower.
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


def tables_of(topology: Topology, *, quirks: bool = True) -> Tables:
    """The tables of a topology; made once, and gone with it."""
    key = id(topology)
    found = _KEPT.get(key)
    if found is None or found[0]() is not topology:
        found = _KEPT[key] = (weakref.ref(topology, lambda _: _KEPT.pop(key, None)), {})
    made = found[1].get(quirks)
    if made is None:
        made = found[1][quirks] = _make(topology.cpus, quirks)
    return made


# By identity: to compare topologies by value costs more than most assignments.
_KEPT: dict[int, tuple[weakref.ref[Topology], dict[bool, Tables]]] = {}


def _make(cpus: tuple[Cpu, ...], quirks: bool) -> Tables:
    sockets = _masks(cpus, lambda cpu: cpu.socket)
    numas = _masks(cpus, lambda cpu: cpu.numa)
    cores = _masks(cpus, lambda cpu: cpu.core)
    # Where a machine tells of no L3 cache, the kubelet takes the socket for one.
    caches = _masks(cpus, lambda cpu: cpu.socket if cpu.l3 < 0 else cpu.l3)
    per_core = len(cpus) // len(cores) if cores else 0
    per_cache = len(cpus) // len(caches) if caches else 0
    per_socket = len(cpus) // len(sockets) if sockets else 0

    def inside(masks: dict[int, int], within: int, whole: int | None = None) -> Groups:
        return tuple(
            Group(key, mask, mask & within, mask.bit_count(), whole if quirks and whole else mask.bit_count())
            for key, mask in masks.items()
            if mask & within
        )

    everything = sum(1 << cpu.id for cpu in cpus)
    numa_first = len(sockets) >= len(numas)
    upper, lower = (numas, sockets) if numa_first else (sockets, numas)
    return Tables(
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
    )


def _masks(cpus: Iterable[Cpu], key: Callable[[Cpu], int]) -> dict[int, int]:
    masks: dict[int, int] = {}
    for cpu in cpus:
        group = key(cpu)
        masks[group] = masks.get(group, 0) | 1 << cpu.id
    return dict(sorted(masks.items()))


def _least(masks: dict[int, int]) -> int:
    return min((mask.bit_count() for mask in masks.values()), default=0)
