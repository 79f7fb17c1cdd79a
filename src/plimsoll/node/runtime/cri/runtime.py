"""CRI runtime: drives containerd, CRI-O or another runtime with CRI `v1`, as a kubelet does.

   run_sandbox      pod cgroup -> RunPodSandbox in it
   create           image by pull policy -> CreateContainer, with CDI devices, resources and mounts
   start_container  StartContainer
   exit             container event or relist (`lifecycle_events.py`)
   remove_sandbox   StopPodSandbox -> containers, sandboxes, pod cgroup, logs and files removed

The agent owns the cgroups of pods; the runtime creates those of containers in them, with the resources of the
plan. The runtime reads CDI files and serves NRI itself. Nothing is recorded here: after a restart the agent
finds its sandboxes and containers by their labels. Guarantees that a call that succeeded is visible in
`sandboxes` and `containers` at once, and that sandboxes of other owners are never touched.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from google.protobuf.message import Message

from plimsoll.api.core import Container, Pod
from plimsoll.common.checkpoint import FindingSeverity, NodeFinding
from plimsoll.common.tasks import cancel_tasks
from plimsoll.errors import InputError, RuntimeCallError
from plimsoll.node.cgroup_planner import PodCgroupPlans
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
from plimsoll.node.layout import Layout
from plimsoll.node.pods.environment import CONFIG_ERROR, ApiObjectReader
from plimsoll.node.runtime.container_spec import CREATE_ERROR
from plimsoll.node.runtime.cri.cache import RuntimeCache
from plimsoll.node.runtime.cri.client import DEADLINE_EXCEEDED, CriClient
from plimsoll.node.runtime.cri.connection import check_cgroup_driver, connect
from plimsoll.node.runtime.cri.container_config import container_config, find_container
from plimsoll.node.runtime.cri.container_status import CriContainer
from plimsoll.node.runtime.cri.container_storage import measure_containers
from plimsoll.node.runtime.cri.images import EmitEvent, ImagePuller
from plimsoll.node.runtime.cri.lifecycle_events import PodLifecycleEvents
from plimsoll.node.runtime.cri.linux_resources import container_resources
from plimsoll.node.runtime.cri.log_rotation import LogRotation, remove_logs
from plimsoll.node.runtime.cri.pod_files import write_pod_files
from plimsoll.node.runtime.cri.sandbox_config import pod_log_directory
from plimsoll.node.runtime.cri.sandboxes import CriSandboxes
from plimsoll.node.runtime.cri.settings import CriSettings
from plimsoll.node.runtime.mount_support import VOLUME_TYPES
from plimsoll.node.runtime.sandboxes import SANDBOX_ERROR, UPDATE_ERROR
from plimsoll.node.runtime.state_dir import remove_tree
from plimsoll.node.runtime.tasks import RuntimeTasks
from plimsoll.protocols.messages import cri

_log = logging.getLogger("plimsoll.node.runtime.cri")

RUN_ERROR = "RunContainerError"


class CriRuntime:
    """Runtime behind a CRI endpoint."""

    volume_types: frozenset[str] | None = VOLUME_TYPES
    runs_processes = True

    def __init__(
        self,
        settings: CriSettings,
        layout: Layout,
        cgroups: Cgroups,
        *,
        owner: str,
        objects: ApiObjectReader,
        find_pod: Callable[[str], Pod | None],
        plan: Callable[[Pod], PodCgroupPlans],
        node_ip: Callable[[], str],
        emit: EmitEvent,
        set_ready: Callable[[str], None],
    ) -> None:
        """Create a runtime. `find_pod` returns a pod of this node by UID, with its allocated resources;
        `set_ready` takes the problem of the runtime, or "".
        """
        #: Scheme of container IDs: the runtime's own name, once it is connected.
        self.name = "cri"
        self.version = ""
        self.settings = settings
        self._layout = layout
        self._cgroups = cgroups
        self._owner = owner
        self._find_pod = find_pod
        self._plan = plan
        self._tasks = RuntimeTasks()
        self._loops: list[asyncio.Task[None]] = []
        self._cache = RuntimeCache()
        #: The runtime's ID of a container by that of its spec.
        self._ids: dict[str, str] = {}
        self._changed: Callable[[str], None] | None = None
        self._client = CriClient(settings.socket, settings.timing.request)
        self._images = ImagePuller(self._client, objects, emit, settings.timing)
        self._logs = LogRotation(
            self._client,
            lambda: [each.info for each in self._cache.containers_of()],
            max_size=settings.log_max_size,
            max_files=settings.log_max_files,
        )
        self.events = PodLifecycleEvents(
            self._client,
            self._cache,
            owner,
            settings.timing,
            node_ip=node_ip,
            changed=self._on_changed,
            relisted=self._on_relisted,
            set_ready=set_ready,
        )

        self._sandboxes = CriSandboxes(
            settings,
            self._client,
            self._cache,
            self.events,
            cgroups,
            self._tasks,
            owner=owner,
            objects=objects,
            find_pod=find_pod,
            emit=emit,
        )

    @property
    def findings(self) -> Sequence[NodeFinding]:
        return self._tasks.findings

    # -- lifecycle

    async def start(self, changed: Callable[[str], None]) -> None:
        self._changed = changed
        self._tasks.start()
        version = await connect(self._client, self.settings)
        self.name, self.version = version.runtime_name or "cri", version.runtime_version
        if self._cgroups.version:
            await check_cgroup_driver(self._client, self.settings.endpoint, self._cgroups.driver_name)
        await self.events.relist()
        for work, name in (
            (self.events.run_relists(), "relists"),
            (self.events.run_events(), "container events"),
            (self.events.run_status_checks(), "runtime status"),
            (self._logs.run(self.settings.timing.log_check), "log rotation"),
        ):
            self._loops.append(asyncio.create_task(work, name=name))

    async def stop(self) -> None:
        self._changed = None
        await cancel_tasks(self._loops)
        self._loops.clear()
        await self._tasks.finish()
        self._tasks.stop()
        await self._client.close()

    # -- sandboxes

    async def run_sandbox(self, spec: SandboxSpec) -> RuntimeFault | None:
        return await self._complete(self._sandboxes.run(spec), SANDBOX_ERROR)

    async def update_sandbox(self, spec: SandboxSpec) -> RuntimeFault | None:
        return await self._complete(self._sandboxes.update(spec), UPDATE_ERROR)

    async def stop_sandbox(self, uid: str) -> None:
        await self._tasks.complete(self._stop_sandbox(uid))

    async def _stop_sandbox(self, uid: str) -> None:
        await self._sandboxes.stop(uid)
        for container in self._cache.containers_of(uid):
            if container.info.phase is ContainerPhase.RUNNING:
                await self._refresh_container(container.info.id, container.sandbox)

    async def remove_sandbox(self, uid: str) -> None:
        await self._tasks.complete(self._remove_sandbox(uid))

    async def _remove_sandbox(self, uid: str) -> None:
        known = self._cache.latest_sandbox(uid)
        await self._stop_sandbox(uid)
        for container in self._cache.containers_of(uid):
            await self._remove_container(container)
        for sandbox in self._cache.sandboxes_of(uid):
            await self._sandboxes.remove(sandbox.id)
        self._images.forget(uid)
        gone = await self._tasks.call(self._cgroups.remove_pod, uid)
        left = await asyncio.to_thread(remove_tree, self._layout.pod(uid))
        if known is not None:
            info = known.info
            logs = pod_log_directory(self.settings.pod_logs, info.namespace, info.name, info.uid)
            left = await asyncio.to_thread(remove_tree, logs) or left
        if left or not gone:
            why = f"pod {uid} was not removed completely: {left or 'its cgroup remains'}"
            self._tasks.add_finding(FindingSeverity.WARNING, why)

    # -- containers

    async def create(self, spec: ContainerSpec) -> RuntimeFault | None:
        return await self._complete(self._create(spec), CREATE_ERROR)

    async def _create(self, spec: ContainerSpec) -> RuntimeFault | None:
        if spec.id in self._ids:
            return None
        sandbox, pod = self._cache.latest_sandbox(spec.pod), self._find_pod(spec.pod)
        container = find_container(pod, spec.name) if pod is not None else None
        if sandbox is None or not sandbox.info.running:
            return RuntimeFault(CREATE_ERROR, f"pod {spec.pod!r} has no running sandbox")
        if pod is None or container is None:
            return RuntimeFault(CREATE_ERROR, f"pod {spec.pod!r} has no container {spec.name!r}")
        plans = self._plan(pod)
        sandbox_settings = await self._sandboxes.config(pod, plans.sandbox, sandbox.attempt)
        image = await self._images.ensure_image(pod, container, sandbox_settings)
        if isinstance(image, RuntimeFault):
            return image
        logs = Path(sandbox_settings.log_directory, spec.name)
        await asyncio.to_thread(logs.mkdir, 0o755, parents=True, exist_ok=True)
        own = await asyncio.to_thread(
            write_pod_files,
            self._layout,
            pod,
            container,
            spec.attempt,
            sandbox.info.ip,
            self.settings.cluster_domain,
        )
        try:
            config = container_config(
                pod,
                container,
                spec,
                image_ref=image.ref,
                user=image.user,
                owner=self._owner,
                seccomp_root=self._layout.root / "seccomp",
                own_mounts=own,
                target=self._target_id(pod, container),
            )
        except InputError as error:
            return RuntimeFault(CONFIG_ERROR, str(error))
        request = cri.CreateContainerRequest(
            pod_sandbox_id=sandbox.id, config=config, sandbox_config=sandbox_settings
        )
        try:
            response = await self._client.call("CreateContainer", request)
        except RuntimeCallError:
            await self.events.try_relist()  # it may have been created
            raise
        self._ids[spec.id] = response.container_id
        await self._refresh_container(response.container_id, sandbox.id)
        return None

    def _target_id(self, pod: Pod, container: Container) -> str:
        """Return the ID of the container that an ephemeral one targets, or ""; raises InputError."""
        name = container.target_container_name
        if not name:
            return ""
        for each in reversed(self._cache.containers_of(pod.metadata.uid)):
            if each.info.name == name and each.info.phase is ContainerPhase.RUNNING:
                return each.info.id
        raise InputError(f"unable to find target container {name}")

    async def start_container(self, id: str) -> RuntimeFault | None:
        return await self._complete(self._start_container(self._ids.get(id, id)), RUN_ERROR)

    async def _start_container(self, id: str) -> RuntimeFault | None:
        known = self._cache.containers.get(id)
        if known is None:
            return RuntimeFault(RUN_ERROR, f"unknown container {id!r}")
        if known.info.phase is not ContainerPhase.CREATED:
            return None
        try:
            await self._client.call("StartContainer", cri.StartContainerRequest(container_id=id))
        finally:
            await self._refresh_container(id, known.sandbox)
        return None

    async def update(self, id: str, plan: ContainerPlan) -> RuntimeFault | None:
        return await self._complete(self._update(self._ids.get(id, id), plan), UPDATE_ERROR)

    async def _update(self, id: str, plan: ContainerPlan) -> RuntimeFault | None:
        known = self._cache.containers.get(id)
        if known is None:
            return RuntimeFault(UPDATE_ERROR, f"unknown container {id!r}")
        request = cri.UpdateContainerResourcesRequest(container_id=id, linux=container_resources(plan))
        await self._client.call("UpdateContainerResources", request)
        await self._refresh_container(id, known.sandbox)
        return None

    async def stop_container(self, id: str, grace: float) -> None:
        known = self._cache.containers.get(self._ids.get(id, id))
        if known is None or known.info.phase is not ContainerPhase.RUNNING:
            return
        seconds = math.ceil(max(grace, 0.0))
        request = cri.StopContainerRequest(container_id=known.info.id, timeout=seconds)
        try:
            await self._client.call("StopContainer", request, timeout=seconds + self.settings.timing.request)
        finally:
            await self._refresh_container(known.info.id, known.sandbox)

    async def remove_container(self, id: str) -> None:
        known = self._cache.containers.get(self._ids.get(id, id))
        if known is None:
            return
        try:
            await self.stop_container(known.info.id, 0)
            await self._tasks.complete(self._remove_container(known))
        except RuntimeCallError as error:
            _log.warning("container %s was not removed: %s", known.info.id, error)
            # The worker tries again at once as long as the container exists.
            await asyncio.sleep(self.settings.timing.relist)

    async def _remove_container(self, container: CriContainer) -> None:
        info = container.info
        await self._client.call("RemoveContainer", cri.RemoveContainerRequest(container_id=info.id))
        self._cache.drop_container(info.id)
        for own in [own for own, id in self._ids.items() if id == info.id]:
            del self._ids[own]
        await asyncio.to_thread(remove_logs, info.log, self.settings.log_max_files)
        message = self._layout.container(info.pod, info.name) / f"{info.attempt}.message"
        await asyncio.to_thread(message.unlink, missing_ok=True)

    async def execute(self, id: str, command: Sequence[str], seconds: float) -> tuple[int, bytes]:
        """Run a command in a container; return its exit code and output, or raise RuntimeCallError.

        A command that takes longer is killed, and raises TimeoutError.
        """
        request = cri.ExecSyncRequest(
            container_id=self._ids.get(id, id), cmd=list(command), timeout=max(1, math.ceil(seconds))
        )
        try:
            response = await self._client.call("ExecSync", request, timeout=seconds + 10.0)
        except RuntimeCallError as error:
            if error.code == DEADLINE_EXCEEDED:
                raise TimeoutError from None
            raise
        return response.exit_code, response.stdout + response.stderr

    async def stream_url(self, method: str, request: Message) -> str:
        """Return the URL of an Exec, Attach or PortForward at the runtime's server; RuntimeCallError."""
        return str((await self._client.call(method, request)).url)

    def sandbox_id(self, uid: str) -> str:
        """Return the runtime's ID of a pod's running sandbox, or ""."""
        sandbox = self._cache.latest_sandbox(uid)
        return sandbox.id if sandbox is not None and sandbox.info.running else ""

    # -- queries

    def sandboxes(self) -> Sequence[SandboxInfo]:
        return self._cache.sandbox_infos()

    def containers(self, pod: str = "") -> Sequence[ContainerInfo]:
        return [container.info for container in self._cache.containers_of(pod)]

    async def container_storage(self, pod: str) -> dict[str, ContainerStorage]:
        return await measure_containers(self._client, self.containers(pod), self._layout.root)

    def memory_nodes(self) -> dict[tuple[str, str], str]:
        """Return the NUMA nodes of containers with a choice of them, by pod and name."""
        return {
            (each.info.pod, each.info.name): each.mems
            for each in self._cache.containers_of()
            if each.mems and each.info.phase is not ContainerPhase.EXITED
        }

    # -- cgroups

    async def restore_cgroups(self) -> tuple[str, ...]:
        """Create removed cgroups of pods again; return what was missing. Containers have their own."""
        lost = []
        for sandbox in self._cache.sandbox_infos():
            pod = self._find_pod(sandbox.uid) if sandbox.running else None
            if pod is not None and await self._tasks.call(self._cgroups.is_lost, sandbox.uid):
                plans = self._plan(pod)
                await self._tasks.call(self._cgroups.make_pod, sandbox.uid, plans.qos, plans.pod)
                lost.append(f"pod {sandbox.uid}")
        return tuple(lost)

    # -- internals

    async def _complete(
        self, work: Coroutine[Any, Any, RuntimeFault | None], reason: str
    ) -> RuntimeFault | None:
        """Complete some work, even if the caller stops waiting; failures become faults."""
        try:
            return await self._tasks.complete(work)
        except RuntimeCallError as error:
            return RuntimeFault(reason, f"rpc error: code = {error.code} desc = {error.message}")
        except (InputError, OSError) as error:
            return RuntimeFault(reason, str(error))

    async def _refresh_container(self, id: str, sandbox: str) -> None:
        found = await self.events.read_container(id, sandbox)
        if found is not None:
            self._cache.put_container(found)
        else:
            self._cache.drop_container(id)

    def _on_changed(self, uid: str) -> None:
        if self._changed is not None:
            self._changed(uid)

    def _on_relisted(self) -> None:
        """Remove replaced sandboxes, and stop containers whose state the runtime has lost."""
        for id in self._cache.replaced_sandboxes():
            self._tasks.spawn(self._try(self._sandboxes.remove(id)))
        for container in self._cache.containers_of():
            if container.unknown:
                self._tasks.spawn(self._try(self.stop_container(container.info.id, 0)))

    async def _try(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except RuntimeCallError as error:
            _log.debug("%s", error)
