"""CPUs that nobody can claim: reserved for the system, or kept for the shared pool. Pure.

Owns choosing both. A list is taken as it is; a number of CPUs is taken the way the kubelet takes its reserved
CPUs, so that they lie together. A choice once made stays while its CPUs are there, and CPUs that claims hold
are never chosen.
"""

from __future__ import annotations

from plimsoll.api.cpuset import EMPTY, CpuSet
from plimsoll.api.quantity import Quantity
from plimsoll.common.checkpoint import Finding, Severity
from plimsoll.drivers.cpu.allocation.allocate import Assigned, assign, reserve
from plimsoll.drivers.cpu.settings import CpuSettings
from plimsoll.drivers.cpu.topology import Topology


def choose_reserved(
    topology: Topology,
    settings: CpuSettings,
    held: CpuSet,
    earlier: CpuSet | None,
    warnings: list[Finding],
) -> CpuSet:
    """The reserved CPUs; of a list also those that are not there now, for they may come."""
    wanted = settings.reserved
    if isinstance(wanted, CpuSet):
        _warn_missing(topology, wanted, "reservedCPUs", warnings)
        chosen = wanted
    elif earlier is not None:
        chosen = earlier
    else:
        chosen = _reserve(topology, wanted, held, warnings)
    overlap = chosen & held
    if overlap:
        what = f"CPUs {overlap} are reserved and held by claims"
        fix = "delete the pods that use the claims, or reserve other CPUs (reservedCPUs)"
        warnings.append(Finding(Severity.WARNING, what, fix))
    if chosen and topology.all <= chosen:
        what = f"all {len(topology.all)} CPUs are reserved: there are none for pods"
        warnings.append(Finding(Severity.ERROR, what, "reserve fewer CPUs (reservedCPUs, reservedCPUCount)"))
    return chosen


def _reserve(topology: Topology, count: int, held: CpuSet, warnings: list[Finding]) -> CpuSet:
    if count <= 0:
        return EMPTY
    if count >= len(topology.all):
        if count > len(topology.all):
            what = f"{count} CPUs are to be reserved, the machine has {len(topology.all)}"
            warnings.append(Finding(Severity.ERROR, what, "set reservedCPUCount to fewer"))
        return topology.all
    chosen = reserve(topology, count)
    if chosen & held:
        return _take(topology, topology.all - held, count)
    return chosen


def choose_floor(
    topology: Topology,
    settings: CpuSettings,
    free: CpuSet,
    held: CpuSet,
    earlier: CpuSet,
    warnings: list[Finding],
) -> CpuSet:
    """The CPUs of the shared pool that cannot be claimed, out of those that are not reserved."""
    _warn_missing(topology, settings.shared, "sharedCPUs", warnings)
    clash = settings.shared & topology.all - free
    if clash:
        what = f"CPUs {clash} are in sharedCPUs and reserved: they stay reserved"
        warnings.append(Finding(Severity.WARNING, what, "take them out of sharedCPUs or reservedCPUs"))
    occupied = settings.shared & held
    if occupied:
        what = f"CPUs {occupied} are in sharedCPUs and held by claims: they are shared when released"
        warnings.append(Finding(Severity.WARNING, what, "delete the pods that use the claims"))
    floor = ((settings.shared | earlier) & free) - held
    missing = settings.min_shared - len(floor)
    if missing > 0:
        floor |= _take(topology, free - floor - held, missing)
    if len(floor) < settings.min_shared:
        what = f"minSharedCPUs is {settings.min_shared}, but the shared pool can keep only {len(floor)} CPUs"
        fix = f"set minSharedCPUs to fewer than {len(free)}"
        if held & free:
            fix = f"wait until claims release CPUs: they hold {len(held & free)}"
        warnings.append(Finding(Severity.WARNING, what, fix))
    elif floor and not free - floor:
        what = f"all {len(free)} CPUs that are not reserved are kept for the shared pool"
        warnings.append(Finding(Severity.ERROR, what, f"set minSharedCPUs to fewer than {len(free)}"))
    return floor


def _take(topology: Topology, available: CpuSet, count: int) -> CpuSet:
    """Some CPUs that lie together; all there are if those are fewer."""
    if count >= len(available):
        return available
    taken = assign(topology, available, count)
    return taken.cpus if isinstance(taken, Assigned) else available


def _warn_missing(topology: Topology, cpus: CpuSet, key: str, warnings: list[Finding]) -> None:
    skipped = CpuSet(cpu.cpu for cpu in topology.skipped)
    missing = cpus - topology.all - topology.offline - skipped
    if missing:
        what = f"CPUs {missing} in {key} do not exist: the machine has {topology.all | topology.offline}"
        warnings.append(Finding(Severity.WARNING, what, f"take them out of {key}"))


def check_against_node(
    topology: Topology, reserved: CpuSet, allocatable: Quantity | str | int
) -> tuple[Finding, ...]:
    """Whether the node says the same of its CPUs as the driver: `allocatable` is the node's allocatable cpu.

    The scheduler believes the node. If it says more than there are beside the reserved CPUs, pods are
    promised CPUs that no container may use.
    """
    told = allocatable if isinstance(allocatable, Quantity) else Quantity.from_json(allocatable)
    there = len(topology.all - reserved)
    usable = Quantity.of(there)
    numbers = f"the node has {told} CPUs allocatable, the driver {there} ({len(reserved)} reserved)"
    if told > usable:
        what = f"{numbers}: the scheduler promises CPUs that no container may use"
        fix = (
            f"reserve {len(reserved & topology.all)} CPUs in the kubelet, too (kubeReserved and "
            "systemReserved together), or reserve fewer in the driver (reservedCPUs)"
        )
        return (Finding(Severity.WARNING, what, fix),)
    if told + Quantity.of(1) <= usable:
        what = f"{numbers}: CPUs lie idle that the scheduler does not count"
        fix = "reserve as many CPUs in the driver (reservedCPUs) as kubeReserved and systemReserved say"
        return (Finding(Severity.WARNING, what, fix),)
    return ()
