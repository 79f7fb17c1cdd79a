"""CPU topology values: CPUs and their cores, sockets, NUMA nodes and L3 caches. Pure.

Core IDs are unique in the machine: the lowest CPU of the core. Missing information (no L3 cache, no clusters)
is -1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from plimsoll.api.cpuset import EMPTY, CpuSet


class CoreKind(StrEnum):
    """Core type, with the values of the published attribute."""

    STANDARD = "standard"
    PERFORMANCE = "p-core"
    EFFICIENT = "e-core"


@dataclass(frozen=True, slots=True)
class Cpu:
    """Logical CPU.

    `core` is the lowest online CPU of its core, and `l3` a number of its L3 cache: both are unique in the
    machine. `core_id` and `l3_id` are the machine's own IDs (the published attributes), which may repeat.
    """

    id: int
    core: int
    socket: int
    numa: int
    l3: int = -1
    cluster: int = -1
    kind: CoreKind = CoreKind.STANDARD
    core_id: int = -1
    pcie_roots: tuple[str, ...] = ()
    die: int = -1
    l3_id: int = -1


@dataclass(frozen=True, slots=True)
class SkippedCpu:
    """Online CPU that cannot be used, with the reason."""

    cpu: int
    why: str


@dataclass(frozen=True)
class Topology:
    """Online CPUs with known topology, lowest first.

    `offline` are present CPUs that are offline. `remarks` are oddities that do not affect CPUs.
    """

    cpus: tuple[Cpu, ...]
    smt: bool = False
    offline: CpuSet = EMPTY
    skipped: tuple[SkippedCpu, ...] = ()
    remarks: tuple[str, ...] = ()

    @classmethod
    def of_rows(cls, rows: Iterable[Mapping[str, int]], *, smt: bool | None = None) -> Topology:
        """Build a topology from rows with `cpu`, `core`, `socket`, `numa` and `uncore` (-1 or missing: no
        L3).

        Core IDs are used as they are, so that any numbering can be expressed. SMT is on if two CPUs share a
        core.
        """
        cpus = tuple(
            sorted(
                (
                    Cpu(
                        id=row["cpu"],
                        core=row["core"],
                        socket=row["socket"],
                        numa=row["numa"],
                        l3=row.get("uncore", -1),
                        core_id=row["core"],
                        l3_id=row.get("uncore", -1),
                    )
                    for row in rows
                ),
                key=lambda cpu: cpu.id,
            )
        )
        return cls(cpus, len({cpu.core for cpu in cpus}) < len(cpus) if smt is None else smt)

    @cached_property
    def all(self) -> CpuSet:
        return CpuSet(cpu.id for cpu in self.cpus)

    @cached_property
    def by_id(self) -> Mapping[int, Cpu]:
        return {cpu.id: cpu for cpu in self.cpus}

    @cached_property
    def cores(self) -> Mapping[int, CpuSet]:
        return _group(self.cpus, lambda cpu: cpu.core)

    @cached_property
    def sockets(self) -> Mapping[int, CpuSet]:
        return _group(self.cpus, lambda cpu: cpu.socket)

    @cached_property
    def numa(self) -> Mapping[int, CpuSet]:
        return _group(self.cpus, lambda cpu: cpu.numa)

    @cached_property
    def l3(self) -> Mapping[int, CpuSet]:
        """CPUs by L3 cache; CPUs without one are omitted."""
        return _group((cpu for cpu in self.cpus if cpu.l3 >= 0), lambda cpu: cpu.l3)

    def numa_of(self, cpus: Iterable[int]) -> tuple[int, ...]:
        """Return the NUMA nodes of CPUs."""
        return tuple(sorted({self.by_id[cpu].numa for cpu in cpus if cpu in self.by_id}))


def _group(cpus: Iterable[Cpu], key: Callable[[Cpu], int]) -> dict[int, CpuSet]:
    groups: dict[int, list[int]] = {}
    for cpu in cpus:
        groups.setdefault(key(cpu), []).append(cpu.id)
    return {group: CpuSet(groups[group]) for group in sorted(groups)}
