"""What the status of claims tells about their CPUs, for whoever sees the API and not the node. Pure.

Owns the form of `status.devices[].data` of this driver: `cpuset` and `numaNodes` are lists as the kernel
writes them, `offline` are those of the CPUs that are switched off, if any are. The condition `Ready` says
whether containers run on just these CPUs.

DIFF: the Go driver tells nobody but the container which CPUs a claim has
(test_issues_285_and_286_control_planes_see_the_cpus).
"""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll.api.cpuset import EMPTY, CpuSet
from plimsoll.drivers.cpu.state.holdings import Holding
from plimsoll.drivers.cpu.topology.topology import Topology
from plimsoll.drivers.plugin.driver import DeviceCondition, DeviceStatus

READY = "Ready"
_LONGEST = 1000


def claim_reports(
    holdings: Iterable[Holding], topology: Topology, *, pinned: bool = True
) -> list[DeviceStatus]:
    """What the claims of a node tell. Not `pinned`: nobody has seen to containers for a while.

    Claims whose name or devices are not known (they came from CDI files alone) are left out until they are
    prepared again. Results of one claim on the same device that have no shares to tell them apart are told
    together.
    """
    found = []
    for holding in holdings:
        if not holding.ref.name:
            continue
        devices: dict[tuple[str, str, str | None], CpuSet] = {}
        for grant in holding.grants:
            key = (grant.pool, grant.device, grant.share_id)
            if grant.pool and grant.device and grant.cpus:
                devices[key] = devices.get(key, EMPTY) | grant.cpus
        for (pool, device, share), cpus in devices.items():
            offline = cpus - topology.all
            nodes = CpuSet(node for node in topology.numa_of(cpus) if node >= 0)
            data = {"cpuset": str(cpus), "numaNodes": str(nodes)}
            if offline:
                data["offline"] = str(offline)
            condition = _ready(holding, cpus, offline, pinned)
            found.append(DeviceStatus(holding.ref, pool, device, share, data, (condition,)))
    return found


def _ready(holding: Holding, cpus: CpuSet, offline: CpuSet, pinned: bool) -> DeviceCondition:
    if holding.disputed:
        return DeviceCondition(READY, False, "Disputed", holding.disputed[:_LONGEST])
    if offline:
        return DeviceCondition(READY, False, "CPUsOffline", f"CPUs {offline} are offline")
    if not pinned:
        return DeviceCondition(READY, False, "NotPinned", "the driver has no link to the runtime")
    return DeviceCondition(READY, True, "Pinned", f"CPUs {cpus} are the claim's alone")
