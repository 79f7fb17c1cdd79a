"""Recorded steps of a CPU allocation and their description. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from plimsoll.api.cpuset import EMPTY, CpuSet


class StepKind(StrEnum):
    """Kind of allocation step."""

    SOCKETS = "sockets"
    NUMA_NODES = "numa-nodes"
    CACHES = "caches"
    CACHE_PART = "cache-part"
    SOCKET_PART = "socket-part"
    CORES = "cores"
    THREADS = "threads"
    EVEN = "even"
    REST = "rest"
    NOT_EVEN = "not-even"
    CUT_SHORT = "cut-short"
    RECOUNTED = "recounted"


@dataclass(frozen=True, slots=True)
class AllocationStep:
    """Step of an allocation.

    `ids` are the sockets, NUMA nodes, caches or cores taken, `numa` the NUMA nodes of the CPUs. For an even
    distribution, `each` is the number of CPUs per NUMA node. RECOUNTED: the kubelet's rule would have
    taken the CPUs `cpus`, some of which were not free.
    """

    what: StepKind
    ids: tuple[int, ...] = ()
    cpus: CpuSet = EMPTY
    numa: tuple[int, ...] = ()
    each: int = 0


def describe_steps(steps: Iterable[AllocationStep]) -> list[str]:
    """Describe the steps, one line each."""
    return [_LINES[step.what](step) for step in steps]


def _format_ids(one: str, ids: tuple[int, ...]) -> str:
    return f"{one}{'s' if len(ids) != 1 else ''} {', '.join(map(str, ids))}"


def _cpus(step: AllocationStep) -> str:
    return f"CPU{'s' if len(step.cpus) != 1 else ''} {step.cpus}"


def _of_nodes(step: AllocationStep) -> str:
    return f" of {_format_ids('NUMA node', step.numa)}" if step.numa else ""


def _cores(step: AllocationStep) -> str:
    cores = f"{len(step.ids)} whole core{'s' if len(step.ids) != 1 else ''}"
    return f"{cores}{_of_nodes(step)}: {_cpus(step)}"


def _threads(step: AllocationStep) -> str:
    count = len(step.cpus)
    return f"{count} single thread{'s' if count != 1 else ''}{_of_nodes(step)}: {_cpus(step)}"


_LINES: dict[StepKind, Callable[[AllocationStep], str]] = {
    StepKind.SOCKETS: lambda step: f"whole {_format_ids('socket', step.ids)}: {_cpus(step)}",
    StepKind.NUMA_NODES: lambda step: f"whole {_format_ids('NUMA node', step.ids)}: {_cpus(step)}",
    StepKind.CACHES: lambda step: (
        f"whole {_format_ids('L3 cache', step.ids)}{_of_nodes(step)}: {_cpus(step)}"
    ),
    StepKind.CACHE_PART: lambda step: (
        f"{len(step.cpus)} CPU{'s' if len(step.cpus) != 1 else ''} inside {_format_ids('L3 cache', step.ids)}"
        f"{_of_nodes(step)}: {_cpus(step)}"
    ),
    StepKind.SOCKET_PART: lambda step: (
        f"{len(step.cpus)} CPU{'s' if len(step.cpus) != 1 else ''} inside {_format_ids('socket', step.ids)}"
        f"{_of_nodes(step)}: {_cpus(step)}"
    ),
    StepKind.CORES: _cores,
    StepKind.THREADS: _threads,
    StepKind.EVEN: lambda step: (
        f"distributed evenly, {step.each} from each of {_format_ids('NUMA node', step.ids)}: {_cpus(step)}"
    ),
    StepKind.REST: lambda step: f"the rest from {_format_ids('NUMA node', step.ids)}: {_cpus(step)}",
    StepKind.NOT_EVEN: lambda step: "no NUMA nodes can give the same number each: packed instead",
    StepKind.CUT_SHORT: lambda step: (
        "too many sets of NUMA nodes to try all: the most even of those that were"
    ),
    StepKind.RECOUNTED: lambda step: (
        f"the kubelet's rule would have taken {_cpus(step)}, not all of which were free: "
        "recounted with the real size of each core, cache and socket"
    ),
}
