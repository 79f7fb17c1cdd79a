"""Reserved CPUs and always shared CPUs, which cannot be claimed. Pure.

An explicit list is used as is; a number of CPUs is chosen like the kubelet chooses reserved CPUs, so that
they are adjacent. A choice is kept while its CPUs exist, and allocated CPUs are never chosen. Always shared
CPUs are chosen again when they come back: if they moved to another device, it would lose capacity that the
scheduler may have allocated already.
"""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll.api.cpuset import EMPTY, CpuSet
from plimsoll.api.quantity import Quantity
from plimsoll.common.checkpoint import FindingSeverity, NodeFinding
from plimsoll.drivers.cpu.allocation.allocate import Assigned, assign, reserve
from plimsoll.drivers.cpu.settings import CpuSettings
from plimsoll.drivers.cpu.topology import Topology


def choose_reserved(
    topology: Topology,
    settings: CpuSettings,
    allocated: CpuSet,
    earlier: CpuSet | None,
    warnings: list[NodeFinding],
) -> CpuSet:
    """Choose the reserved CPUs; a list keeps CPUs that do not exist yet."""
    wanted = settings.reserved
    if isinstance(wanted, CpuSet):
        _warn_missing(topology, wanted, "reservedCPUs", warnings)
        chosen = wanted
    elif earlier is not None:
        chosen = earlier
    else:
        chosen = _reserve(topology, wanted, allocated, warnings)
    overlap = chosen & allocated
    if overlap:
        what = f"CPUs {overlap} are reserved and allocated to claims"
        fix = "delete the pods that use the claims, or reserve other CPUs (reservedCPUs)"
        warnings.append(NodeFinding(FindingSeverity.WARNING, what, fix))
    if chosen and topology.all <= chosen:
        what = f"all {len(topology.all)} CPUs are reserved: there are none for pods"
        warnings.append(
            NodeFinding(FindingSeverity.ERROR, what, "reserve fewer CPUs (reservedCPUs, reservedCPUCount)")
        )
    return chosen


def _reserve(topology: Topology, count: int, allocated: CpuSet, warnings: list[NodeFinding]) -> CpuSet:
    if count <= 0:
        return EMPTY
    if count >= len(topology.all):
        if count > len(topology.all):
            what = f"{count} CPUs must be reserved, the machine has {len(topology.all)}"
            warnings.append(NodeFinding(FindingSeverity.ERROR, what, "set reservedCPUCount to fewer"))
        return topology.all
    chosen = reserve(topology, count)
    if chosen & allocated:
        return _take(topology, topology.all - allocated, count)
    return chosen


def choose_always_shared(
    topology: Topology,
    settings: CpuSettings,
    free: CpuSet,
    allocated: CpuSet,
    preferred: Sequence[int],
    minimum: int,
    warnings: list[NodeFinding],
) -> CpuSet:
    """Choose at least `minimum` CPUs of the shared pool that cannot be claimed, among those not reserved.

    `preferred` are CPUs that were chosen before, in the order of preference.
    """
    _warn_missing(topology, settings.shared, "sharedCPUs", warnings)
    clash = settings.shared & topology.all - free
    if clash:
        what = f"CPUs {clash} are in sharedCPUs and reserved: they stay reserved"
        warnings.append(
            NodeFinding(FindingSeverity.WARNING, what, "take them out of sharedCPUs or reservedCPUs")
        )
    occupied = settings.shared & allocated
    if occupied:
        what = f"CPUs {occupied} are in sharedCPUs and allocated to claims: they become shared when released"
        warnings.append(NodeFinding(FindingSeverity.WARNING, what, "delete the pods that use the claims"))
    always_shared = (settings.shared & free) - allocated
    missing = minimum - len(always_shared)
    if missing > 0:
        available = free - allocated - always_shared
        always_shared |= CpuSet([cpu for cpu in preferred if cpu in available][:missing])
        missing = minimum - len(always_shared)
    if missing > 0:
        always_shared |= _take(topology, free - always_shared - allocated, missing)
    if len(always_shared) < minimum:
        shown = minimum if settings.min_shared is not None else f"auto, now {minimum}"
        what = f"minSharedCPUs is {shown}, but only {len(always_shared)} CPUs can be kept"
        fix = f"set minSharedCPUs to fewer than {len(free)}"
        if allocated & free:
            fix = f"wait until claims release CPUs: {len(allocated & free)} are allocated"
        warnings.append(NodeFinding(FindingSeverity.WARNING, what, fix))
    elif always_shared and not free - always_shared:
        what = f"all {len(free)} CPUs that are not reserved are kept for the shared pool"
        warnings.append(
            NodeFinding(FindingSeverity.ERROR, what, f"set minSharedCPUs to fewer than {len(free)}")
        )
    return always_shared


def compute_min_shared(topology: Topology, settings: CpuSettings, *, shared_in_use: bool) -> int:
    """Return the minimum size of the shared pool.

    Without a setting it is one CPU (or core) as soon as containers share CPUs: the last one could not be
    prepared for a claim anyway.
    """
    if settings.min_shared is not None:
        return settings.min_shared
    if not shared_in_use or settings.pin.empty_pool:
        return 0
    return max(map(len, topology.cores.values()), default=1) if settings.assign.full_cores else 1


def _take(topology: Topology, available: CpuSet, count: int) -> CpuSet:
    """Choose adjacent CPUs; all available ones if there are fewer."""
    if count >= len(available):
        return available
    taken = assign(topology, available, count)
    return taken.cpus if isinstance(taken, Assigned) else available


def _warn_missing(topology: Topology, cpus: CpuSet, key: str, warnings: list[NodeFinding]) -> None:
    skipped = CpuSet(cpu.cpu for cpu in topology.skipped)
    missing = cpus - topology.all - topology.offline - skipped
    if missing:
        what = f"CPUs {missing} in {key} do not exist: the machine has {topology.all | topology.offline}"
        warnings.append(NodeFinding(FindingSeverity.WARNING, what, f"take them out of {key}"))


def check_against_node(
    topology: Topology, reserved: CpuSet, allocatable: Quantity | str | int
) -> tuple[NodeFinding, ...]:
    """Compare the driver's CPUs with the node's allocatable CPU.

    The scheduler uses the node's value. If it exceeds the CPUs that are not reserved, pods are scheduled on
    CPUs that no container may use.
    """
    reported = allocatable if isinstance(allocatable, Quantity) else Quantity.from_json(allocatable)
    there = len(topology.all - reserved)
    usable = Quantity.of(there)
    numbers = f"the node has {reported} CPUs allocatable, the driver {there} ({len(reserved)} reserved)"
    if reported > usable:
        what = f"{numbers}: the scheduler allocates CPUs that no container may use"
        fix = (
            f"reserve {len(reserved & topology.all)} CPUs in the kubelet, too (kubeReserved and "
            "systemReserved together), or reserve fewer in the driver (reservedCPUs)"
        )
        return (NodeFinding(FindingSeverity.WARNING, what, fix),)
    if reported + Quantity.of(1) <= usable:
        what = f"{numbers}: some CPUs are never allocated by the scheduler"
        fix = "reserve as many CPUs in the driver (reservedCPUs) as in kubeReserved and systemReserved"
        return (NodeFinding(FindingSeverity.WARNING, what, fix),)
    return ()
