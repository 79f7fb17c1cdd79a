"""Faults and usage of cgroups."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CgroupFault:
    """Value that could not be set, and the error.

    `absent`: the controller is not available on this machine, so that the value can never be set; other
    faults are worth a retry.
    """

    file: str
    value: str
    error: str
    absent: bool = False

    def __str__(self) -> str:
        return f"{self.file}: {self.value!r} cannot be set: {self.error}"


@dataclass(frozen=True, slots=True)
class PodUsage:
    """Resource usage of a pod or container; None where it cannot be measured."""

    memory: int | None = None  #: bytes of the working set: usage less what can be reclaimed at once
    cpu: int | None = None  #: nanoseconds since creation
    pids: int | None = None
    memory_in_use: int | None = None  #: bytes, including what can be reclaimed
