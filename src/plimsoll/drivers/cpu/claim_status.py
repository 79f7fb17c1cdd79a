"""Device status of claims: the assigned CPUs, for readers of the API. Pure.

Defines `status.devices[].data` of this driver: `cpuset` and `numaNodes` are lists in the kernel's format,
`offline` lists those CPUs of the cpuset that are offline, if any. The condition `Ready` reports whether
containers run on exactly these CPUs.

DIFF: the Go driver exposes the CPUs of a claim to its containers only
(test_issues_285_and_286_control_planes_see_the_cpus).
"""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll.api.cpuset import EMPTY, CpuSet
from plimsoll.drivers.cpu.state.claim_allocation import ClaimAllocation
from plimsoll.drivers.cpu.topology.topology import Topology
from plimsoll.drivers.plugin.driver import DeviceCondition, DeviceStatus

READY = "Ready"
_MAX_MESSAGE_LENGTH = 1000


def build_device_statuses(
    allocations: Iterable[ClaimAllocation], topology: Topology, *, pinned: bool = True
) -> list[DeviceStatus]:
    """Build the device statuses of all claims. `pinned` is False if the runtime has been disconnected.

    Claims whose requests are unknown (adopted from CDI files alone) are omitted until they are prepared
    again. Results of one claim on the same device without share IDs are merged into one status.
    """
    found = []
    for allocation in allocations:
        if not allocation.ref.name or allocation.adopted:
            continue
        devices: dict[tuple[str, str, str | None], CpuSet] = {}
        for assignment in allocation.assignments:
            key = (assignment.pool, assignment.device, assignment.share_id)
            if assignment.pool and assignment.device and assignment.cpus:
                devices[key] = devices.get(key, EMPTY) | assignment.cpus
        for (pool, device, share), cpus in devices.items():
            offline = cpus - topology.all
            nodes = CpuSet(node for node in topology.numa_of(cpus) if node >= 0)
            data = {"cpuset": str(cpus), "numaNodes": str(nodes)}
            if offline:
                data["offline"] = str(offline)
            condition = _ready(allocation, cpus, offline, pinned)
            found.append(DeviceStatus(allocation.ref, pool, device, share, data, (condition,)))
    return found


class DeviceStatusCache:
    """Device statuses of all claims, built again only for claims that have changed."""

    def __init__(self) -> None:
        self._built: dict[str, tuple[ClaimAllocation, list[DeviceStatus]]] = {}
        self._topology: Topology | None = None
        self._pinned = True

    def build(
        self, allocations: Iterable[ClaimAllocation], topology: Topology, *, pinned: bool
    ) -> list[DeviceStatus]:
        """Return what `build_device_statuses` returns."""
        if topology is not self._topology or pinned != self._pinned:
            self._built, self._topology, self._pinned = {}, topology, pinned
        built = {}
        for allocation in allocations:
            known = self._built.get(allocation.ref.uid)
            if known is None or known[0] is not allocation:
                known = allocation, build_device_statuses([allocation], topology, pinned=pinned)
            built[allocation.ref.uid] = known
        self._built = built
        return [status for _, statuses in built.values() for status in statuses]


def _ready(allocation: ClaimAllocation, cpus: CpuSet, offline: CpuSet, pinned: bool) -> DeviceCondition:
    if allocation.disputed:
        return DeviceCondition(READY, False, "Disputed", allocation.disputed[:_MAX_MESSAGE_LENGTH])
    if offline:
        return DeviceCondition(READY, False, "CPUsOffline", f"CPUs {offline} are offline")
    if not pinned:
        return DeviceCondition(READY, False, "NotPinned", "the driver has no link to the runtime")
    return DeviceCondition(READY, True, "Pinned", f"CPUs {cpus} are exclusive to the claim")
