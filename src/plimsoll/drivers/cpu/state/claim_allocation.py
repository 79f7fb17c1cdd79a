"""Allocations of claims. Values only.

A disputed allocation has contradicting sources (checkpoint, CDI file, running containers): its CPUs are
withheld from others and no container may start on them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from plimsoll.api.cpuset import EMPTY, CpuSet, union
from plimsoll.drivers.cpu.allocation.options import AssignOptions
from plimsoll.protocols.dra import ClaimRef


class AssignmentSource(StrEnum):
    """Origin of assigned CPUs."""

    ASSIGNED = "assigned"  # chosen by the driver
    CPUSET = "cpuset"  # named by the claim's configuration
    DEVICE = "device"  # the device is the CPU
    ADOPTED = "adopted"  # found in a CDI file
    ADMIN = "admin"  # administrative access: none are taken


@dataclass(frozen=True, slots=True)
class CpuAssignment:
    """CPUs of one allocation result. `options` are the allocator options used."""

    request: str
    pool: str
    device: str
    cpus: CpuSet
    share_id: str | None = None
    source: AssignmentSource = AssignmentSource.ASSIGNED
    options: AssignOptions | None = None

    @property
    def base(self) -> str:
        """Request name in containers: without the subrequest."""
        return self.request.partition("/")[0]


@dataclass(frozen=True, slots=True)
class ClaimAllocation:
    """CPUs of a claim. `adopted`: read from a CDI file alone, so that the CPUs of each request are unknown.

    `include_shared` is the claim's own configuration, None if it does not set it. `contested` are CPUs that
    are not assigned but named for the claim by another source. `per_request`: its CDI file has a device for
    each request, and containers use those.
    """

    ref: ClaimRef
    assignments: tuple[CpuAssignment, ...]
    adopted: bool = False
    disputed: str = ""
    include_shared: bool | None = None
    contested: CpuSet = EMPTY
    per_request: bool = False

    #: CPUs of all assignments, and all CPUs withheld from others. Computed once: every decision about a
    #: container reads them for all claims.
    assigned: CpuSet = field(init=False, repr=False, compare=False)
    cpus: CpuSet = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        assigned = union(assignment.cpus for assignment in self.assignments)
        object.__setattr__(self, "assigned", assigned)
        object.__setattr__(self, "cpus", assigned | self.contested if self.contested else assigned)

    def includes_shared(self, default: bool) -> bool:
        """Report whether containers of the claim also run on the shared pool."""
        return default if self.include_shared is None else self.include_shared

    def get_request_cpus(self, request: str) -> CpuSet:
        """Return the CPUs of one request, by its name in containers."""
        return union(
            assignment.cpus for assignment in self.assignments if assignment.base == request.partition("/")[0]
        )
