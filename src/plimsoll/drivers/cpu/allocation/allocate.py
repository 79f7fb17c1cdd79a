"""CPU allocator: choose CPUs for a request. Pure.

`assign` returns as many CPUs as requested, all of them available, and exactly those that the kubelet's static
policy of 1.36 would take wherever its result is such a set; it is not on some machines with uneven cores,
caches or sockets. `assign_as_kubelet` returns the kubelet's result unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from math import lcm

from plimsoll.api.cpuset import EMPTY, CpuSet
from plimsoll.drivers.cpu.allocation.distributed import take_distributed
from plimsoll.drivers.cpu.allocation.explanation import AllocationStep, StepKind, describe_steps
from plimsoll.drivers.cpu.allocation.full_cores import (
    find_free_cores,
    get_core_size,
    get_cpus_per_core,
    split_by_core_size,
    splits_any_core,
    take_first_cores,
)
from plimsoll.drivers.cpu.allocation.options import Algorithm, AssignOptions, Sorting
from plimsoll.drivers.cpu.allocation.packed import Log, lowest, take_packed
from plimsoll.drivers.cpu.allocation.topology_tables import TopologyTables, get_tables
from plimsoll.drivers.cpu.topology import Topology
from plimsoll.errors import InputError


class ShortageReason(StrEnum):
    """Reason for a failed request: too few CPUs, an amount that is not a multiple of full cores, too few
    full cores, or a selection of NUMA nodes that does not hold the requested number.
    """

    CPUS = "cpus"
    MULTIPLE = "multiple"
    CORES = "cores"
    ACCOUNTING = "accounting"


@dataclass(frozen=True, slots=True)
class InsufficientCpus:
    """Failed request. `available` counts CPUs, or CPUs of full cores if only these are usable."""

    requested: int
    available: int
    why: ShortageReason = ShortageReason.CPUS
    per_core: int = 0
    missing: int = 0

    @property
    def text(self) -> str:
        """Error message with the kubelet's text."""
        match self.why:
            case ShortageReason.CPUS:
                return (
                    "not enough cpus available to satisfy request: "
                    f"requested={self.requested}, available={self.available}"
                )
            case ShortageReason.MULTIPLE:
                return (
                    f"SMT Alignment Error: requested {self.requested} cpus "
                    f"not multiple cpus per core = {self.per_core}"
                )
            case ShortageReason.CORES:
                return (
                    "SMT Alignment Error: not enough free physical CPUs: "
                    f"available physical CPUs = {self.available}, requested CPUs = {self.requested}, "
                    f"CPUs per core = {self.per_core}"
                )
            case ShortageReason.ACCOUNTING:
                amount = "too many" if self.missing < 0 else "not enough"
                return f"accounting error, {amount} CPUs allocated, remaining: {self.missing}"


@dataclass(frozen=True, slots=True)
class Assigned:
    """Chosen CPUs with the steps of the choice."""

    cpus: CpuSet
    steps: tuple[AllocationStep, ...] = ()


_DEFAULT = AssignOptions()


def assign(
    topology: Topology, available: CpuSet, count: int, options: AssignOptions = _DEFAULT
) -> Assigned | InsufficientCpus:
    """Choose `count` of the available CPUs.

    CPUs outside the topology are never chosen.
    """
    if options.full_cores:
        return _assign_full_cores(topology, available, count, options)
    if not options.quirks:
        return _apply(get_tables(topology, quirks=False), available, count, options)
    answer = assign_as_kubelet(topology, available, count, options)
    if isinstance(answer, InsufficientCpus):
        if answer.why is ShortageReason.CPUS:
            return answer
    elif len(answer.cpus) == max(count, 0) and answer.cpus <= available:
        return answer
    # DIFF: the kubelet's counts are divisions of machine-wide counts; where cores are uneven they make it
    # take CPUs that are not free, or the wrong number
    # (test_problem_3_uneven_cores_never_give_what_is_not_free).
    other = _apply(get_tables(topology, quirks=False), available, count, options)
    if isinstance(other, Assigned):
        cpus = answer.cpus if isinstance(answer, Assigned) else EMPTY
        return Assigned(other.cpus, (AllocationStep(StepKind.RECOUNTED, cpus=cpus), *other.steps))
    return other


def assign_as_kubelet(
    topology: Topology, available: CpuSet, count: int, options: AssignOptions = _DEFAULT
) -> Assigned | InsufficientCpus:
    """Return exactly the result of the kubelet of 1.36, even where it is wrong; `full_cores` is ignored."""
    return _apply(get_tables(topology), available, count, options)


def reserve(topology: Topology, count: int) -> CpuSet:
    """Choose reserved CPUs by number, as the kubelet does."""
    answer = assign(topology, topology.all, count, AssignOptions(align_l3=False))
    if isinstance(answer, InsufficientCpus):
        raise InputError(f"{count} CPUs cannot be reserved: there are {len(topology.all)}")
    return answer.cpus


def explain(assigned: Assigned) -> list[str]:
    """Describe how CPUs were chosen, one line per step."""
    return describe_steps(assigned.steps)


def _apply(
    tables: TopologyTables, available: CpuSet, count: int, options: AssignOptions
) -> Assigned | InsufficientCpus:
    group = options.group_size
    if group < 1:
        raise InputError(f"a group of {group} CPUs: a group has at least one")
    if count < 1:
        return Assigned(EMPTY)
    free = available.mask & tables.all
    if count > free.bit_count():
        return InsufficientCpus(count, len(available))
    log: Log = []
    if options.algorithm is Algorithm.DISTRIBUTED:
        taken, missing = take_distributed(
            tables, free, count, group, options.sorting, by_socket=options.align_by_socket, log=log
        )
    else:
        taken, missing = take_packed(tables, free, count, options.sorting, align_l3=options.align_l3, log=log)
    if missing != 0:
        return InsufficientCpus(count, len(available), ShortageReason.ACCOUNTING, missing=missing)
    return Assigned(CpuSet.of_mask(taken), _steps(tables, log))


def _steps(tables: TopologyTables, log: Log) -> tuple[AllocationStep, ...]:
    """Merge consecutive log entries of the same kind into steps."""
    steps: list[AllocationStep] = []
    start = 0
    while start < len(log):
        what = log[start][0]
        ids: dict[int, None] = {}
        mask = 0
        end = start
        while end < len(log) and log[end][0] is what:
            ids[log[end][1]] = None
            mask |= log[end][2]
            end += 1
        each = log[start][2].bit_count() if what is StepKind.EVEN else 0
        numa = tuple(node for node, cpus in tables.cpus_of_numa.items() if cpus & mask)
        steps.append(AllocationStep(what, tuple(ids), CpuSet.of_mask(mask), numa, each))
        start = end
    return tuple(steps)


def _assign_full_cores(
    topology: Topology, available: CpuSet, count: int, options: AssignOptions
) -> Assigned | InsufficientCpus:
    """Choose full cores only; sorting is irrelevant."""
    tables = get_tables(topology, quirks=False)
    per_core = get_cpus_per_core(tables)
    if count % per_core:
        return InsufficientCpus(count, len(available), ShortageReason.MULTIPLE, per_core)
    cores = find_free_cores(tables, available.mask)
    whole = sum(cores)
    if count > whole.bit_count():
        return InsufficientCpus(count, whole.bit_count(), ShortageReason.CORES, per_core)
    options = replace(
        options, full_cores=False, sorting=Sorting.PACKED, group_size=lcm(options.group_size, per_core)
    )
    answer = assign(topology, CpuSet.of_mask(whole), count, options)
    if isinstance(answer, Assigned) and not splits_any_core(tables, answer.cpus.mask):
        return answer
    # Cores of several sizes: choose numbers of cores per size that make up the amount exactly.
    parts = split_by_core_size(cores, count)
    if parts is None:
        return InsufficientCpus(count, whole.bit_count(), ShortageReason.CORES, per_core)
    chosen = []
    for mask, amount in parts:
        each = replace(options, group_size=get_core_size(cores, mask), quirks=False)
        part = assign(topology, CpuSet.of_mask(mask), amount, each)
        if isinstance(part, InsufficientCpus):
            return part
        chosen.append(part)
    taken = sum(part.cpus.mask for part in chosen)
    if splits_any_core(tables, taken):
        # Some cores span several NUMA nodes.
        taken = take_first_cores(cores, parts)
        log: Log = [
            (StepKind.CORES, lowest(core, 1).bit_length() - 1, core) for core in cores if core & taken
        ]
        return Assigned(CpuSet.of_mask(taken), _steps(tables, log))
    return Assigned(CpuSet.of_mask(taken), tuple(step for part in chosen for step in part.steps))
