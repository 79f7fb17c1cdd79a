"""What claims hold. Values only.

Owns `Grant` and `Holding`. A holding that is disputed has witnesses (record, CDI file, running containers)
that do not agree: its CPUs are kept from everybody else and nobody may start on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import or_

from plimsoll.api.cpuset import EMPTY, CpuSet
from plimsoll.wire.dra import ClaimRef


@dataclass(frozen=True, slots=True)
class Grant:
    """The CPUs of one allocation result."""

    request: str
    pool: str
    device: str
    cpus: CpuSet
    share_id: str | None = None


@dataclass(frozen=True, slots=True)
class Holding:
    """The CPUs of a claim. `adopted` came from a CDI file alone: which request is whose is not known.

    `mix` is what the claim's own configuration says, None where it is silent.
    """

    ref: ClaimRef
    grants: tuple[Grant, ...]
    adopted: bool = False
    disputed: str = ""
    mix: bool | None = None

    @property
    def cpus(self) -> CpuSet:
        return reduce(or_, (grant.cpus for grant in self.grants), EMPTY)
