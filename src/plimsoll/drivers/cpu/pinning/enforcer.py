"""Who gives containers their CPUs: what a driver asks of it, and which one it is.

Owns `Enforcer` and the choice: NRI where the runtime has a socket for it, else cgroups.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from plimsoll.client import Client
from plimsoll.common.checkpoint import Finding
from plimsoll.drivers.cpu.pinning.cgroups import CgroupEnforcer
from plimsoll.drivers.cpu.pinning.counters import Counters
from plimsoll.drivers.cpu.pinning.nri import NriEnforcer
from plimsoll.drivers.cpu.pinning.plan import ContainerView, Holdings, PinFault
from plimsoll.drivers.cpu.pinning.pods import NodePods
from plimsoll.drivers.cpu.settings import CpuSettings, Enforcement
from plimsoll.drivers.cpu.topology.topology import Topology


class Enforcer(Protocol):
    """Keeps containers on the CPUs that are theirs."""

    #: Called when the link to the runtime, or what is wrong with containers, has changed.
    on_change: Callable[[], None]
    #: Why nothing can be set; empty while it can.
    link_error: str
    findings: tuple[Finding, ...]
    counters: Counters

    @property
    def linked(self) -> bool: ...

    @property
    def runtime(self) -> str:
        """Through what containers are reached, for people."""
        ...

    @property
    def shared_in_use(self) -> bool:
        """Whether containers run on the shared pool."""
        ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def apply(self) -> tuple[PinFault, ...]:
        """Holdings, pool or topology changed: bring running containers in line, now or as soon as may be."""
        ...

    def containers(self) -> tuple[ContainerView, ...]: ...

    def faults(self) -> tuple[PinFault, ...]: ...


def make_enforcer(
    book: Holdings, topology: Callable[[], Topology], settings: CpuSettings, client: Client
) -> Enforcer:
    """The one that the settings name, or the one that is possible here."""
    chosen = settings.pin.enforcement
    if chosen is Enforcement.AUTO:
        chosen = Enforcement.NRI if settings.nri.exists() else Enforcement.CGROUPS
    if chosen is Enforcement.NRI:
        return NriEnforcer(book, topology, settings)
    return CgroupEnforcer(book, topology, settings, NodePods(client, settings.node))
