"""Device manager: the kubelet's side of the device plugin API v1beta1.

Plugins register on a socket of the node and stream the devices of one extended resource each. Their number is
the node's capacity, the healthy ones are allocatable. Containers that limit the resource get devices before
their pod's sandbox is created, and keep them until the pod has released everything. A device belongs to one
pod at a time, also across restarts of the agent. If the checkpoint is lost, the devices of running containers
are unknown until they are created again, as with a kubelet. An unregistered plugin keeps no pod from
terminating.

DIFF: a pod whose devices cannot be allocated waits and is retried; a kubelet fails it with
UnexpectedAdmissionError (test_a_pod_waits_for_its_devices).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from plimsoll.api.core import Container, Pod
from plimsoll.common.checkpoint import NodeFinding, RecordFile
from plimsoll.common.tasks import cancel_tasks
from plimsoll.errors import ConfigError, StoreError
from plimsoll.ledger.containers import is_sidecar
from plimsoll.ledger.units import is_extended_resource
from plimsoll.node.device_plugins.checkpoint import KIND, read_record, write_record
from plimsoll.node.device_plugins.connection import DevicePluginConnection, PluginFault
from plimsoll.node.device_plugins.devices import (
    DeviceShortage,
    PluginDevice,
    PluginDeviceAllocation,
    choose_devices,
    requested_devices,
)
from plimsoll.node.layout import Layout, is_path_component
from plimsoll.protocols import rpc
from plimsoll.protocols.messages import deviceplugin_v1beta1 as v1beta1

_log = logging.getLogger("plimsoll.plugins")

VERSION = "v1beta1"
#: Time for which the devices of a plugin that disconnected remain in the node's capacity (seconds).
GRACE_SECONDS = 300.0


class DeviceManager:
    """Devices of device plugins on one node, between `start` and `stop`."""

    def __init__(self, layout: Layout, *, grace_seconds: float = GRACE_SECONDS) -> None:
        self.socket = layout.device_plugins / "kubelet.sock"
        #: Called when devices were added or removed, or their health changed. Must return quickly.
        self.on_change: Callable[[], None] = lambda: None
        self.findings: tuple[NodeFinding, ...] = ()
        self._record = RecordFile(layout.devices, KIND, layout.quarantine, check=read_record)
        self._grace_seconds = grace_seconds
        self._devices: dict[str, dict[str, PluginDevice]] = {}
        self._pods: dict[str, dict[str, tuple[PluginDeviceAllocation, ...]]] = {}
        self._connections: dict[str, DevicePluginConnection] = {}
        #: Resources whose plugin requires PreStartContainer, also while it is disconnected.
        self._announced: frozenset[str] = frozenset()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._allocating = asyncio.Lock()
        self._server: rpc.RpcServer | None = None
        #: Changes with every change of devices or allocations.
        self.revision = 0

    # -- lifecycle

    async def start(self) -> None:
        """Load the checkpoint and open the registration socket; raise ConfigError if it cannot be opened."""
        loaded = await asyncio.to_thread(self._record.load)
        if loaded.finding is not None:
            self.findings = (loaded.finding,)
        record = loaded.value if loaded.value is not None else read_record(None)
        self._pods = {uid: dict(each) for uid, each in record.pods.items()}
        # Unhealthy until their plugin registers again.
        self._devices = {
            resource: {id: PluginDevice(id, healthy=False) for id in ids}
            for resource, ids in record.devices.items()
            if ids
        }
        for resource in self._devices:
            self._start_task(resource, self._expire(resource))
        try:
            self.socket.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"{self.socket.parent}: cannot be created: {error.strerror}") from None
        handler = rpc.handle(v1beta1.DESCRIPTOR, "Registration", {"Register": self._register})
        self._server = await rpc.serve(self.socket, [handler])
        self._changed()

    async def stop(self) -> None:
        """Close the socket and disconnect from plugins; containers keep their devices."""
        if self._server is not None:
            await self._server.stop(None)
            self._server = None
        await cancel_tasks(list(self._tasks.values()))
        self._tasks.clear()
        for connection in self._connections.values():
            await connection.close()
        self._connections.clear()

    # -- registration

    async def _register(self, request: v1beta1.RegisterRequest, context: Any) -> v1beta1.Empty:
        refusal = self._check_registration(request)
        if refusal:
            _log.warning("device plugin %s of %s: %s", request.endpoint, request.resource_name, refusal)
            await context.abort(rpc.StatusCode.UNKNOWN, refusal)
        resource = request.resource_name
        try:
            connection = DevicePluginConnection(
                resource,
                self.socket.parent / request.endpoint,
                pre_start=request.options.pre_start_required,
                prefers=request.options.get_preferred_allocation_available,
            )
        except ConfigError as error:  # the path of its socket is too long
            await context.abort(rpc.StatusCode.UNKNOWN, str(error))
        fault = await connection.connect()
        if fault is not None:  # the plugin learns it, and may register again
            await connection.close()
            await context.abort(rpc.StatusCode.UNKNOWN, fault.message)
        _log.info("device plugin %s registered %s", request.endpoint, resource)
        before = self._connections.pop(resource, None)
        self._connections[resource] = connection
        self._announced = (self._announced - {resource}) | ({resource} if connection.pre_start else set())
        self._start_task(resource, self._follow(connection))
        if before is not None:
            await before.close()
        return v1beta1.Empty()

    def _check_registration(self, request: v1beta1.RegisterRequest) -> str:
        if request.version != VERSION:
            return (
                f'requested API version "{request.version}" is not supported by kubelet. '
                f'Supported version is ["{VERSION}"]'
            )
        if not is_extended_resource(request.resource_name):
            return f'the ResourceName "{request.resource_name}" is invalid'
        if not is_path_component(request.endpoint):
            return f'the endpoint "{request.endpoint}" is not the name of a socket'
        return ""

    def _start_task(self, resource: str, work: Any) -> None:
        known = self._tasks.pop(resource, None)
        if known is not None:
            known.cancel()
        self._tasks[resource] = asyncio.create_task(work, name=f"device plugin of {resource}")

    async def _follow(self, connection: DevicePluginConnection) -> None:
        """Follow the devices of a plugin; after its end they are unhealthy, and removed after a while."""
        resource = connection.resource

        def update(devices: tuple[PluginDevice, ...]) -> None:
            if self._connections.get(resource) is connection:
                self._set_devices(resource, {device.id: device for device in devices})

        await connection.watch(update)
        if self._connections.get(resource) is not connection:
            return
        del self._connections[resource]
        await connection.close()
        known = self._devices.get(resource, {})
        self._set_devices(
            resource, {id: PluginDevice(id, False, device.nodes) for id, device in known.items()}
        )
        await self._expire(resource)

    async def _expire(self, resource: str) -> None:
        """Remove the devices of a plugin that does not come back."""
        await asyncio.sleep(self._grace_seconds)
        _log.info("device plugin of %s is gone", resource)
        self._set_devices(resource, {})

    def _set_devices(self, resource: str, devices: dict[str, PluginDevice]) -> None:
        known = self._devices.get(resource)
        if known == devices:
            return
        self._devices[resource] = devices
        self._changed()
        if known is None or known.keys() != devices.keys():  # the checkpoint has no health
            self._save()

    # -- queries

    def resources(self) -> dict[str, tuple[int, int]]:
        """Return capacity and allocatable number of every resource; (0, 0) once its plugin is gone."""
        return {
            resource: (len(devices), sum(device.healthy for device in devices.values()))
            for resource, devices in self._devices.items()
        }

    def healthy_devices(self) -> dict[str, tuple[PluginDevice, ...]]:
        """Return the allocatable devices by resource."""
        return {
            resource: tuple(device for device in devices.values() if device.healthy)
            for resource, devices in self._devices.items()
        }

    def of_container(self, uid: str, container: str) -> tuple[PluginDeviceAllocation, ...]:
        """Return the devices of a container."""
        return self._pods.get(uid, {}).get(container, ())

    # -- allocation

    async def allocate(self, pod: Pod) -> str:
        """Allocate the devices of all containers of a pod that have none yet; return why it failed, or ""."""
        if not self._missing(pod):
            return ""  # pods without devices do not wait for the plugins of others
        async with self._allocating:
            for container, resource, needed in self._missing(pod):
                problem = await self._allocate(pod, container, resource, needed)
                if problem:
                    return problem
        return ""

    def _missing(self, pod: Pod) -> list[tuple[Container, str, int]]:
        """Return the resources of plugins that containers of a pod request and have not got."""
        return [
            (container, resource, needed)
            for container in (*pod.spec.init_containers, *pod.spec.containers)
            for resource, needed in requested_devices(pod, container)
            if resource in self._devices
            and all(each.resource != resource for each in self.of_container(pod.metadata.uid, container.name))
        ]

    async def _allocate(self, pod: Pod, container: Container, resource: str, needed: int) -> str:
        uid, known = pod.metadata.uid, self._devices[resource]
        have = self.of_container(uid, container.name)
        healthy = {id for id, device in known.items() if device.healthy}
        reusable = [id for id in self._reusable(pod, container, resource) if id in healthy]
        used = self._used(resource)
        free = [id for id in known if id in healthy and id not in used]
        connection = self._connections.get(resource)
        if connection is None:
            return (
                f"Allocate failed due to cannot allocate unregistered device {resource}, which is unexpected"
            )
        ids = await self._choose(connection, needed, free, reusable)
        if ids is None:
            shortage = DeviceShortage(resource, needed, len({*free, *reusable}))
            return f"Allocate failed due to {shortage}, which is unexpected"
        made = await connection.allocate([known[id] for id in ids])
        if isinstance(made, PluginFault):
            return f"Allocate failed due to {made.message}, which is unexpected"
        self._pods.setdefault(uid, {})[container.name] = (*have, made)
        self.revision += 1
        if not self._save():
            self._pods[uid][container.name] = have
            return f"the devices of {resource} cannot be recorded"
        return ""

    async def _choose(
        self, connection: DevicePluginConnection, needed: int, free: Sequence[str], reusable: Sequence[str]
    ) -> tuple[str, ...] | None:
        preferred: tuple[str, ...] = ()
        first = reusable[:needed]
        if connection.prefers and len(first) < needed < len({*free, *first}):
            answer = await connection.preferred([*first, *free], first, needed)
            if isinstance(answer, PluginFault):
                _log.warning("device plugin of %s: %s", connection.resource, answer.message)
            else:
                preferred = answer
        return choose_devices(needed, free, reusable, preferred)

    def _reusable(self, pod: Pod, container: Container, resource: str) -> list[str]:
        """Return the devices of init containers that end before this container starts."""
        found: list[str] = []
        kept: set[str] = set()
        for each in (*pod.spec.init_containers, *pod.spec.containers):
            if each.name == container.name:
                break
            ids = [
                id
                for allocation in self.of_container(pod.metadata.uid, each.name)
                if allocation.resource == resource
                for id in allocation.ids
            ]
            if each in pod.spec.init_containers and not is_sidecar(each):
                found += ids
            else:
                kept.update(ids)
        return [id for id in dict.fromkeys(found) if id not in kept]

    def _used(self, resource: str) -> set[str]:
        return {
            id
            for containers in self._pods.values()
            for allocations in containers.values()
            for allocation in allocations
            if allocation.resource == resource
            for id in allocation.ids
        }

    async def announce_start(self, uid: str, container: str) -> str:
        """Announce the start of a container to the plugins that require it; return why one refused, or ""."""
        for allocation in self.of_container(uid, container):
            if allocation.resource not in self._announced:
                continue
            connection = self._connections.get(allocation.resource)
            fault = (
                await connection.announce_start(allocation.ids)
                if connection is not None
                else PluginFault(f"the device plugin of {allocation.resource} is disconnected")
            )
            if fault is not None:
                return f"device plugin PreStartContainer rpc failed with err: {fault.message}"
        return ""

    async def release(self, uid: str) -> None:
        """Release the devices of a pod, after its containers are gone."""
        if self._pods.pop(uid, None) is not None:
            self.revision += 1
            self._save()
            self.on_change()

    async def reconcile(self, known: Collection[str]) -> None:
        """Release the devices of pods that no longer exist."""
        for uid in [uid for uid in self._pods if uid not in known]:
            await self.release(uid)

    # -- internals

    def _changed(self) -> None:
        self.revision += 1
        self.on_change()

    def _save(self) -> bool:
        devices: Mapping[str, tuple[str, ...]] = {name: tuple(each) for name, each in self._devices.items()}
        try:
            self._record.save(write_record(self._pods, devices))
        except StoreError as error:
            _log.error("%s", error)
            return False
        return True
