"""What a CPU driver knows, as a tree for people and pages. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from plimsoll.api.cpuset import EMPTY
from plimsoll.common.checkpoint import Finding
from plimsoll.drivers.cpu.pinning.enforcer import Enforcer
from plimsoll.drivers.cpu.settings import CpuSettings
from plimsoll.drivers.cpu.state.cpu_state import CpuBook


def describe(
    settings: CpuSettings, book: CpuBook, enforcer: Enforcer, findings: Iterable[Finding]
) -> dict[str, Any]:
    """Machine, devices, claims, containers, and what is wrong with them."""
    arrangement, held = book.arrangement, book.by_device
    return {
        "node": settings.node,
        "mode": settings.mode.value,
        "groupBy": settings.group_by.value,
        "runtime": enforcer.runtime,
        "online": str(book.topology.all),
        "offline": str(book.topology.offline),
        "reserved": str(arrangement.reserved),
        "shared": str(book.shared),
        "unclaimable": str(arrangement.floor),
        "devices": {
            name: {"cpus": str(domain.cpus), "held": str(held.get(name, EMPTY))}
            for name, domain in arrangement.domains.items()
        },
        "claims": [
            {
                "uid": uid,
                "namespace": holding.ref.namespace,
                "name": holding.ref.name,
                "cpus": str(holding.granted),
                "disputed": holding.disputed,
                "explain": book.explain(uid),
            }
            for uid, holding in book.holdings.items()
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
