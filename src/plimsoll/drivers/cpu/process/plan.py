"""Command `plimsoll driver cpu plan`: CPUs that requests would get, on this machine or a described one.

Uses the driver's allocator; nothing is assigned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plimsoll.api.cpuset import EMPTY, CpuSet
from plimsoll.common.config_file import read_document
from plimsoll.drivers.cpu.allocation import Algorithm, AssignOptions, Sorting
from plimsoll.drivers.cpu.allocation.allocate import Assigned, assign, explain
from plimsoll.drivers.cpu.topology import Topology
from plimsoll.drivers.cpu.topology.overlay import read_overlay
from plimsoll.drivers.cpu.topology.sysfs import read_topology
from plimsoll.errors import InputError

#: Highest valid CPU number.
_MAX_CPU = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """Requests to plan. `taken` are CPUs already assigned, `within` restricts the choice (default: all)."""

    counts: tuple[int, ...]
    options: AssignOptions = field(default_factory=AssignOptions)
    taken: CpuSet = EMPTY
    within: CpuSet | None = None
    root: Path = Path("/")
    overlay: Path | None = None
    rows: Path | None = None  #: file with a row for each CPU, instead of a machine


@dataclass(frozen=True, slots=True)
class PlanResult:
    """CPUs of one request, or the reason for failure."""

    count: int
    cpus: CpuSet
    lines: tuple[str, ...]
    refusal: str = ""

    def tree(self) -> dict[str, Any]:
        return {
            "count": self.count,
            "cpus": str(self.cpus),
            "explain": list(self.lines),
            **({"refusal": self.refusal} if self.refusal else {}),
        }


def make_request(
    counts: tuple[int, ...],
    *,
    algorithm: str,
    sorting: str,
    group_size: int,
    align_l3: bool,
    full_cores: bool,
    align_by_socket: bool,
    taken: str,
    within: str,
    root: Path,
    overlay: Path | None,
    rows: Path | None,
) -> PlanRequest:
    """Build the request from command-line values; raises InputError if they are invalid."""
    return PlanRequest(
        counts=counts,
        options=AssignOptions(
            Algorithm(algorithm),
            Sorting(sorting),
            group_size,
            align_l3,
            full_cores,
            align_by_socket=align_by_socket,
        ),
        taken=_cpus(taken, "--taken"),
        within=_cpus(within, "--within") if within else None,
        root=root,
        overlay=overlay,
        rows=rows,
    )


def plan(request: PlanRequest) -> list[PlanResult]:
    """Plan the requests in order; later ones get what is left."""
    topology = read_machine(request)
    free = topology.all - request.taken
    if request.within is not None:
        free = free & request.within
    results = []
    for count in request.counts:
        found = assign(topology, free, count, request.options)
        if not isinstance(found, Assigned):
            results.append(PlanResult(count, EMPTY, (), found.text))
            continue
        results.append(PlanResult(count, found.cpus, tuple(explain(found))))
        free = free - found.cpus
    return results


def read_machine(request: PlanRequest) -> Topology:
    """Read the topology of the request."""
    if request.rows is None:
        overlay = read_overlay(request.overlay) if request.overlay is not None else {}
        return read_topology(request.root, overlay)
    return Topology.of_rows(read_rows(read_document(request.rows, "topology"), str(request.rows)))


def read_rows(tree: object, where: str) -> list[dict[str, int]]:
    """Read CPUs from a file: rows of cpu, core, socket, numa and uncore, or a `gatherinfo` report.

    Core IDs of rows are used as they are; those of a report are unique within their socket only.
    """
    details = tree.get("cpuDetails") if isinstance(tree, Mapping) else None
    names = _REPORTED if details is not None else _ROW
    found = details if details is not None else tree
    listed = found.get("cpus") if isinstance(found, Mapping) else found
    if not isinstance(listed, list) or not listed:
        raise InputError(f"{where}: must be a list of CPUs, each with {', '.join(_ROW)}, or a report")
    rows = [_read_row(row, names, f"{where}: [{place}]") for place, row in enumerate(listed)]
    if len({row["cpu"] for row in rows}) < len(rows):
        raise InputError(f"{where}: duplicate CPU")
    if details is not None:
        lowest: dict[tuple[int, int], int] = {}
        for row in sorted(rows, key=lambda row: row["cpu"]):
            row["core"] = lowest.setdefault((row["socket"], row["core"]), row["cpu"])
    return rows


_ROW = {"cpu": "cpu", "core": "core", "socket": "socket", "numa": "numa", "uncore": "uncore"}
_REPORTED = {
    "cpuID": "cpu",
    "coreID": "core",
    "socketID": "socket",
    "numaNodeID": "numa",
    "uncoreCacheID": "uncore",
}


def _read_row(row: object, names: Mapping[str, str], where: str) -> dict[str, int]:
    if not isinstance(row, Mapping):
        raise InputError(f"{where}: must be a CPU with {', '.join(names)}, not {row!r}"[:300])
    made = {}
    for theirs, ours in names.items():
        value = row.get(theirs, -1 if ours == "uncore" else None)
        least = -1 if ours == "uncore" else 0
        if type(value) is not int or not least <= value <= _MAX_CPU:
            raise InputError(
                f"{where}: {theirs}: must be a number from {least} to {_MAX_CPU}, not {value!r}"[:300]
            )
        made[ours] = value
    return made


def _cpus(text: str, where: str) -> CpuSet:
    try:
        return CpuSet.parse(text)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
