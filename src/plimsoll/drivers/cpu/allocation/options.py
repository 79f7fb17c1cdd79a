"""Options of the CPU allocator, set for the driver or for a claim."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from msgspec import Meta


class Algorithm(StrEnum):
    """Allocation algorithm: fill as few NUMA nodes as possible, or take the same number from each."""

    PACKED = "packed"
    DISTRIBUTED = "distributed"


class Sorting(StrEnum):
    """Order of CPUs: full cores first, or threads of different cores first."""

    PACKED = "packed"
    SPREAD = "spread"


@dataclass(frozen=True, slots=True)
class AssignOptions:
    """Allocator options. `group_size` applies to distributed, `align_l3` to packed, `full_cores` to both.

    `align_by_socket` (distributed): prefer NUMA nodes of one socket, as the kubelet of 1.37 does with the
    option `align-by-socket`.

    `quirks`: choose exactly the CPUs that the kubelet of 1.36 takes, even where it miscounts on uneven
    machines or mixes up NUMA nodes, as long as they are free. Without it, apply the intended algorithm.
    """

    algorithm: Algorithm = Algorithm.PACKED
    sorting: Sorting = Sorting.PACKED
    group_size: Annotated[int, Meta(ge=1, le=4096)] = 1
    align_l3: bool = True
    full_cores: bool = False
    quirks: bool = True
    align_by_socket: bool = False
