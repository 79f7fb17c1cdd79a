"""Interface of enforcers, which pin containers, and the choice between NRI and cgroups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from plimsoll.client import Client
from plimsoll.common.checkpoint import NodeFinding
from plimsoll.drivers.cpu.pinning.cgroups import CgroupEnforcer
from plimsoll.drivers.cpu.pinning.counters import Counters
from plimsoll.drivers.cpu.pinning.nri import NriEnforcer
from plimsoll.drivers.cpu.pinning.plan import ContainerView, CpuStateView, PinFault
from plimsoll.drivers.cpu.pinning.pods import NodePods
from plimsoll.drivers.cpu.settings import CpuSettings, PinEnforcement
from plimsoll.drivers.cpu.topology.topology import Topology


class Enforcer(Protocol):
    """Keeps containers on their CPUs."""

    #: Called when the link to the runtime, or the faults of containers, have changed.
    on_change: Callable[[], None]
    #: Reason why containers cannot be pinned, "" if they can.
    link_error: str
    findings: tuple[NodeFinding, ...]
    counters: Counters

    @property
    def linked(self) -> bool: ...

    @property
    def runtime(self) -> str:
        """Description of the runtime or enforcement mechanism."""
        ...

    @property
    def shared_in_use(self) -> bool:
        """True if containers run on the shared pool."""
        ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def apply(self) -> tuple[PinFault, ...]:
        """Update running containers after a change of allocations, shared pool or topology."""
        ...

    def containers(self) -> tuple[ContainerView, ...]: ...

    def faults(self) -> tuple[PinFault, ...]: ...


def make_enforcer(
    state: CpuStateView, topology: Callable[[], Topology], settings: CpuSettings, client: Client
) -> Enforcer:
    """Create the configured enforcer; the default is NRI if its socket exists, else cgroups."""
    chosen = settings.pin.enforcement
    if chosen is PinEnforcement.AUTO:
        chosen = PinEnforcement.NRI if settings.nri.exists() else PinEnforcement.CGROUPS
    if chosen is PinEnforcement.NRI:
        return NriEnforcer(state, topology, settings)
    return CgroupEnforcer(state, topology, settings, NodePods(client, settings.node))
