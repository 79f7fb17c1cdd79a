"""Suite `cpu-assignment`: CPU selection of the kubelet's static policy.

Rows that want no more than an end are inputs that the kubelet does not return from: any set of as many CPUs,
all offered, is right, and so is a refusal.
"""

from __future__ import annotations

from typing import Any

from plimsoll.api.cpuset import CpuSet
from plimsoll.drivers.cpu.allocation import Algorithm, AssignOptions, Sorting
from plimsoll.drivers.cpu.allocation.allocate import Assigned, InsufficientCpus, assign, assign_as_kubelet
from plimsoll.drivers.cpu.topology import Topology


def check(row: dict[str, Any]) -> str | None:
    topology = Topology.of_rows(row["topology"])
    available = CpuSet.parse(row["available"])
    count = row["numCPUs"]
    options = read_options(row)
    if row["expect"] != {"terminates": True}:
        answer = assign_as_kubelet(topology, available, count, options)
        found = {"error": answer.text} if isinstance(answer, InsufficientCpus) else str(answer.cpus)
        if found != row["expect"]:
            return f"is {found!r}, wanted {row['expect']!r}"
    return _check_safe(assign(topology, available, count, options), available, count)


def read_options(row: dict[str, Any]) -> AssignOptions:
    options = row["options"]
    return AssignOptions(
        algorithm=Algorithm(row["algorithm"]),
        sorting=Sorting(options["sortingStrategy"]),
        group_size=options["cpuGroupSize"],
        align_l3=options["preferAlignByUncore"],
    )


def _check_safe(answer: Assigned | InsufficientCpus, available: CpuSet, count: int) -> str | None:
    """Check that the driver assigns the requested number of CPUs out of the offered ones."""
    if isinstance(answer, InsufficientCpus) or (len(answer.cpus) == count and answer.cpus <= available):
        return None
    return f"{answer.cpus} are not {count} CPUs of {available}"
