"""How a CPU driver stands, in numbers for its metrics.

Owns the reading; nothing is counted here, so that the numbers are right however often the driver restarts.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from typing import TYPE_CHECKING

from plimsoll.drivers.cpu.process.metrics import CpuState
from plimsoll.drivers.cpu.settings import Mode

if TYPE_CHECKING:
    from plimsoll.drivers.cpu.driver import CpuDriver


def read_state(driver: CpuDriver, *, healthy: bool) -> CpuState:
    """The numbers of a driver that has started."""
    from plimsoll.drivers.cpu.pinning import NriEnforcer  # noqa: PLC0415 - metrics are listed without it

    book, enforcer, station = driver.book, driver.enforcer, driver.station
    arrangement, topology = book.arrangement, book.topology
    holdings = book.holdings.values()
    counted = enforcer.counters
    slices, calls = station.metrics.slices, station.metrics.calls
    devices = {}
    if driver.settings.mode is Mode.GROUPED:  # else there would be one for each CPU
        devices = {
            name: (len(domain.cpus), len(domain.cpus - book.held))
            for name, domain in arrangement.domains.items()
        }
    return CpuState(
        allocated=len(book.held),
        available=len(arrangement.claimable - book.held),
        reserved=len(arrangement.reserved),
        claims=len(book.holdings),
        shared=len(book.shared),
        offline=len(topology.offline),
        skipped=len(topology.skipped),
        disputed=sum(bool(holding.disputed) for holding in holdings),
        devices=devices,
        containers=Counter(
            {"exclusive": 0, "shared": 0}
            | Counter("exclusive" if view.claims else "shared" for view in enforcer.containers())
        ),
        links={
            "kubelet": station.registered,
            ("nri" if isinstance(enforcer, NriEnforcer) else "cgroups"): enforcer.linked,
        },
        events={
            **{f"pin_{field.name}": getattr(counted, field.name) for field in fields(counted)},
            "registrations": station.metrics.registrations,
            "registrations_rejected": station.metrics.rejections,
            "sockets_made": station.metrics.sockets_created,
            "slices_created": slices.created,
            "slices_updated": slices.updated,
            "slices_deleted": slices.deleted,
            "slices_failed": slices.failures,
            "call_faults": calls.faults,
        },
        findings={
            "info": 0,
            "warning": 0,
            "error": 0,
            **Counter(finding.severity.value for finding in driver.findings),
        },
        healthy=healthy,
    )
