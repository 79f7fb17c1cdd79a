"""What claims hold. Values only.

Owns `Grant` and `Holding`. A holding that is disputed has witnesses (record, CDI file, running containers)
that do not agree: its CPUs are kept from everybody else and nobody may start on them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import reduce
from operator import or_

from plimsoll.api.cpuset import EMPTY, CpuSet
from plimsoll.drivers.cpu.allocation.options import AssignOptions
from plimsoll.protocols.dra import ClaimRef


class How(StrEnum):
    """How the CPUs of a grant came about."""

    ASSIGNED = "assigned"  # chosen by the driver
    CPUSET = "cpuset"  # named by the claim's configuration
    DEVICE = "device"  # the device is the CPU
    ADOPTED = "adopted"  # found in a CDI file
    ADMIN = "admin"  # administrative access: none are taken


@dataclass(frozen=True, slots=True)
class Grant:
    """The CPUs of one allocation result. `options` are those by which the driver chose."""

    request: str
    pool: str
    device: str
    cpus: CpuSet
    share_id: str | None = None
    how: How = How.ASSIGNED
    options: AssignOptions | None = None

    @property
    def base(self) -> str:
        """The request as containers name it: without the alternative that was taken."""
        return self.request.partition("/")[0]


@dataclass(frozen=True, slots=True)
class Holding:
    """The CPUs of a claim. `adopted` came from a CDI file alone: which request is whose is not known.

    `mix` is what the claim's own configuration says, None where it is silent. `contested` are CPUs that are
    not granted but named for the claim by another witness. `apart`: its CDI file has a device for each
    request, and containers are given those.
    """

    ref: ClaimRef
    grants: tuple[Grant, ...]
    adopted: bool = False
    disputed: str = ""
    mix: bool | None = None
    contested: CpuSet = EMPTY
    apart: bool = False

    @property
    def cpus(self) -> CpuSet:
        """All that is kept from others."""
        return self.granted | self.contested

    @property
    def granted(self) -> CpuSet:
        return union(grant.cpus for grant in self.grants)

    def of_request(self, request: str) -> CpuSet:
        """The CPUs of one request, as containers name it."""
        return union(grant.cpus for grant in self.grants if grant.base == request.partition("/")[0])


def union(sets: Iterable[CpuSet]) -> CpuSet:
    return reduce(or_, sets, EMPTY)
