"""How CPUs are chosen: set for a driver, and for a claim that wants it otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Algorithm(StrEnum):
    """Fill as few NUMA nodes as possible, or take the same number from each."""

    PACKED = "packed"
    DISTRIBUTED = "distributed"


class Sorting(StrEnum):
    """Whole cores first, or threads of different cores first."""

    PACKED = "packed"
    SPREAD = "spread"


@dataclass(frozen=True, slots=True)
class AssignOptions:
    """Group size is for distributed, alignment to L3 caches for packed; whole cores for both.

    `quirks`: the very CPUs that the kubelet of 1.36 takes, also where it miscounts uneven machines or mixes
    up NUMA nodes, as long as they are free. Without, what the algorithm means.
    """

    algorithm: Algorithm = Algorithm.PACKED
    sorting: Sorting = Sorting.PACKED
    group_size: int = 1
    align_l3: bool = True
    full_cores: bool = False
    quirks: bool = True
