"""Description of a CPU driver's state as a JSON tree, for the debug page. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from plimsoll.api.cpuset import EMPTY
from plimsoll.common.checkpoint import NodeFinding
from plimsoll.drivers.cpu.pinning.enforcer import Enforcer
from plimsoll.drivers.cpu.settings import CpuSettings
from plimsoll.drivers.cpu.state.cpu_state import CPUState


def describe(
    settings: CpuSettings, state: CPUState, enforcer: Enforcer, findings: Iterable[NodeFinding]
) -> dict[str, Any]:
    """Describe machine, devices, claims, containers and their problems."""
    layout, allocated = state.layout, state.by_device
    return {
        "node": settings.node,
        "mode": settings.mode.value,
        "groupBy": settings.group_by.value,
        "runtime": enforcer.runtime,
        "online": str(state.topology.all),
        "offline": str(state.topology.offline),
        "reserved": str(layout.reserved),
        "shared": str(state.shared),
        "unclaimable": str(layout.always_shared),
        "devices": {
            name: {"cpus": str(domain.cpus), "held": str(allocated.get(name, EMPTY))}
            for name, domain in layout.domains.items()
        },
        "claims": [
            {
                "uid": uid,
                "namespace": allocation.ref.namespace,
                "name": allocation.ref.name,
                "cpus": str(allocation.assigned),
                "disputed": allocation.disputed,
                "explain": state.explain(uid),
            }
            for uid, allocation in state.allocations.items()
        ],
        "containers": [
            {
                "id": view.id,
                "namespace": view.namespace,
                "pod": view.pod,
                "name": view.name,
                "claims": sorted(view.claims),
                "cpus": view.cpus,
            }
            for view in enforcer.containers()
        ],
        "faults": [str(fault) for fault in enforcer.faults()],
        "findings": [
            {"severity": finding.severity.value, "what": finding.what, "fix": finding.fix}
            for finding in findings
        ],
    }
