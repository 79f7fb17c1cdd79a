"""Why CPUs were chosen: what was taken, one step after the other, and how to say it.

Owns `Step` and `describe`. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from plimsoll.api.cpuset import EMPTY, CpuSet


class What(StrEnum):
    """What one step took, or decided."""

    SOCKETS = "sockets"
    NUMA_NODES = "numa-nodes"
    CACHES = "caches"
    CACHE_PART = "cache-part"
    CORES = "cores"
    THREADS = "threads"
    EVEN = "even"
    REST = "rest"
    NOT_EVEN = "not-even"
    CUT_SHORT = "cut-short"
    COUNTED_ANEW = "counted-anew"


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a choice.

    `ids` are the sockets, NUMA nodes, caches or cores that were taken, `numa` the NUMA nodes the CPUs are of.
    Of CPUs dealt out evenly, `each` is how many every NUMA node gave. COUNTED_ANEW: the kubelet's rule would
    have taken other CPUs, `cpus`, some of which were not free.
    """

    what: What
    ids: tuple[int, ...] = ()
    cpus: CpuSet = EMPTY
    numa: tuple[int, ...] = ()
    each: int = 0


def describe(steps: Iterable[Step]) -> list[str]:
    """One line for each step."""
    return [_LINES[step.what](step) for step in steps]


def _named(one: str, ids: tuple[int, ...]) -> str:
    return f"{one}{'s' if len(ids) != 1 else ''} {', '.join(map(str, ids))}"


def _cpus(step: Step) -> str:
    return f"CPU{'s' if len(step.cpus) != 1 else ''} {step.cpus}"


def _of_nodes(step: Step) -> str:
    return f" of {_named('NUMA node', step.numa)}" if step.numa else ""


def _cores(step: Step) -> str:
    cores = f"{len(step.ids)} whole core{'s' if len(step.ids) != 1 else ''}"
    return f"{cores}{_of_nodes(step)}: {_cpus(step)}"


def _threads(step: Step) -> str:
    count = len(step.cpus)
    return f"{count} single thread{'s' if count != 1 else ''}{_of_nodes(step)}: {_cpus(step)}"


_LINES: dict[What, Callable[[Step], str]] = {
    What.SOCKETS: lambda step: f"whole {_named('socket', step.ids)}: {_cpus(step)}",
    What.NUMA_NODES: lambda step: f"whole {_named('NUMA node', step.ids)}: {_cpus(step)}",
    What.CACHES: lambda step: f"whole {_named('L3 cache', step.ids)}{_of_nodes(step)}: {_cpus(step)}",
    What.CACHE_PART: lambda step: (
        f"{len(step.cpus)} CPU{'s' if len(step.cpus) != 1 else ''} inside {_named('L3 cache', step.ids)}"
        f"{_of_nodes(step)}: {_cpus(step)}"
    ),
    What.CORES: _cores,
    What.THREADS: _threads,
    What.EVEN: lambda step: (
        f"dealt out evenly, {step.each} from each of {_named('NUMA node', step.ids)}: {_cpus(step)}"
    ),
    What.REST: lambda step: f"the rest from {_named('NUMA node', step.ids)}: {_cpus(step)}",
    What.NOT_EVEN: lambda step: "no NUMA nodes can give the same number each: packed instead",
    What.CUT_SHORT: lambda step: "too many sets of NUMA nodes to try all: the most even of those that were",
    What.COUNTED_ANEW: lambda step: (
        f"the kubelet's rule would have taken {_cpus(step)}, not all of which were free: "
        "counted anew with the real size of each core, cache and socket"
    ),
}
