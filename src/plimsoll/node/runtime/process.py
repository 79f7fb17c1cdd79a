"""Process runtime: containers as local processes in their cgroups, which outlive the agent.

The lifecycle of a container:

   create           CDI edits -> hooks.create -> cgroup -> record on disk -> hooks.created
   start_container  hooks.starting -> shim -> hooks.started
   exit             exit.json -> cgroup removed -> hooks.stopped (updates of others)
   remove_container hooks.removed -> directory removed

An image is a label here: containers run commands of the machine, on its files and its network, so that the
pod's address is the node's. An image called `pause` does nothing until it is stopped; others can be given a
command in the settings. A process has the credentials of its pod's security context (node/security); nothing
is started without. Guarantees that after kill -9 of the agent at any point the next one finds everything, and
adopts or removes it, and that no external name leads out of its directory.

DIFF: the root file system of a container is the machine's: readOnlyRootFilesystem makes all of it read-only
for the container, its working directory included, except /dev, /proc and what CDI files and hooks mount
(test_a_read_only_root_file_system).

DIFF: a pod has no image, no root file system and no network namespace
(test_images_select_configured_commands).

DIFF: a volume is mounted where nothing exists by covering the nearest directory for the container only
(test_volumes_are_mounted_where_nothing_is_without_changing_the_machine).

DIFF: mounts and devices of CDI files and hooks are bind-mounted over existing paths, in a private mount
namespace of the container, and failures are reported in its message; nothing is created on the machine, no
OCI hook is run (test_mounts_and_devices_are_visible_inside_only,
test_unsupported_process_settings_are_reported).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from plimsoll.common.checkpoint import FindingSeverity, NodeFinding
from plimsoll.errors import InputError, StoreError
from plimsoll.node.cgroup_plans.containers import ContainerPlan
from plimsoll.node.cgroups.tree import Cgroups
from plimsoll.node.containers import (
    ContainerInfo,
    ContainerPhase,
    ContainerSpec,
    ContainerStorage,
    RuntimeFault,
    SandboxInfo,
    SandboxSpec,
)
from plimsoll.node.hooks import NO_HOOKS, RuntimeContainer, RuntimeHooks, RuntimeState
from plimsoll.node.layout import Layout, path_component
from plimsoll.node.resources import LinuxResources, resources_from_plan
from plimsoll.node.runtime import shims
from plimsoll.node.runtime.adoption import read_state
from plimsoll.node.runtime.cgroup_repair import restore_cgroups, set_up_cgroups
from plimsoll.node.runtime.commands import Command, command_of, stop_signal
from plimsoll.node.runtime.container_process import KILLED, ContainerProcess
from plimsoll.node.runtime.container_spec import (
    CREATE_ERROR,
    SpecRefusal,
    cancel_creation,
    resolve_container,
)
from plimsoll.node.runtime.exec_spec import (
    MESSAGE_FILE,
    ProcessSettings,
    build_record,
    exec_spec,
    shim_spec,
    unresolved_container,
)
from plimsoll.node.runtime.mount_support import VOLUME_TYPES, can_mount, describe_propagation
from plimsoll.node.runtime.resource_updates import ResourceUpdates
from plimsoll.node.runtime.sandboxes import UPDATE_ERROR, Sandboxes, first_fault
from plimsoll.node.runtime.state_dir import (
    ExitRecord,
    PodRecord,
    chown_directory,
    measure_storage,
    remove_tree,
)
from plimsoll.node.runtime.tasks import RuntimeTasks
from plimsoll.protocols.cdi import CdiCache

__all__ = ["ProcessRuntime", "ProcessSettings"]

RUN_ERROR = "RunContainerError"


class ProcessRuntime:
    """Runtime of local processes."""

    name = "process"
    version = "1"
    volume_types: frozenset[str] | None = frozenset()
    runs_processes = True

    def __init__(
        self,
        layout: Layout,
        cgroups: Cgroups,
        cdi: CdiCache,
        hooks: RuntimeHooks = NO_HOOKS,
        *,
        settings: ProcessSettings | None = None,
    ) -> None:
        self.layout = layout
        self.hooks = hooks
        self.settings = settings or ProcessSettings()
        self._cgroups = cgroups
        self._cdi = cdi
        self._containers: dict[str, ContainerProcess] = {}
        self._creating: set[Path] = set()
        self._tasks = RuntimeTasks()
        self._changed: Callable[[str], None] | None = None
        self.program = shims.SOURCE
        self._updates = ResourceUpdates(cgroups, self._containers, self._tasks, self._notify)
        self._sandboxes = Sandboxes(layout, cgroups, lambda: self.hooks, self._tasks, ip=self.settings.ip)

    @property
    def findings(self) -> Sequence[NodeFinding]:
        """Problems found at the start and later."""
        return self._tasks.findings

    # -- lifecycle

    async def start(self, changed: Callable[[str], None]) -> None:
        self._changed = changed
        self._tasks.start()
        self.program = await asyncio.to_thread(shims.compile_shim, self.layout.root)
        if self.settings.volumes and await asyncio.to_thread(can_mount):
            self.volume_types = VOLUME_TYPES
        found = await read_state(self.layout, self.settings.adopt_timeout)
        self._tasks.report(found.findings)
        self._sandboxes.records = found.pods
        self._containers.update({container.state.id: container for container in found.containers})
        await self._tasks.call(self._set_up_cgroups)
        await asyncio.gather(*(self._adopt(container) for container in self._containers.values()))

    async def stop(self) -> None:
        self._changed = None
        for container in self._containers.values():
            container.unwatch()
        await self._tasks.finish()
        self._containers.clear()
        self._sandboxes.records.clear()
        self._tasks.stop()

    # -- pods

    async def run_sandbox(self, spec: SandboxSpec) -> RuntimeFault | None:
        return await self._tasks.complete(self._sandboxes.run(spec))

    async def update_sandbox(self, spec: SandboxSpec) -> RuntimeFault | None:
        return await self._tasks.complete(self._sandboxes.update(spec))

    async def stop_sandbox(self, uid: str) -> None:
        await self._tasks.complete(self._stop_sandbox(uid))

    async def _stop_sandbox(self, uid: str) -> None:
        containers = self._containers_of(uid)
        await asyncio.gather(*(self.stop_container(container.state.id, 0) for container in containers))
        await self._sandboxes.stop(uid)

    async def remove_sandbox(self, uid: str) -> None:
        await self._tasks.complete(self._remove_sandbox(uid))

    async def _remove_sandbox(self, uid: str) -> None:
        await self._stop_sandbox(uid)
        for container in self._containers_of(uid):
            await self._remove_container(container)
        await self._sandboxes.remove(uid)

    # -- containers

    async def create(self, spec: ContainerSpec) -> RuntimeFault | None:
        return await self._tasks.complete(self._create(spec))

    async def _create(self, spec: ContainerSpec) -> RuntimeFault | None:
        if spec.id in self._containers:
            return None
        pod = self._sandboxes.records.get(spec.pod)
        if pod is None or not pod.running:
            return RuntimeFault(CREATE_ERROR, f"pod {spec.pod!r} has no running sandbox")
        if spec.credentials is None:
            return RuntimeFault(CREATE_ERROR, f"container {spec.name!r} has no credentials")
        problem = describe_propagation(spec)
        if problem:
            return RuntimeFault(CREATE_ERROR, problem)
        try:
            path_component(spec.id)
            directory = self.layout.container(spec.pod, spec.name) / str(int(spec.attempt))
        except InputError as error:
            return RuntimeFault(CREATE_ERROR, str(error))
        if directory in self._creating or any(
            container.directory == directory for container in self._containers.values()
        ):
            text = f"attempt {spec.attempt} of container {spec.name!r} is taken by another container"
            return RuntimeFault(CREATE_ERROR, text)
        command = command_of(spec, self.settings.images)
        if isinstance(command, RuntimeFault):
            return command
        self._creating.add(directory)
        try:
            return await self._create_in(directory, pod, spec, command)
        finally:
            self._creating.discard(directory)

    async def _create_in(
        self, directory: Path, pod: PodRecord, spec: ContainerSpec, command: Command
    ) -> RuntimeFault | None:
        requested = replace(spec, command=command.argv)
        resolved = await resolve_container(
            pod.spec, requested, resources_from_plan(spec.plan), self._cdi, self.hooks
        )
        if isinstance(resolved, SpecRefusal):
            if resolved.hooks_called:
                await self._cancel_creation(
                    pod,
                    ContainerProcess(
                        directory, build_record(unresolved_container(requested), command, time.time())
                    ),
                )
            return resolved.fault
        container = ContainerProcess(directory, build_record(resolved, command, time.time()))
        fault = await self._build(container)
        if fault is not None:
            await self._cancel_creation(pod, container)
            return fault
        self._containers[spec.id] = container
        await self.hooks.created(pod.spec, container.state)
        return None

    async def _cancel_creation(self, pod: PodRecord, container: ContainerProcess) -> None:
        """Notify hooks, which have already assigned resources, that the container is not created."""
        await cancel_creation(self.hooks, pod.spec, container.state)

    async def _build(self, container: ContainerProcess) -> RuntimeFault | None:
        """Create a container's directory and cgroup; on a fault nothing is left of them."""
        record, spec = container.record, container.record.spec
        faults = await self._tasks.call(self._cgroups.make_container, spec.pod, spec.id, record.resources)
        fault = first_fault(faults, CREATE_ERROR)
        if fault is None:
            try:
                await asyncio.to_thread(remove_tree, container.directory)  # of an agent that died in between
                work = container.directory / "work"
                work.mkdir(parents=True, mode=0o700)
                chown_directory(work, spec.credentials)
                if spec.message_path:
                    (container.directory / MESSAGE_FILE).touch()
                    (container.directory / MESSAGE_FILE).chmod(0o666)
                container.store(record)
            except (OSError, StoreError) as error:
                fault = RuntimeFault(CREATE_ERROR, str(error))
        if fault is not None:
            await self._tasks.call(self._cgroups.remove_container, spec.pod, spec.id)
            await asyncio.to_thread(remove_tree, container.directory)
        return fault

    async def start_container(self, id: str) -> RuntimeFault | None:
        return await self._tasks.complete(self._start_container(id))

    async def _start_container(self, id: str) -> RuntimeFault | None:
        container = self._containers.get(id)
        if container is None:
            return RuntimeFault(RUN_ERROR, f"unknown container {id!r}")
        async with container.busy:
            if container.state.phase is not ContainerPhase.CREATED:
                return None
            if container.record.spec.credentials is None:
                # Created by an earlier version of the agent, without credentials: it is created again.
                return RuntimeFault(RUN_ERROR, f"container {container.state.name!r} has no credentials")
            pod = self._sandboxes.records[container.state.pod]
            await self.hooks.starting(pod.spec, container.state)
            problem = await container.launch(
                self.program, self._shim_spec(container, pod), self.settings.start_timeout
            )
            if problem:
                await self._end(container)
                return RuntimeFault(
                    RUN_ERROR, f"failed to start container {container.state.name!r}: {problem}"
                )
            self._watch(container)
            await self.hooks.started(pod.spec, container.state)
        return None

    def _shim_spec(self, container: ContainerProcess, pod: PodRecord) -> dict[str, Any]:
        join = self._cgroups.join_files(container.state.pod, container.state.id)
        return shim_spec(container.record, container.directory, pod.spec.name, join, self.settings)

    def exec_spec(self, id: str) -> dict[str, Any] | None:
        """Return the specification of a command in a container; None if the container does not run."""
        container = self._containers.get(id)
        if container is None or container.run is None or container.state.phase is not ContainerPhase.RUNNING:
            return None
        pod = self._sandboxes.records[container.state.pod]
        join = self._cgroups.join_files(container.state.pod, id)
        return exec_spec(
            container.record, container.run, container.directory, pod.spec.name, join, self.settings
        )

    async def wait_ended(self, id: str) -> None:
        """Wait until a container has exited; at once if there is none."""
        container = self._containers.get(id)
        if container is not None:
            await container.ended.wait()

    def container_directory(self, id: str) -> Path | None:
        """Return the directory of a container, with the socket that clients attach to."""
        container = self._containers.get(id)
        return container.directory if container is not None else None

    @property
    def exec_program(self) -> Path:
        """The program that executes commands in containers, as a file that Python can run."""
        return shims.confinement_path(self.program)

    async def update(self, id: str, plan: ContainerPlan) -> RuntimeFault | None:
        return await self._tasks.complete(self._update(id, plan))

    async def _update(self, id: str, plan: ContainerPlan) -> RuntimeFault | None:
        container = self._containers.get(id)
        if container is None:
            return RuntimeFault(UPDATE_ERROR, f"unknown container {id!r}")
        pod = self._sandboxes.records[container.state.pod]
        adjusted = await self.hooks.update(pod.spec, container.state, resources_from_plan(plan))
        if isinstance(adjusted, RuntimeFault):
            return adjusted
        fault = await self._updates.apply(id, adjusted.resources, plan)
        if fault is None:
            await self.hooks.updated(pod.spec, container.state)
        return fault

    async def apply(self, id: str, resources: LinuxResources) -> RuntimeFault | None:
        """Change the resources of a container; a missing or exited one is not a fault."""
        return await self._tasks.complete(self._updates.apply(id, resources))

    async def stop_container(self, id: str, grace: float) -> None:
        container = self._containers.get(id)
        if container is None:
            return
        async with container.busy:
            if container.state.phase is ContainerPhase.CREATED:
                text = "it was stopped before it was started"
                container.record_exit(ExitRecord(exit_code=KILLED, finished_at=time.time(), error=text))
                await self._tasks.complete(self._end(container))
        if container.state.phase is ContainerPhase.RUNNING and grace > 0:
            container.signal(stop_signal(container.record.spec.stop_signal))
            await container.wait_ended(grace)
        while not container.ended.is_set():
            container.kill()
            await asyncio.to_thread(self._cgroups.kill, container.state.pod, id)
            await container.wait_ended(1.0)

    async def remove_container(self, id: str) -> None:
        container = self._containers.get(id)
        if container is not None:
            await self.stop_container(id, 0)
            await self._tasks.complete(self._remove_container(container))

    async def _remove_container(self, container: ContainerProcess) -> None:
        async with container.busy:
            state = container.state
            if self._containers.pop(state.id, None) is None:
                return
            pod = self._sandboxes.records.get(state.pod)
            await self._tasks.call(self._cgroups.remove_container, state.pod, state.id)
            left = await asyncio.to_thread(remove_tree, container.directory)
            if left:
                self._tasks.add_finding(
                    FindingSeverity.WARNING, f"container {state.id} was not removed completely: {left}"
                )
            if pod is not None:
                await self.hooks.removed(pod.spec, state)

    # -- exits

    def _watch(self, container: ContainerProcess) -> None:
        def on_exit() -> None:
            self._tasks.spawn(self._on_exit(container))

        if not container.watch(on_exit):
            on_exit()

    async def _on_exit(self, container: ContainerProcess) -> None:
        """Handle the exit of a container."""
        async with container.busy:
            self._tasks.report(container.on_shim_exit(self.layout.quarantine))
            await self._end(container)
        self._notify(container.state.pod)

    async def _end(self, container: ContainerProcess) -> None:
        if container.ended.is_set():
            return
        state = container.state
        try:
            await self._tasks.call(self._cgroups.remove_container, state.pod, state.id)
        finally:
            container.close()
        pod = self._sandboxes.records.get(state.pod)
        if pod is not None:
            await self.hooks.stopped(pod.spec, state)

    # -- adoption and repair

    def _set_up_cgroups(self) -> None:
        for problem in set_up_cgroups(self._cgroups, self._sandboxes.records, self._containers):
            self._tasks.add_finding(FindingSeverity.WARNING, problem)

    async def restore_cgroups(self) -> tuple[str, ...]:
        """Create removed cgroups of pods and containers again; return what was missing.

        The root cgroup has to exist.
        """
        work = restore_cgroups(self._cgroups, self._sandboxes.records, self._containers, self._tasks)
        return await self._tasks.complete(work)

    async def _adopt(self, container: ContainerProcess) -> None:
        try:
            self._tasks.report(await container.adopt(self.layout.quarantine, self.settings.adopt_timeout))
        except (OSError, StoreError) as error:
            self._tasks.add_finding(
                FindingSeverity.ERROR, f"container {container.state.id} cannot be adopted: {error}"
            )
        if container.state.phase is ContainerPhase.CREATED:
            await self._tasks.call(
                self._cgroups.make_container,
                container.state.pod,
                container.state.id,
                container.record.resources,
            )
        if container.state.phase is ContainerPhase.RUNNING:
            self._watch(container)
        elif container.state.phase is ContainerPhase.EXITED:
            await self._end(container)

    # -- queries

    def sandboxes(self) -> Sequence[SandboxInfo]:
        return [pod.state for pod in self._sandboxes.records.values()]

    def containers(self, pod: str = "") -> Sequence[ContainerInfo]:
        return [
            container.state for container in (self._containers_of(pod) if pod else self._containers.values())
        ]

    async def container_storage(self, pod: str) -> dict[str, ContainerStorage]:
        names = {state.name for state in self.containers(pod)}
        return {
            name: await asyncio.to_thread(measure_storage, self.layout.container(pod, name)) for name in names
        }

    def inventory(self) -> RuntimeState:
        return RuntimeState(
            tuple(pod.spec for pod in self._sandboxes.records.values() if pod.running),
            tuple(
                RuntimeContainer(container.record.spec, container.state, container.record.resources)
                for container in self._containers.values()
            ),
        )

    # -- internals

    def _notify(self, pod: str) -> None:
        if self._changed is not None:
            self._changed(pod)

    def _containers_of(self, uid: str) -> list[ContainerProcess]:
        return [container for container in self._containers.values() if container.state.pod == uid]
