"""Sandboxes of a runtime behind CRI: created in the cgroups of their pods, updated, stopped and removed.

Failures of the runtime are raised as RuntimeCallError.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from plimsoll.api.core import Pod
from plimsoll.client.endpoints import RUNTIME_CLASSES
from plimsoll.common.json_tree import text
from plimsoll.errors import ApiError, InputError, RuntimeCallError
from plimsoll.node.cgroup_plans.pods import SandboxPlan
from plimsoll.node.cgroups.tree import Cgroups
from plimsoll.node.containers import RuntimeFault, SandboxSpec
from plimsoll.node.pods.environment import ApiObjectReader
from plimsoll.node.runtime.cri.cache import RuntimeCache
from plimsoll.node.runtime.cri.client import UNIMPLEMENTED, CriClient
from plimsoll.node.runtime.cri.container_status import CriSandbox
from plimsoll.node.runtime.cri.images import EmitEvent
from plimsoll.node.runtime.cri.lifecycle_events import PodLifecycleEvents
from plimsoll.node.runtime.cri.linux_resources import runtime_resources
from plimsoll.node.runtime.cri.pod_network import parse_resolv_conf, uses_cluster_dns
from plimsoll.node.runtime.cri.sandbox_config import NodeContext, sandbox_config
from plimsoll.node.runtime.cri.settings import CriSettings
from plimsoll.node.runtime.sandboxes import SANDBOX_ERROR, UPDATE_ERROR, first_fault
from plimsoll.node.runtime.tasks import RuntimeTasks
from plimsoll.protocols.messages import cri


class CriSandboxes:
    """Sandboxes of one owner."""

    def __init__(
        self,
        settings: CriSettings,
        client: CriClient,
        cache: RuntimeCache,
        events: PodLifecycleEvents,
        cgroups: Cgroups,
        tasks: RuntimeTasks,
        *,
        owner: str,
        objects: ApiObjectReader,
        find_pod: Callable[[str], Pod | None],
        emit: EmitEvent,
    ) -> None:
        self._settings = settings
        self._client = client
        self._cache = cache
        self._events = events
        self._cgroups = cgroups
        self._tasks = tasks
        self._owner = owner
        self._objects = objects
        self._find_pod = find_pod
        self._emit = emit

    async def run(self, spec: SandboxSpec) -> RuntimeFault | None:
        known = self._cache.latest_sandbox(spec.uid)
        if known is not None and known.info.running:
            return await self.update(spec)
        pod = self._find_pod(spec.uid)
        if pod is None:
            return RuntimeFault(SANDBOX_ERROR, f"pod {spec.uid!r} is not on this node")
        faults = await self._tasks.call(self._cgroups.make_pod, spec.uid, spec.qos, spec.plan)
        fault = first_fault(faults, SANDBOX_ERROR)
        if fault is not None:
            return fault
        attempts = [sandbox.attempt for sandbox in self._cache.sandboxes_of(spec.uid)]
        config = await self.config(pod, spec.sandbox, max(attempts, default=-1) + 1)
        if uses_cluster_dns(pod) and not self._settings.cluster_dns:
            message = (
                'no --cluster-dns is set: policy "ClusterFirst" cannot be applied. Falling back to "Default" '
                "policy."
            )
            self._emit(pod, "MissingClusterDNS", message, "Warning", "")
        request = cri.RunPodSandboxRequest(config=config, runtime_handler=await self._handler(pod))
        await asyncio.to_thread(Path(config.log_directory).mkdir, 0o755, parents=True, exist_ok=True)
        try:
            response = await self._client.call(
                "RunPodSandbox", request, timeout=2 * self._settings.timing.request
            )
        except RuntimeCallError:
            await self._events.try_relist()  # it may have been created
            raise
        await self._refresh(response.pod_sandbox_id)
        return None

    async def config(self, pod: Pod, plan: SandboxPlan, attempt: int) -> cri.PodSandboxConfig:
        """Return the configuration of a sandbox for the runtime."""
        path = self._cgroups.path(pod.metadata.uid)
        return sandbox_config(pod, plan, path, attempt, await asyncio.to_thread(self._context))

    def _context(self) -> NodeContext:
        settings, machine = self._settings, ""
        if settings.resolv_conf is not None:
            try:
                machine = settings.resolv_conf.read_text(errors="replace")
            except OSError as error:
                raise InputError(f"{settings.resolv_conf}: {error.strerror}") from None
        return NodeContext(
            owner=self._owner,
            pod_logs=settings.pod_logs,
            machine_dns=parse_resolv_conf(machine),
            cluster_dns=settings.cluster_dns,
            cluster_domain=settings.cluster_domain,
        )

    async def _handler(self, pod: Pod) -> str:
        """Return the runtime handler of a pod's RuntimeClass; "" is the runtime's default."""
        name = pod.spec.runtime_class_name
        if not name:
            return ""
        try:
            return text(await self._objects.get(RUNTIME_CLASSES, name), "handler")
        except ApiError as error:
            raise InputError(f'failed to get RuntimeClass "{name}": {error}') from None

    async def update(self, spec: SandboxSpec) -> RuntimeFault | None:
        known = self._cache.latest_sandbox(spec.uid)
        if known is None or not known.info.running:
            return RuntimeFault(UPDATE_ERROR, f"pod {spec.uid!r} has no running sandbox")
        faults = await self._tasks.call(self._cgroups.make_pod, spec.uid, spec.qos, spec.plan)
        fault = first_fault(faults, UPDATE_ERROR)
        if fault is not None:
            return fault
        request = cri.UpdatePodSandboxResourcesRequest(
            pod_sandbox_id=known.id, resources=runtime_resources(spec.sandbox.resources)
        )
        if spec.sandbox.overhead is not None:
            request.overhead.CopyFrom(runtime_resources(spec.sandbox.overhead))
        try:
            await self._client.call("UpdatePodSandboxResources", request)
        except RuntimeCallError as error:
            # It informs the runtime and its plugins; the pod's limits are those of its cgroup.
            if error.code != UNIMPLEMENTED:
                raise
        return None

    async def stop(self, uid: str) -> None:
        """Stop the running sandboxes of a pod."""
        for sandbox in self._cache.sandboxes_of(uid):
            if sandbox.info.running:
                request = cri.StopPodSandboxRequest(pod_sandbox_id=sandbox.id)
                await self._client.call("StopPodSandbox", request, timeout=2 * self._settings.timing.request)
                await self._refresh(sandbox.id)

    async def remove(self, id: str) -> None:
        await self._client.call("RemovePodSandbox", cri.RemovePodSandboxRequest(pod_sandbox_id=id))
        self._cache.drop_sandbox(id)

    async def _refresh(self, id: str) -> None:
        found: CriSandbox | None = await self._events.read_sandbox(id)
        if found is not None:
            self._cache.put_sandbox(found)
        else:
            self._cache.drop_sandbox(id)
