"""Gauge values of a CPU driver, read from its state at every scrape."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from typing import TYPE_CHECKING

from plimsoll.drivers.cpu.process.metrics import CpuMetricsSnapshot
from plimsoll.drivers.cpu.settings import DeviceMode

if TYPE_CHECKING:
    from plimsoll.drivers.cpu.driver import CpuDriver


def read_state(driver: CpuDriver, *, healthy: bool) -> CpuMetricsSnapshot:
    """Read the values of a started driver."""
    from plimsoll.drivers.cpu.pinning import NriEnforcer  # noqa: PLC0415 - metrics are listed without it

    state, enforcer, plugin_server = driver.state, driver.enforcer, driver.plugin_server
    layout, topology = state.layout, state.topology
    allocations = state.allocations.values()
    counted = enforcer.counters
    slices, calls = plugin_server.metrics.slices, plugin_server.metrics.calls
    devices = {}
    if driver.settings.mode is DeviceMode.GROUPED:  # else there would be one for each CPU
        devices = {
            name: (len(domain.cpus), len(domain.cpus - state.allocated))
            for name, domain in layout.domains.items()
        }
    return CpuMetricsSnapshot(
        allocated=len(state.allocated),
        available=len(layout.claimable - state.allocated),
        reserved=len(layout.reserved),
        claims=len(state.allocations),
        shared=len(state.shared),
        offline=len(topology.offline),
        skipped=len(topology.skipped),
        disputed=sum(bool(allocation.disputed) for allocation in allocations),
        devices=devices,
        containers=Counter(
            {"exclusive": 0, "shared": 0}
            | Counter("exclusive" if view.claims else "shared" for view in enforcer.containers())
        ),
        links={
            "kubelet": plugin_server.registered,
            ("nri" if isinstance(enforcer, NriEnforcer) else "cgroups"): enforcer.linked,
        },
        events={
            **{f"pin_{field.name}": getattr(counted, field.name) for field in fields(counted)},
            "registrations": plugin_server.metrics.registrations,
            "registrations_rejected": plugin_server.metrics.rejections,
            "sockets_made": plugin_server.metrics.sockets_created,
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
