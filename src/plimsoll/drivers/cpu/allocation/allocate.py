"""Which CPUs a request gets. The entrance of this package. Pure.

Owns `assign` (what the driver hands out), `as_kubelet` (the kubelet's answer, whatever it is), `reserve` and
`explain`.

`assign` promises: as many CPUs as were asked for, all of them offered; the very ones the kubelet's static
policy of 1.36 would take, wherever its answer is such a set. It is not on some machines whose cores,
caches or sockets are uneven.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from math import lcm

from plimsoll.api.cpuset import EMPTY, CpuSet
from plimsoll.drivers.cpu.allocation.distributed import take_distributed
from plimsoll.drivers.cpu.allocation.explanation import Step, What, describe
from plimsoll.drivers.cpu.allocation.options import Algorithm, AssignOptions, Sorting
from plimsoll.drivers.cpu.allocation.packed import Log, lowest, take_packed
from plimsoll.drivers.cpu.allocation.topology_tables import Tables, tables_of
from plimsoll.drivers.cpu.allocation.whole_cores import (
    first_of,
    free_cores,
    parts_of,
    size_within,
    split_any,
    threads,
)
from plimsoll.drivers.cpu.topology import Topology
from plimsoll.errors import InputError


class Lack(StrEnum):
    """Why there are no CPUs: too few, an amount that no whole cores make, too few whole cores, or a set of
    NUMA nodes that does not hold what it was chosen for."""

    CPUS = "cpus"
    MULTIPLE = "multiple"
    CORES = "cores"
    ACCOUNTING = "accounting"


@dataclass(frozen=True, slots=True)
class NotEnough:
    """A request that cannot be met. `available` are CPUs, or CPUs of whole cores if only these count."""

    requested: int
    available: int
    why: Lack = Lack.CPUS
    per_core: int = 0
    missing: int = 0

    @property
    def text(self) -> str:
        """As the kubelet words it."""
        match self.why:
            case Lack.CPUS:
                return (
                    "not enough cpus available to satisfy request: "
                    f"requested={self.requested}, available={self.available}"
                )
            case Lack.MULTIPLE:
                return (
                    f"SMT Alignment Error: requested {self.requested} cpus "
                    f"not multiple cpus per core = {self.per_core}"
                )
            case Lack.CORES:
                return (
                    "SMT Alignment Error: not enough free physical CPUs: "
                    f"available physical CPUs = {self.available}, requested CPUs = {self.requested}, "
                    f"CPUs per core = {self.per_core}"
                )
            case Lack.ACCOUNTING:
                amount = "too many" if self.missing < 0 else "not enough"
                return f"accounting error, {amount} CPUs allocated, remaining: {self.missing}"


@dataclass(frozen=True, slots=True)
class Assigned:
    """CPUs, and how they were chosen."""

    cpus: CpuSet
    steps: tuple[Step, ...] = ()


_DEFAULT = AssignOptions()


def assign(
    topology: Topology, available: CpuSet, count: int, options: AssignOptions = _DEFAULT
) -> Assigned | NotEnough:
    """`count` of the available CPUs, or why not.

    CPUs that the topology does not have are never taken.
    """
    if options.full_cores:
        return _assign_whole_cores(topology, available, count, options)
    if not options.quirks:
        return _apply(tables_of(topology, quirks=False), available, count, options)
    answer = as_kubelet(topology, available, count, options)
    if isinstance(answer, NotEnough):
        if answer.why is Lack.CPUS:
            return answer
    elif len(answer.cpus) == max(count, 0) and answer.cpus <= available:
        return answer
    # DIFF: the kubelet's counts are divisions of machine-wide counts; where cores are uneven they make it
    # take CPUs that are not free, or the wrong number
    # (test_problem_3_uneven_cores_never_give_what_is_not_free).
    other = _apply(tables_of(topology, quirks=False), available, count, options)
    if isinstance(other, Assigned):
        cpus = answer.cpus if isinstance(answer, Assigned) else EMPTY
        return Assigned(other.cpus, (Step(What.COUNTED_ANEW, cpus=cpus), *other.steps))
    return other


def as_kubelet(
    topology: Topology, available: CpuSet, count: int, options: AssignOptions = _DEFAULT
) -> Assigned | NotEnough:
    """What the kubelet of 1.36 answers, to the bit, even where that is wrong; without whole cores."""
    return _apply(tables_of(topology), available, count, options)


def reserve(topology: Topology, count: int) -> CpuSet:
    """The CPUs that are kept from pods if only their number is given, as the kubelet chooses them."""
    answer = assign(topology, topology.all, count, AssignOptions(align_l3=False))
    if isinstance(answer, NotEnough):
        raise InputError(f"{count} CPUs cannot be reserved: there are {len(topology.all)}")
    return answer.cpus


def explain(assigned: Assigned) -> list[str]:
    """How CPUs were chosen, a line for each step."""
    return describe(assigned.steps)


def _apply(tables: Tables, available: CpuSet, count: int, options: AssignOptions) -> Assigned | NotEnough:
    group = options.group_size
    if group < 1:
        raise InputError(f"a group of {group} CPUs: a group has at least one")
    if count < 1:
        return Assigned(EMPTY)
    free = available.mask & tables.all
    if count > free.bit_count():
        return NotEnough(count, len(available))
    log: Log = []
    if options.algorithm is Algorithm.DISTRIBUTED:
        taken, missing = take_distributed(tables, free, count, group, options.sorting, log=log)
    else:
        taken, missing = take_packed(tables, free, count, options.sorting, align_l3=options.align_l3, log=log)
    if missing != 0:
        return NotEnough(count, len(available), Lack.ACCOUNTING, missing=missing)
    return Assigned(CpuSet.of_mask(taken), _steps(tables, log))


def _steps(tables: Tables, log: Log) -> tuple[Step, ...]:
    """Neighbours in the log that took the same kind are one step."""
    steps: list[Step] = []
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
        each = log[start][2].bit_count() if what is What.EVEN else 0
        numa = tuple(node for node, cpus in tables.cpus_of_numa.items() if cpus & mask)
        steps.append(Step(what, tuple(ids), CpuSet.of_mask(mask), numa, each))
        start = end
    return tuple(steps)


def _assign_whole_cores(
    topology: Topology, available: CpuSet, count: int, options: AssignOptions
) -> Assigned | NotEnough:
    """Only cores that are wholly free, and only all of their CPUs; sorting does not matter then."""
    tables = tables_of(topology, quirks=False)
    per_core = threads(tables)
    if count % per_core:
        return NotEnough(count, len(available), Lack.MULTIPLE, per_core)
    cores = free_cores(tables, available.mask)
    whole = sum(cores)
    if count > whole.bit_count():
        return NotEnough(count, whole.bit_count(), Lack.CORES, per_core)
    options = replace(
        options, full_cores=False, sorting=Sorting.PACKED, group_size=lcm(options.group_size, per_core)
    )
    answer = assign(topology, CpuSet.of_mask(whole), count, options)
    if isinstance(answer, Assigned) and not split_any(tables, answer.cpus.mask):
        return answer
    # Cores of several sizes: of each size so many that nothing is left over.
    parts = parts_of(cores, count)
    if parts is None:
        return NotEnough(count, whole.bit_count(), Lack.CORES, per_core)
    chosen = []
    for mask, amount in parts:
        each = replace(options, group_size=size_within(cores, mask), quirks=False)
        part = assign(topology, CpuSet.of_mask(mask), amount, each)
        if isinstance(part, NotEnough):
            return part
        chosen.append(part)
    taken = sum(part.cpus.mask for part in chosen)
    if split_any(tables, taken):
        # Cores that reach over several NUMA nodes.
        taken = first_of(cores, parts)
        log: Log = [(What.CORES, lowest(core, 1).bit_length() - 1, core) for core in cores if core & taken]
        return Assigned(CpuSet.of_mask(taken), _steps(tables, log))
    return Assigned(CpuSet.of_mask(taken), tuple(step for part in chosen for step in part.steps))
