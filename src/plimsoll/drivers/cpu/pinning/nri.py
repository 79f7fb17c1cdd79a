"""Pinning through NRI: the runtime calls the plugin, and containers get their CPUs before they start.

`NriEnforcer` (docs/spec/cpu-driver.md, "NRI plugin"; docs/spec/node-protocols.md, "NRI") guarantees: it
reconnects indefinitely; every connection starts with a full synchronization; event handlers never block;
every decision is based on one snapshot of the state; a container with exclusive CPUs is not created while
another one is known to stay on them; an empty cpuset is never sent.

When CPUs are allocated or released, containers of the shared pool are updated at once through the plugin's
own call where that is safe (since NRI 0.12.1; earlier versions could deadlock a runtime that was updating a
container), else with the response to the next event. If there is none, the plugin connects again: every
runtime applies the updates in the response to Synchronize. Both is done by separate tasks, never from an
event handler.

With `fail_closed` the plugin takes part in the validation of new containers: if it dies while one is created,
the container fails instead of starting unpinned. While no plugin is connected, only the runtime can reject
containers: its option `required_plugins`, or the pod annotation `required-plugins.noderesource.dev`, must
name `dra.cpu`.

DIFF: shared containers are updated when a claim is prepared or unprepared, not only when a container is
created (test_problem_6_shared_pool_grows_right_after_unprepare). DIFF: updates by the kubelet keep a
container on its CPUs; the Go driver does not handle them (test_problem_9_kubelet_updates_do_not_overwrite).
DIFF: the plugin reconnects indefinitely; the Go driver gives up after five attempts
(test_problem_10_reconnects_indefinitely).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from plimsoll.common.checkpoint import FindingSeverity, NodeFinding
from plimsoll.common.tasks import at_most, cancel_tasks
from plimsoll.drivers.cpu.pinning.audit import Audit, CpusetObserver
from plimsoll.drivers.cpu.pinning.container_table import ContainerChange, ContainerTable, matches_desired
from plimsoll.drivers.cpu.pinning.counters import Counters
from plimsoll.drivers.cpu.pinning.nri_messages import STOPPED, decode_container, encode_cpuset, encode_update
from plimsoll.drivers.cpu.pinning.nri_pushes import NriPushes
from plimsoll.drivers.cpu.pinning.plan import (
    ContainerView,
    CpuStateView,
    DesiredCpuset,
    PinFault,
    PinSnapshot,
    SnapshotCache,
)
from plimsoll.drivers.cpu.settings import DRIVER_NAME, CpuSettings
from plimsoll.drivers.cpu.topology.topology import Topology
from plimsoll.errors import PlimsollError
from plimsoll.protocols.messages import nri
from plimsoll.protocols.nri import NriEvent, NriPlugin, mask_of
from plimsoll.protocols.nri.edits import adjustment, creation, update
from plimsoll.protocols.nri.names import SAFE_UPDATES, Version
from plimsoll.protocols.ttrpc import UNKNOWN, Handler, TtrpcFault

_log = logging.getLogger("plimsoll.cpu.pinning")

INDEX = "00"
#: First NRI version with validation; older runtimes reject plugins that subscribe to the event.
VALIDATION: Version = (0, 10, 0)


class NriEnforcer:
    """Pins containers through a runtime's NRI.

    `apply_timeout` limits how long `apply` waits for the runtime, `call_timeout` the duration of one call;
    cpusets are audited every `audit` seconds. Without pushes, the plugin connects again if there was no event
    for `quiet` seconds while containers should have more CPUs.
    """

    def __init__(
        self,
        state: CpuStateView,
        topology: Callable[[], Topology],
        settings: CpuSettings,
        *,
        socket: Path | None = None,
        apply_timeout: float = 2.0,
        call_timeout: float = 5.0,
        shortest: float = 0.1,
        longest: float = 10.0,
        retry: float = 0.2,
        quiet: float = 0.5,
        audit: float = 30.0,
        observer: CpusetObserver | None = None,
        name: str = DRIVER_NAME,
    ) -> None:
        self.on_change: Callable[[], None] = lambda: None
        self.counters = Counters()
        #: Findings of the comparison with all containers at synchronization.
        self.findings: tuple[NodeFinding, ...] = ()
        self.link_error = "not connected yet"
        self._state = state
        self._topology = topology
        self._settings = settings
        self._snapshots = SnapshotCache(state, settings.pin)
        self._apply_timeout = apply_timeout
        self._pauses = (shortest, longest)
        self._quiet = quiet
        #: Number of events; they carry pending updates.
        self._events = 0
        self._growth_pending = asyncio.Event()
        self._is_reconnecting = False
        self.container_table = ContainerTable()
        self._linked = False
        #: Set when a container changes, or the link is lost.
        self._container_changed = asyncio.Event()
        self.tasks: list[asyncio.Task[None]] = []
        #: Cpusets of containers that are being created, for validation.
        self._pending_creations: dict[str, DesiredCpuset] = {}
        root = settings.host_root
        self.audit = Audit(
            self, observer or CpusetObserver(root / "sys/fs/cgroup", root / "proc"), interval=audit
        )
        handlers: dict[NriEvent, Handler] = {
            NriEvent.RUN_POD_SANDBOX: self._on_sandbox,
            NriEvent.REMOVE_POD_SANDBOX: self._on_sandbox_removed,
            NriEvent.CREATE_CONTAINER: self._on_create,
            NriEvent.POST_CREATE_CONTAINER: self._on_container_created,
            NriEvent.POST_START_CONTAINER: self._on_container_created,
            NriEvent.UPDATE_CONTAINER: self._on_update,
            NriEvent.STOP_CONTAINER: self._on_stop,
            NriEvent.REMOVE_CONTAINER: self._on_removed,
            NriEvent.VALIDATE_CONTAINER_ADJUSTMENT: self._on_validate,
        }
        self._handlers = {event: self._count_event(handler) for event, handler in handlers.items()}
        self._plugin = NriPlugin(
            name,
            INDEX,
            self._handlers,
            socket=socket or settings.nri,
            synchronize=self._on_synchronize,
            configure=self._on_configure,
        )

        self._pushes = NriPushes(
            self._plugin,
            self.container_table,
            self._snapshot,
            self.counters,
            can_push=lambda: self._linked and self.pushes,
            on_pushed=self._changed,
            call_timeout=call_timeout,
            retry=retry,
            longest=longest,
        )

    # -- lifecycle

    async def start(self) -> None:
        """Start connecting in the background, indefinitely."""
        if self.tasks:
            return
        shortest, longest = self._pauses
        self.tasks = [
            asyncio.create_task(
                self._plugin.serve(shortest=shortest, longest=longest, ended=self._on_ended),
                name="nri-plugin",
            ),
            asyncio.create_task(self._pushes.run(), name="nri-updates"),
            asyncio.create_task(self._reconnect_to_grow(), name="nri-reconnects"),
            asyncio.create_task(self.audit.run(), name="nri-audit"),
        ]

    async def stop(self) -> None:
        """Stop; containers keep their cpusets."""
        tasks, self.tasks = self.tasks, []
        await cancel_tasks(tasks)
        self._linked = False
        self.link_error = "stopped"
        self._release_waiting()

    # -- state

    @property
    def linked(self) -> bool:
        """True if the runtime is connected and synchronized."""
        return self._linked

    @property
    def runtime(self) -> str:
        """Runtime name with its version and NRI version."""
        runtime = self._plugin.runtime
        if runtime is None:
            return ""
        version = self._plugin.nri_version
        shown = "unknown" if version is None else ".".join(map(str, version))
        return f"{runtime.runtime_name} {runtime.runtime_version}, NRI {shown}"

    @property
    def pushes(self) -> bool:
        """True if running containers can be updated at any time."""
        if self._pushes.unsupported:
            return False
        if self._settings.pin.push is not None:
            return self._settings.pin.push
        version = self._plugin.nri_version
        return version is not None and version >= SAFE_UPDATES

    @property
    def shared_in_use(self) -> bool:
        """True if containers run on the shared pool."""
        return self.container_table.shared_in_use

    def containers(self) -> tuple[ContainerView, ...]:
        return tuple(entry.view for entry in self.container_table.entries.values())

    def faults(self) -> tuple[PinFault, ...]:
        """Return the current faults of containers."""
        found = self.container_table.faults(self._snapshot())
        named = {fault.container for fault in found}
        drifted = (fault for id, fault in self.audit.faults.items() if id in self.container_table.entries)
        return (*found, *(fault for fault in drifted if fault.container not in named))

    def expected(self) -> Mapping[str, tuple[ContainerView, DesiredCpuset]]:
        """Return the confirmed cpusets of containers, for audits."""
        found = {}
        for id, decision in self.container_table.decisions(self._snapshot()).items():
            entry = self.container_table.entries[id]
            if (
                decision.desired is not None
                and entry.created
                and matches_desired(entry.view, decision.desired)
            ):
                found[id] = (entry.view, decision.desired)
        return found

    # -- updates

    async def apply(self) -> tuple[PinFault, ...]:
        """Update running containers after a change of allocations, shared pool or topology.

        Updates are sent now, or with the next event. Must not be called from an event handler.
        """
        if self._linked and self.pushes and self.tasks:
            async with at_most(self._apply_timeout):
                await self._pushes.send_and_wait()
                # Containers that are being created can be updated only afterwards.
                while self._linked and self.container_table.has_outdated_creations(self._snapshot()):
                    self._container_changed.clear()
                    await self._container_changed.wait()
                    if self._linked:
                        await self._pushes.send_and_wait()
        elif self._linked:
            pending = self.container_table.list_changes(self._snapshot())
            self.counters.deferred += len(pending)
            if any(change.grows for change in pending):
                self._growth_pending.set()
        return self.faults()

    async def reassert(self, containers: Iterable[str]) -> None:
        """Send the cpusets of these containers again."""
        for id in containers:
            entry = self.container_table.entries.get(id)
            if entry is not None:
                entry.view = replace(entry.view, cpus="")
        await self.apply()

    async def _reconnect_to_grow(self) -> None:
        """Connect again if no event carries the CPUs that containers should get back.

        Only for growth: a container that must shrink does so with the creation that needs its CPUs. Not while
        a container is created, because it would not be pinned.
        """
        while True:
            await self._growth_pending.wait()
            self._growth_pending.clear()
            if self._settings.pin.push is not None:
                continue
            seen = -1
            while self._linked and not self.pushes and self._has_pending_growth():
                if self._events == seen and not self._pending_creations:
                    self.counters.reconnected += 1
                    self._is_reconnecting = True
                    await self._plugin.reconnect()
                    break
                seen = self._events
                await asyncio.sleep(self._quiet)

    def _has_pending_growth(self) -> bool:
        return any(change.grows for change in self.container_table.list_changes(self._snapshot()))

    def _release_waiting(self) -> None:
        self._pushes.release_waiting()
        self._container_changed.set()

    # -- connection

    async def _on_configure(self, request: nri.ConfigureRequest) -> int:
        self.counters.connections += 1
        events = set(self._handlers)
        version = self._plugin.nri_version
        if not self._settings.pin.fail_closed or version is None or version < VALIDATION:
            events.remove(NriEvent.VALIDATE_CONTAINER_ADJUSTMENT)
        return mask_of(events)

    async def _on_synchronize(
        self, pods: Sequence[nri.PodSandbox], containers: Sequence[nri.Container]
    ) -> list[nri.ContainerUpdate]:
        by_id = {pod.id: pod for pod in pods}
        views = [
            decode_container(container, by_id.get(container.pod_sandbox_id))
            for container in containers
            if container.state != STOPPED
        ]
        self._pending_creations.clear()
        self.container_table.reset({pod.id: pod.uid for pod in pods}, views)
        try:
            self.findings = self._state.check_containers(views)
        except PlimsollError as error:
            self.findings = (
                NodeFinding(
                    FindingSeverity.ERROR, f"comparing containers with the CPU state failed: {error}"
                ),
            )
        for finding in self.findings:
            _log.warning("%s", finding.what)
        self.container_table.prune(self._snapshot())
        self._linked = True
        self._pushes.unsupported = False
        self.link_error = ""
        self.counters.synchronized += 1
        for fault in self.faults():
            _log.warning("%s", fault)
        self._changed()
        return self._build_updates(self.container_table.list_changes(self._snapshot()))

    def _on_ended(self, fault: TtrpcFault | None) -> None:
        was, self._linked = self._linked, False
        self.link_error = fault.message if fault is not None else "the runtime closed the connection"
        self._release_waiting()
        if was:
            level = logging.INFO if self._is_reconnecting else logging.WARNING
            _log.log(level, "NRI: %s", self.link_error)
            self._changed()
        self._is_reconnecting = False

    # -- events

    def _count_event(self, handler: Handler) -> Handler:
        async def counted(request: Any) -> Any:
            self._events += 1
            return await handler(request)

        return counted

    async def _on_sandbox(self, request: nri.RunPodSandboxRequest) -> None:
        self.container_table.add_sandbox(request.pod.id, request.pod.uid)

    async def _on_sandbox_removed(self, request: nri.RemovePodSandboxRequest) -> None:
        self.container_table.forget_sandbox(request.pod.id)

    async def _on_create(
        self, request: nri.CreateContainerRequest
    ) -> nri.CreateContainerResponse | TtrpcFault:
        view = decode_container(request.container, request.pod, running=False)
        if request.pod.id:
            self.container_table.add_sandbox(request.pod.id, request.pod.uid)
        found = self.container_table.admit(view, self._snapshot(), can_defer=self.pushes)
        if isinstance(found, PinFault):
            self.counters.refused += 1
            _log.warning("%s is not created: %s", view.where, found.message)
            return TtrpcFault(UNKNOWN, found.message)
        self.counters.created += 1
        self._pending_creations[view.id] = found.desired
        updates = self._build_updates(self._defer_pushed(found.changes, found.desired))
        self._changed()
        if not found.desired.cpus:
            return creation(None, updates)
        return creation(adjustment(resources=encode_cpuset(found.desired)), updates)

    async def _on_validate(
        self, request: nri.ValidateContainerAdjustmentRequest
    ) -> nri.ValidateContainerAdjustmentResponse | None:
        answer = self._pending_creations.get(request.container.id)
        if answer is None:
            reason = f"plugin {self._plugin.name} was not called for this container"
            return nri.ValidateContainerAdjustmentResponse(reject=True, reason=reason)
        adjusted = request.adjust.linux.resources.cpu.cpus
        if adjusted != str(answer.cpus):
            reason = f"another plugin has set CPUs {adjusted!r} instead of {str(answer.cpus)!r}"
            return nri.ValidateContainerAdjustmentResponse(reject=True, reason=reason)
        return None

    async def _on_container_created(self, request: Any) -> None:
        """Handle a created or started container, which can be updated from now on."""
        self._pending_creations.pop(request.container.id, None)
        self.container_table.update_container(decode_container(request.container, request.pod))
        self._container_changed.set()
        if self.container_table.list_changes(self._snapshot(), include_unconfirmed=self.pushes):
            self._pushes.wake()

    async def _on_update(self, request: nri.UpdateContainerRequest) -> nri.UpdateContainerResponse:
        """Handle an update by others: the container keeps its CPUs."""
        entry = self.container_table.update_container(decode_container(request.container, request.pod))
        snapshot = self._snapshot()
        updates = []
        desired = self.container_table.decisions(snapshot)[entry.view.id].desired
        if desired is not None and desired.cpus:
            self.counters.corrected += 1
            change = ContainerChange(entry.view, desired, True, entry.generation)
            updates.append(update(entry.view.id, encode_cpuset(desired)))
            # New CPUs are confirmed only if this update succeeds, which is not reported.
            confirmed = entry.confirmed and matches_desired(entry.view, desired)
            self.container_table.record_change(change, confirmed=confirmed)
            if not confirmed and self.pushes:
                self._pushes.wake()
        elif entry.view.cpus and request.linux_resources.cpu.cpus:
            kept = nri.LinuxResources(cpu=nri.LinuxCPU(cpus=entry.view.cpus))
            updates.append(update(entry.view.id, kept))
        updates += self._build_updates(
            self._defer_pushed(self.container_table.list_changes(snapshot, exclude=entry.view.id))
        )
        return nri.UpdateContainerResponse(update=updates)

    async def _on_stop(self, request: nri.StopContainerRequest) -> nri.StopContainerResponse:
        self._forget(request.container.id)
        return nri.StopContainerResponse(
            update=self._build_updates(
                self._defer_pushed(self.container_table.list_changes(self._snapshot()))
            )
        )

    async def _on_removed(self, request: nri.RemoveContainerRequest) -> None:
        self._forget(request.container.id)

    def _forget(self, container: str) -> None:
        self._pending_creations.pop(container, None)
        self._container_changed.set()
        if self.container_table.forget(container):
            self._changed()

    # -- internals

    def _defer_pushed(
        self, changes: Sequence[ContainerChange], created: DesiredCpuset | None = None
    ) -> Sequence[ContainerChange]:
        """Return the updates that a response must have: the others are pushed.

        If every response had all updates, a slow runtime would get them again and again while they are in
        flight, and would become even slower. A new container with exclusive CPUs needs those that may free
        them.
        """
        if not self.pushes:
            return changes
        exclusive = created is not None and bool(created.exclusive)
        needed = [change for change in changes if exclusive and change.shrinks]
        if len(needed) < len(changes):
            self._pushes.wake()
        return needed

    def _build_updates(self, changes: Iterable[ContainerChange]) -> list[nri.ContainerUpdate]:
        """Build updates for a response. Their results are not reported, so they remain unconfirmed."""
        messages = []
        for change in changes:
            messages.append(encode_update(change, report_failure=change.shrinks))
            self.container_table.record_change(change, confirmed=False)
        if messages and self.pushes:
            self._pushes.wake()
        return messages

    def _snapshot(self) -> PinSnapshot:
        return self._snapshots.take(self._topology())

    def _changed(self) -> None:
        # Deferred, so that a failing callback does not fail the event handler.
        asyncio.get_running_loop().call_soon(self.on_change)
