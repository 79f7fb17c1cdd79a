"""Binding of containers to the memory nodes of their claims, through the runtime's NRI.

`MemoryNodePlugin` sets `cpuset.mems` of a container, and its limits of huge pages, when the runtime creates
it. The claims of a container are named by environment variables that CDI injects; nodes and amounts are those
of the prepared claims, never those of the environment, which users can set. A container that names a claim
that is not prepared is refused. Containers that exist when the plugin connects get their nodes again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from plimsoll.api.cpuset import CpuSet
from plimsoll.common.tasks import cancel_tasks
from plimsoll.drivers.memory.settings import DRIVER_NAME, MEMORY
from plimsoll.protocols.messages import nri
from plimsoll.protocols.nri import NriEvent, NriPlugin
from plimsoll.protocols.nri.edits import adjustment, creation, update
from plimsoll.protocols.ttrpc import UNKNOWN, TtrpcFault

_log = logging.getLogger("plimsoll.memory.pinning")

#: Prefix of the environment variables: DRA_MEMORY_<claim UID>_<request>=<resource>@<NUMA node>.
ENV = "DRA_MEMORY_"
INDEX = "01"
_STOPPED = 4
#: Page sizes as cgroups name them.
_UNITS = {"Ki": "KB", "Mi": "MB", "Gi": "GB"}


@dataclass(frozen=True, slots=True)
class MemoryGrant:
    """Memory of one allocation result of a prepared claim."""

    node: int
    resource: str
    size: int


#: Function that returns the memory of a request by its environment variable, () if it is not prepared.
FindGrants = Callable[[str], Sequence[MemoryGrant]]


def variable_name(uid: str, request: str) -> str:
    """Return the name of a request's environment variable, valid in every shell."""
    letters = (letter if letter.isalnum() else "_" for letter in f"{uid}_{request}")
    return ENV + "".join(letters)


def make_resources(grants: Iterable[MemoryGrant]) -> nri.LinuxResources:
    """Build the memory nodes and the limits of huge pages."""
    listed = list(grants)
    resources = nri.LinuxResources(cpu=nri.LinuxCPU(mems=str(CpuSet(grant.node for grant in listed))))
    limits: dict[str, int] = {}
    for grant in listed:
        if grant.resource != MEMORY:
            size = grant.resource.removeprefix("hugepages-")
            name = size[:-2] + _UNITS[size[-2:]]
            limits[name] = limits.get(name, 0) + grant.size
    for name, limit in sorted(limits.items()):
        resources.hugepage_limits.append(nri.HugepageLimit(page_size=name, limit=limit))
    return resources


class MemoryNodePlugin:
    """NRI plugin of the memory driver; it reconnects until it is stopped."""

    def __init__(self, socket: Path, find_grants: FindGrants) -> None:
        self.on_change: Callable[[], None] = lambda: None
        self.link_error = "not connected yet"
        self.linked = False
        self.bound = self.refused = 0
        self._find_grants = find_grants
        self._task: asyncio.Task[None] | None = None
        self._plugin = NriPlugin(
            DRIVER_NAME,
            INDEX,
            {NriEvent.CREATE_CONTAINER: self._on_create},
            socket=socket,
            synchronize=self._on_synchronize,
        )

    async def start(self) -> None:
        self._task = asyncio.create_task(self._plugin.serve(ended=self._on_ended), name="nri-plugin")

    async def stop(self) -> None:
        """Stop; containers keep their memory nodes."""
        task, self._task = self._task, None
        if task is not None:
            await cancel_tasks([task])
        self.linked = False

    def decide(self, env: Iterable[str]) -> nri.LinuxResources | str | None:
        """Return what a container gets, None if it has no claims, or the reason why it is refused."""
        grants: list[MemoryGrant] = []
        for name in sorted({entry.partition("=")[0] for entry in env if entry.startswith(ENV)}):
            found = self._find_grants(name)
            if not found:
                return f"{name} is in its environment, but no such claim is prepared on this node"
            grants += found
        return make_resources(grants) if grants else None

    async def _on_create(
        self, request: nri.CreateContainerRequest
    ) -> nri.CreateContainerResponse | TtrpcFault | None:
        decided = self.decide(request.container.env)
        if decided is None:
            return None
        if isinstance(decided, str):
            self.refused += 1
            _log.warning("container %s is not created: %s", request.container.name, decided)
            return TtrpcFault(UNKNOWN, decided)
        self.bound += 1
        return creation(adjustment(resources=decided))

    async def _on_synchronize(
        self, pods: Sequence[nri.PodSandbox], containers: Sequence[nri.Container]
    ) -> list[nri.ContainerUpdate]:
        updates = []
        for container in containers:
            decided = None if container.state == _STOPPED else self.decide(container.env)
            if isinstance(decided, str):
                _log.warning("container %s: %s", container.name, decided)
            elif decided is not None and container.linux.resources.cpu.mems != decided.cpu.mems:
                updates.append(update(container.id, decided, ignore_failure=True))
        self.linked, self.link_error = True, ""
        self.on_change()
        return updates

    def _on_ended(self, fault: TtrpcFault | None) -> None:
        self.linked = False
        self.link_error = fault.message if fault is not None else "the runtime closed the connection"
        self.on_change()
