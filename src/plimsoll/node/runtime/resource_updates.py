"""Changes of the resources of running containers: their cgroups, CPUs and records."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from plimsoll.errors import StoreError
from plimsoll.node.cgroup_plans.containers import ContainerPlan
from plimsoll.node.cgroups.tree import Cgroups
from plimsoll.node.containers import ContainerPhase, RuntimeFault
from plimsoll.node.resources import LinuxResources
from plimsoll.node.runtime.commands import cpus_in
from plimsoll.node.runtime.container_process import ContainerProcess
from plimsoll.node.runtime.exec_spec import has_cpuset
from plimsoll.node.runtime.sandboxes import UPDATE_ERROR, first_fault
from plimsoll.node.runtime.tasks import RuntimeTasks

_log = logging.getLogger(__name__)


class ResourceUpdates:
    """Changes the resources of the containers of a runtime; a change that fails leaves the old ones."""

    def __init__(
        self,
        cgroups: Cgroups,
        containers: Mapping[str, ContainerProcess],
        tasks: RuntimeTasks,
        changed: Callable[[str], None],
    ) -> None:
        """Create it. `changed` takes the UID of the pod of a changed container."""
        self._cgroups = cgroups
        self._containers = containers
        self._tasks = tasks
        self._changed = changed

    async def apply(
        self, id: str, resources: LinuxResources, plan: ContainerPlan | None = None
    ) -> RuntimeFault | None:
        """Change the resources of a container; a missing or exited one is not a fault."""
        container = self._containers.get(id)
        if container is None:
            return None
        async with container.changing:
            return await self._change(container, resources, plan)

    async def _change(
        self, container: ContainerProcess, resources: LinuxResources, plan: ContainerPlan | None
    ) -> RuntimeFault | None:
        if container.state.phase is ContainerPhase.EXITED:
            return None
        id, old = container.state.id, container.record
        merged = old.resources.merged(resources)
        pod = container.state.pod
        faults = await self._tasks.call(self._cgroups.make_container, pod, id, merged)
        fault = first_fault(faults, UPDATE_ERROR)
        if fault is None and resources.cpus and not has_cpuset(self._cgroups.join_files(pod, id)):
            fault = await self._pin(container, resources.cpus)
        if fault is not None:
            await self._tasks.call(self._cgroups.make_container, pod, id, old.resources)
            return fault
        try:
            spec = old.spec if plan is None else replace(old.spec, plan=plan)
            container.store(replace(container.record, resources=merged, spec=spec))
        except StoreError as error:
            return RuntimeFault(UPDATE_ERROR, str(error))
        self._changed(pod)
        return None

    async def _pin(self, container: ContainerProcess, cpus: str) -> RuntimeFault | None:
        requested = cpus_in(cpus)
        if requested is None:
            return RuntimeFault(UPDATE_ERROR, f"{cpus!r} is not a CPU list")
        problem = await container.pin(requested)
        if problem:  # a machine that simulates a larger one does not have these CPUs
            _log.info("container %s: CPUs %s cannot be set: %s", container.state.id, cpus, problem)
        return None
