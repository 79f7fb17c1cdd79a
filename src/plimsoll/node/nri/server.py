"""NRI server: connected plugins, and the runtime hooks through which they adjust containers.

See docs/spec/node-protocols.md, "NRI". The runtime calls plugins in the order of their indexes. Guarantees
that a plugin that hangs, dies or sends invalid messages costs its timeout once and is excluded from then on,
unless it is a validator: then the container is not created. Events are delivered one after the other.
Unsolicited updates wait for the event in progress, but nothing that waits for a container is done while
another event could wait for them.

DIFF: an event is delivered to all plugins, even if one of them returns an error; upstream stops at the first
(test_an_error_of_one_plugin_does_not_keep_events_from_others). DIFF: evictions that plugins request are
passed on; upstream ignores them (test_evictions). DIFF: OCI hooks, rlimits, namespaces and other adjustments
that a local process cannot be given are not applied, and a warning reports it
(test_unsupported_adjustments_are_reported).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from socket import socket as Socket
from typing import Any, TypeVar

from plimsoll.common.tasks import at_most, cancel_tasks, start_task
from plimsoll.node.containers import ContainerInfo, ContainerPhase, ContainerSpec, RuntimeFault, SandboxSpec
from plimsoll.node.hooks import AdjustedContainer, RuntimeHooks, RuntimeState
from plimsoll.node.nri import checks, messages
from plimsoll.node.nri.creation import log_unsupported, request_adjustments
from plimsoll.node.nri.listener import Listener, read_config
from plimsoll.node.nri.merge import ContainerCreation, ContainerUpdates, Owners, set_resources
from plimsoll.node.nri.session import PluginSession
from plimsoll.node.resources import LinuxResources
from plimsoll.protocols.messages import nri
from plimsoll.protocols.nri.events import NriEvent
from plimsoll.protocols.ttrpc import UNIMPLEMENTED, TtrpcFault

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Reason the kubelet shows for a container that its runtime could not create.
CREATE_FAULT = "CreateContainerError"
SANDBOX_FAULT = "CreatePodSandboxError"
UPDATE_FAULT = "UpdateContainerError"
#: Maximum number of characters of a plugin's message that are shown.
MAX_TEXT_LENGTH = 1024


@dataclass(frozen=True, slots=True)
class EvictionRequest:
    """Eviction of a container requested by a plugin."""

    container: str
    reason: str
    plugin: str


class NriServer(RuntimeHooks):
    """Runtime hooks that call NRI plugins.

    `inventory` returns the runtime's state, for plugins that connect late; `apply` changes a running
    container. `config` is a directory with a file for each plugin (INDEX-NAME.conf or NAME.conf), `required`
    names plugins without which no container is created.
    """

    def __init__(
        self,
        socket: Path,
        runtime_name: str,
        runtime_version: str,
        inventory: Callable[[], RuntimeState],
        apply: Callable[[str, LinuxResources], Awaitable[RuntimeFault | None]],
        *,
        config: Path | None = None,
        registration_timeout: float = 5.0,
        request_timeout: float = 2.0,
        required: Sequence[str] = (),
        on_evict: Callable[[EvictionRequest], None] | None = None,
        max_plugins: int = 64,
    ) -> None:
        self.socket = socket
        self._runtime = (runtime_name, runtime_version)
        self._inventory = inventory
        self._apply = apply
        self.config = config
        self._registration_timeout = registration_timeout
        self._request_timeout = request_timeout
        self._required = tuple(required)
        self._on_evict = on_evict
        self._most = max_plugins
        self._plugins: list[PluginSession] = []
        #: Containers as plugins know them, until they are removed.
        self.known: dict[str, nri.Container] = {}
        #: Containers whose creation was not reported as done; the runtime may not list them yet.
        self.pending: dict[str, nri.Container] = {}
        self._events = asyncio.Lock()
        self._changing = asyncio.Lock()
        #: Containers that the runtime is changing after an event: whether a plugin has updated them since.
        self._resized: dict[str, bool] = {}
        self._connections: set[asyncio.Task[None]] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._listener: Listener | None = None

    # -- connections

    async def start(self) -> None:
        """Start serving; raise ConfigError if the socket cannot be opened."""
        opening = asyncio.ensure_future(asyncio.to_thread(Listener, self.socket))
        try:
            self._listener = await asyncio.shield(opening)
        except asyncio.CancelledError:
            await asyncio.wait(
                (opening,)
            )  # a thread cannot be stopped, and the socket it opens has to be closed
            if opening.exception() is None:
                opening.result().close()
            raise
        self._listener.open(self._on_connection)

    async def stop(self) -> None:
        """Disconnect all plugins; containers are unchanged."""
        if self._listener is not None:
            self._listener.close()
        await asyncio.gather(*(plugin.shut_down() for plugin in self.plugins()))
        await cancel_tasks([*self._connections, *self._tasks])

    def plugins(self) -> tuple[PluginSession, ...]:
        """Return the connected plugins, in call order."""
        return tuple(plugin for plugin in self._plugins if not plugin.closed)

    def _on_connection(self, connection: Socket) -> None:
        if len(self._connections) >= self._most:
            logger.warning("NRI plugin rejected: %d are connected", len(self._connections))
            connection.close()
            return
        task = asyncio.create_task(self._serve(connection))
        self._connections.add(task)
        task.add_done_callback(partial(self._on_disconnect, connection))

    def _on_disconnect(self, connection: Socket, task: asyncio.Task[None]) -> None:
        self._connections.discard(task)
        connection.close()

    async def _serve(self, connection: Socket) -> None:
        reader, writer = await asyncio.open_unix_connection(sock=connection)
        session = PluginSession(
            reader,
            writer,
            self._update_containers,
            registration_timeout=self._registration_timeout,
            request_timeout=self._request_timeout,
        )
        try:
            fault = await self._admit(session)
            if fault is not None:
                # A client that disconnects without a message only probed the socket.
                level = logging.DEBUG if fault.kind == "closed" else logging.WARNING
                logger.log(level, "NRI plugin rejected: %s", fault.message)
                return
            await session.wait_closed()
            logger.info("NRI plugin %s disconnected", session.name)
        finally:
            if session in self._plugins:
                self._plugins.remove(session)
            await session.close()

    async def _admit(self, session: PluginSession) -> TtrpcFault | None:
        """Register, configure and synchronize a plugin; from then on it receives events."""
        if fault := await session.wait_registered():
            if not fault.fatal:
                # The plugin waits for the response with the error, and disconnects when it has it.
                async with at_most(0.5):
                    await session.wait_closed()
            return fault
        config = await asyncio.to_thread(read_config, self.config, session.index, session.base)
        if fault := await session.configure(*self._runtime, config):
            return fault
        async with self._events:
            pods, containers = self._collect_state()
            updates = await session.synchronize(pods, containers)
            if isinstance(updates, TtrpcFault):
                return TtrpcFault(updates.code, f"{session.name}: failed to synchronize: {updates.message}")
            self._plugins.append(session)
            self._plugins.sort(key=lambda plugin: plugin.index)
        logger.info("NRI plugin %s connected", session.name)
        self._spawn(self._apply_updates(updates, session.name))
        return None

    def _collect_state(self) -> tuple[list[nri.PodSandbox], list[nri.Container]]:
        inventory = self._inventory()
        pods = {pod.uid: pod for pod in inventory.pods}
        containers = []
        for held in inventory.containers:
            if held.state.phase is ContainerPhase.EXITED:
                continue
            message = self.known.get(held.spec.id)
            if message is None:
                message = messages.write_container(pods.get(held.spec.pod), held.spec, held.resources)
                self.known[held.spec.id] = message
            containers.append(messages.write_state(message, held.state))
        listed = {message.id for message in containers}
        containers += [message for id, message in self.pending.items() if id not in listed]
        return [messages.write_pod(pod) for pod in inventory.pods], containers

    # -- unsolicited updates

    async def _update_containers(
        self, session: PluginSession, request: nri.UpdateContainersRequest
    ) -> nri.UpdateContainersResponse | TtrpcFault:
        # After the event in progress: its handler may be waiting for this.
        async with self._events:
            pass
        self._evict(request.evict, session.name)
        # An update that was started is completed, even if the plugin stops waiting.
        change = self._spawn(self._apply_updates(request.update, session.name))
        return nri.UpdateContainersResponse(failed=await asyncio.shield(change))

    async def _apply_updates(
        self, updates: Iterable[nri.ContainerUpdate], plugin: str
    ) -> list[nri.ContainerUpdate]:
        """Apply updates; return those that failed. Missing containers are skipped.

        In the order in which plugins decided on them: a plugin that stops waiting for a slow update sends
        another one, which must not be undone by the rest of the first.
        """
        failed = []
        async with self._changing:
            live = {
                held.spec.id
                for held in self._inventory().containers
                if held.state.phase is not ContainerPhase.EXITED
            }
            for update in updates:
                if update.container_id not in live:
                    continue
                fault = await self._apply_update(update, plugin)
                if fault is not None:
                    logger.warning("NRI plugin %s: update of %s: %s", plugin, update.container_id, fault)
                    if not update.ignore_failure:
                        failed.append(update)
        return failed

    async def _apply_update(self, update: nri.ContainerUpdate, plugin: str) -> str | None:
        adjustment = update.linux.resources
        if text := checks.resources_fault(adjustment):
            return text
        log_unsupported(plugin, checks.unsupported_resources(adjustment))
        fault = await self._apply(update.container_id, messages.read_resources(adjustment))
        if fault is not None:
            return fault.message
        self._record_resources(update.container_id, adjustment)
        if update.container_id in self._resized:
            self._resized[update.container_id] = True
        return None

    def _apply_changes(self, changes: ContainerUpdates, subject: str = "") -> asyncio.Task[Any]:
        """Apply the updates of other containers that came with the response to an event.

        Started during the event, so that they precede what plugins request afterwards.
        """
        updates = [update for update in changes.messages() if update.container_id != subject]
        return self._spawn(self._apply_updates(updates, "with an event"))

    async def _repeat_update(self, container: str) -> None:
        async with self._changing:
            if (known := self.known.get(container)) is not None:
                await self._apply(container, messages.read_resources(known.linux.resources))

    def _record_resources(self, container: str, adjustment: nri.LinuxResources) -> None:
        if (known := self.known.get(container)) is not None:
            set_resources(known.linux.resources, adjustment)

    def _evict(self, evictions: Iterable[nri.ContainerEviction], plugin: str) -> None:
        for eviction in evictions:
            if self._on_evict is None:
                logger.warning(
                    "NRI plugin %s requests the eviction of container %s", plugin, eviction.container_id
                )
                continue
            self._on_evict(EvictionRequest(eviction.container_id, eviction.reason[:MAX_TEXT_LENGTH], plugin))

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        return start_task(self._tasks, work)

    # -- hooks: pods

    async def sandbox_run(self, pod: SandboxSpec) -> RuntimeFault | None:
        request = nri.RunPodSandboxRequest(pod=messages.write_pod(pod))
        faults = await self._deliver(NriEvent.RUN_POD_SANDBOX, request)
        return _fault(SANDBOX_FAULT, faults[0]) if faults else None

    async def sandbox_update(self, pod: SandboxSpec) -> RuntimeFault | None:
        """Run before a pod's own resources are changed (a resize)."""
        message = messages.write_pod(pod)
        request = nri.UpdatePodSandboxRequest(
            pod=message,
            overhead_linux_resources=message.linux.pod_overhead,
            linux_resources=message.linux.resources,
        )
        faults = await self._deliver(NriEvent.UPDATE_POD_SANDBOX, request)
        return _fault(UPDATE_FAULT, faults[0]) if faults else None

    async def sandbox_updated(self, pod: SandboxSpec) -> None:
        await self._deliver(
            NriEvent.POST_UPDATE_POD_SANDBOX, nri.PostUpdatePodSandboxRequest(pod=messages.write_pod(pod))
        )

    async def sandbox_stopped(self, pod: SandboxSpec) -> None:
        await self._deliver(NriEvent.STOP_POD_SANDBOX, nri.StopPodSandboxRequest(pod=messages.write_pod(pod)))

    async def sandbox_removed(self, pod: SandboxSpec) -> None:
        await self._deliver(
            NriEvent.REMOVE_POD_SANDBOX, nri.RemovePodSandboxRequest(pod=messages.write_pod(pod))
        )
        for container in [id for id, known in self.known.items() if known.pod_sandbox_id == pod.uid]:
            del self.known[container]
            self.pending.pop(container, None)

    # -- hooks: containers

    async def create(
        self, pod: SandboxSpec, container: ContainerSpec, resources: LinuxResources
    ) -> AdjustedContainer | RuntimeFault:
        async with self._events:
            creation = ContainerCreation(messages.write_container(pod, container, resources))
            text = await request_adjustments(
                self.plugins(), messages.write_pod(pod), creation, self._required, self._evict
            )
            if text is None:
                self.known[container.id] = self.pending[container.id] = creation.container
                applying = self._apply_changes(creation.changes)
            else:
                await self._cancel_creation(messages.write_pod(pod), creation.container)
        if text is not None:
            return _fault(CREATE_FAULT, text)
        # Containers that give up CPUs for the new one do so before it starts.
        await asyncio.shield(applying)
        adjust = creation.adjust
        env, unset = messages.read_env(adjust)
        return AdjustedContainer(
            resources=resources.merged(messages.read_resources(adjust.linux.resources)),
            env=env,
            unset=unset,
            command=tuple(adjust.args),
            cdi=tuple(device.name for device in adjust.CDI_devices),
            mounts=messages.read_mounts(adjust),
            devices=messages.read_devices(adjust),
            oom_score_adj=adjust.linux.oom_score_adj.value
            if adjust.linux.HasField("oom_score_adj")
            else None,
            annotations=messages.read_annotations(adjust),
        )

    async def _cancel_creation(self, pod: nri.PodSandbox, container: nri.Container) -> None:
        """Notify plugins that a container they have agreed to is not created."""
        stop = nri.StopContainerRequest(pod=pod, container=container)
        changes = await self._stop(stop)
        await self._call_subscribed(
            NriEvent.REMOVE_CONTAINER, nri.RemoveContainerRequest(pod=pod, container=container)
        )
        # Not awaited here: the creation of a container may be what the change of another one waits for.
        self._apply_changes(changes)

    async def created(self, pod: SandboxSpec, container: ContainerInfo) -> None:
        await self._deliver_container_event(NriEvent.POST_CREATE_CONTAINER, pod, container)
        self.pending.pop(container.id, None)

    async def starting(self, pod: SandboxSpec, container: ContainerInfo) -> None:
        await self._deliver_container_event(NriEvent.START_CONTAINER, pod, container)

    async def started(self, pod: SandboxSpec, container: ContainerInfo) -> None:
        await self._deliver_container_event(NriEvent.POST_START_CONTAINER, pod, container)

    async def update(
        self, pod: SandboxSpec, container: ContainerInfo, resources: LinuxResources
    ) -> AdjustedContainer | RuntimeFault:
        async with self._events:
            requested = messages.write_resources(resources)
            changes = ContainerUpdates(Owners(), container.id, requested)
            message = self._message(container)
            for plugin in self.plugins():
                if not plugin.subscribed(NriEvent.UPDATE_CONTAINER):
                    continue
                request = nri.UpdateContainerRequest(
                    pod=messages.write_pod(pod), container=message, linux_resources=requested
                )
                response = await plugin.deliver(NriEvent.UPDATE_CONTAINER, request)
                if isinstance(response, TtrpcFault):
                    if response.fatal:
                        continue
                    return _fault(UPDATE_FAULT, response.message)
                if text := changes.add(response.update, plugin.name):
                    return _fault(UPDATE_FAULT, text)
                self._evict(response.evict, plugin.name)
            self._record_resources(container.id, requested)
            self._resized[container.id] = False
            # Not awaited: a runtime may keep a lock of the container meanwhile that another update waits for.
            self._apply_changes(changes, container.id)
        return AdjustedContainer(resources=messages.read_resources(requested))

    async def updated(self, pod: SandboxSpec, container: ContainerInfo) -> None:
        if self._resized.pop(container.id, False):
            # A plugin has updated it after the event; the runtime has applied the response since.
            self._spawn(self._repeat_update(container.id))
        await self._deliver_container_event(NriEvent.POST_UPDATE_CONTAINER, pod, container)

    async def stopped(self, pod: SandboxSpec, container: ContainerInfo) -> None:
        async with self._events:
            changes = await self._stop(
                nri.StopContainerRequest(pod=messages.write_pod(pod), container=self._message(container))
            )
            applying = self._apply_changes(changes)
        self.pending.pop(container.id, None)
        self._resized.pop(container.id, None)
        await asyncio.shield(applying)

    async def _stop(self, request: nri.StopContainerRequest) -> ContainerUpdates:
        changes = ContainerUpdates(Owners())
        for plugin, response in await self._call_subscribed(NriEvent.STOP_CONTAINER, request):
            if text := changes.add(response.update, plugin.name):
                logger.warning("NRI plugin %s: %s", plugin.name, text)
        return changes

    async def removed(self, pod: SandboxSpec, container: ContainerInfo) -> None:
        await self._deliver_container_event(NriEvent.REMOVE_CONTAINER, pod, container)
        self.known.pop(container.id, None)
        self.pending.pop(container.id, None)

    # -- delivery

    def _message(self, container: ContainerInfo) -> nri.Container:
        known = self.known.get(container.id)
        return messages.bare_container(container) if known is None else messages.write_state(known, container)

    async def _deliver_container_event(
        self, event: NriEvent, pod: SandboxSpec, container: ContainerInfo
    ) -> None:
        await self._deliver(
            event, event.request(pod=messages.write_pod(pod), container=self._message(container))
        )

    async def _deliver(self, event: NriEvent, request: Any) -> list[str]:
        async with self._events:
            faults: list[str] = []
            await self._call_subscribed(event, request, faults)
            return faults

    async def _call_subscribed(
        self, event: NriEvent, request: Any, faults: list[str] | None = None
    ) -> list[tuple[PluginSession, Any]]:
        """Call the subscribed plugins, in order; return their responses. Errors are logged."""
        responses = []
        for plugin in self.plugins():
            if not plugin.subscribed(event):
                continue
            response = await plugin.deliver(event, request)
            if not isinstance(response, TtrpcFault):
                responses.append((plugin, response))
            elif not response.fatal and response.code != UNIMPLEMENTED:
                logger.warning("NRI plugin %s: %s: %s", plugin.name, event.method, response.message)
                if faults is not None:
                    faults.append(response.message)
        return responses


def _fault(reason: str, text: str) -> RuntimeFault:
    """Build a fault with a plugin's message, which is shown in the status of a pod."""
    return RuntimeFault(reason, text if len(text) <= MAX_TEXT_LENGTH else text[: MAX_TEXT_LENGTH - 3] + "...")
