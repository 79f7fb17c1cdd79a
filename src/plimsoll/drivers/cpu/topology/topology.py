"""CPUs of a machine, and the groups they form. Pure.

Owns `Cpu` and `Topology`. Core ids are unique in the machine: the lowest CPU of the core. What a machine does
not tell (no L3 cache, no clusters) is -1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from plimsoll.api.cpuset import EMPTY, CpuSet


class CoreKind(StrEnum):
    """Kinds of cores, by the words of the published attribute."""

    STANDARD = "standard"
    PERFORMANCE = "p-core"
    EFFICIENT = "e-core"


@dataclass(frozen=True, slots=True)
class Cpu:
    """A logical CPU.

    `core` is the lowest online CPU of its core, and `l3` a number that only CPUs of one L3 cache have in
    common: both are unique in the machine. `core_id` and `l3_id` are what the machine itself says (the
    published attributes); on some machines several cores or caches have the same.
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
class Skipped:
    """A CPU that is online and cannot be used, and why."""

    cpu: int
    why: str


@dataclass(frozen=True)
class Topology:
    """The online CPUs of a machine whose place is known, lowest first.

    `offline` are CPUs that are there and switched off. `remarks` are oddities of the machine that cost no
    CPU.
    """

    cpus: tuple[Cpu, ...]
    smt: bool = False
    offline: CpuSet = EMPTY
    skipped: tuple[Skipped, ...] = ()
    remarks: tuple[str, ...] = ()

    @classmethod
    def of_rows(cls, rows: Iterable[Mapping[str, int]], *, smt: bool | None = None) -> Topology:
        """A topology of rows with `cpu`, `core`, `socket`, `numa` and `uncore` (-1 or none: no L3 cache).

        Cores are taken as the rows say, so that every numbering of cores can be written down. SMT is on if
        two CPUs share a core.
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
        """By L3 cache; CPUs without one are in none."""
        return _group((cpu for cpu in self.cpus if cpu.l3 >= 0), lambda cpu: cpu.l3)

    def numa_of(self, cpus: Iterable[int]) -> tuple[int, ...]:
        """The memory nodes nearest to CPUs."""
        return tuple(sorted({self.by_id[cpu].numa for cpu in cpus if cpu in self.by_id}))


def _group(cpus: Iterable[Cpu], key: Callable[[Cpu], int]) -> dict[int, CpuSet]:
    groups: dict[int, list[int]] = {}
    for cpu in cpus:
        groups.setdefault(key(cpu), []).append(cpu.id)
    return {group: CpuSet(groups[group]) for group in sorted(groups)}
