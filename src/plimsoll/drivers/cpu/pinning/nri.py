"""Pinning by way of NRI: the runtime asks, and containers get their CPUs before they start.

Owns `NriEnforcer` (section 8 of the CPU driver's specification, section 7 of the node protocols). Promises:
it connects for ever; after each connection everything is looked at anew; no handler waits for anything; every
decision is taken on one state of the book; a container with exclusive CPUs is not made while it is known that
another one stays on them; no empty set of CPUs is ever sent.

When CPUs are claimed or given back, containers of the shared pool are changed at once through the plugin's
own call where that is safe (NRI 0.12.1: before, it could lock up a runtime that was updating a container
itself), else with the answer to the next event. The plugin's call is made by a task of its own and never from
a handler.

With `fail_closed` the plugin takes part in the validation of new containers: if it dies while one is made,
the container fails instead of starting unpinned. While no plugin is there at all, only the runtime can
refuse: its option `required_plugins`, or the annotation `required-plugins.noderesource.dev` of a pod, names
`dra.cpu`.

DIFF: shared containers are changed when a claim is prepared or released, not only when a container is made
(test_problem_6_shared_pool_grows_right_after_unprepare).
DIFF: updates by the kubelet keep a container on its CPUs; the Go driver does not listen to them
(test_problem_9_kubelet_updates_do_not_overwrite).
DIFF: a lost runtime is waited for, however long; the Go driver gives up after five tries
(test_problem_10_reconnects_for_ever).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from plimsoll.common.checkpoint import Finding, Severity
from plimsoll.drivers.cpu.pinning.audit import Audit, Sights
from plimsoll.drivers.cpu.pinning.container_table import Change, Roll, agrees
from plimsoll.drivers.cpu.pinning.counters import Counters
from plimsoll.drivers.cpu.pinning.messages import STOPPED, read_container, write_change, write_wanted
from plimsoll.drivers.cpu.pinning.plan import ContainerView, Holdings, PinFault, Scene, Wanted, take_scene
from plimsoll.drivers.cpu.settings import DRIVER_NAME, CpuSettings
from plimsoll.drivers.cpu.topology.topology import Topology
from plimsoll.errors import PlimsollError
from plimsoll.protocols.messages import nri
from plimsoll.protocols.nri import Event, NriPlugin, mask_of
from plimsoll.protocols.nri.edits import adjustment, creation, update
from plimsoll.protocols.nri.names import SAFE_UPDATES, Version
from plimsoll.protocols.ttrpc import UNIMPLEMENTED, UNKNOWN, Fault, end_tasks

_log = logging.getLogger("plimsoll.cpu.pinning")

INDEX = "00"
#: Since then plugins can take part in validation; runtimes that do not know the event turn a plugin away.
VALIDATION: Version = (0, 10, 0)


class NriEnforcer:
    """Gives containers their CPUs through a runtime's NRI.

    `patience` is how long `apply` waits for the runtime, `limit` how long one call may take; every `audit`
    seconds the kernel is asked what containers have.
    """

    def __init__(
        self,
        book: Holdings,
        topology: Callable[[], Topology],
        settings: CpuSettings,
        *,
        socket: Path | None = None,
        patience: float = 2.0,
        limit: float = 5.0,
        shortest: float = 0.1,
        longest: float = 10.0,
        retry: float = 0.2,
        audit: float = 30.0,
        sights: Sights | None = None,
        name: str = DRIVER_NAME,
    ) -> None:
        self.on_change: Callable[[], None] = _nothing
        self.counters = Counters()
        #: What the book found out when the runtime told of all containers.
        self.findings: tuple[Finding, ...] = ()
        self.link_error = "not connected yet"
        self._book = book
        self._topology = topology
        self._settings = settings
        self._patience = patience
        self._limit = limit
        self._pauses = (shortest, longest)
        self._retry = retry
        self._roll = Roll()
        self._linked = False
        self._no_pushes = False
        self._wake = asyncio.Event()
        #: Set when something is heard of a container, or the link is gone.
        self._news = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []
        self._tasks: list[asyncio.Task[None]] = []
        #: What was given to containers that are being made, for validation.
        self._answers: dict[str, Wanted] = {}
        root = settings.host_root
        self.audit = Audit(self, sights or Sights(root / "sys/fs/cgroup", root / "proc"), every=audit)
        self._plugin = NriPlugin(
            name,
            INDEX,
            {
                Event.RUN_POD_SANDBOX: self._on_sandbox,
                Event.REMOVE_POD_SANDBOX: self._on_sandbox_removed,
                Event.CREATE_CONTAINER: self._on_create,
                Event.POST_CREATE_CONTAINER: self._on_news,
                Event.POST_START_CONTAINER: self._on_news,
                Event.UPDATE_CONTAINER: self._on_update,
                Event.STOP_CONTAINER: self._on_stop,
                Event.REMOVE_CONTAINER: self._on_removed,
                Event.VALIDATE_CONTAINER_ADJUSTMENT: self._on_validate,
            },
            socket=socket or settings.nri,
            synchronize=self._on_synchronize,
            configure=self._on_configure,
        )

    # -- coming and going

    async def start(self) -> None:
        """Connect, for ever; does not wait for the runtime."""
        if self._tasks:
            return
        shortest, longest = self._pauses
        self._tasks = [
            asyncio.create_task(
                self._plugin.serve(shortest=shortest, longest=longest, ended=self._on_ended),
                name="nri-plugin",
            ),
            asyncio.create_task(self._push_forever(), name="nri-updates"),
            asyncio.create_task(self.audit.run(), name="nri-audit"),
        ]

    async def stop(self) -> None:
        """Leave; containers stay as they are."""
        tasks, self._tasks = self._tasks, []
        await end_tasks(tasks)
        self._linked = False
        self.link_error = "stopped"
        self._release_waiting()

    # -- state

    @property
    def linked(self) -> bool:
        """Whether the runtime is connected and has told of all its containers."""
        return self._linked

    @property
    def runtime(self) -> str:
        """The runtime and its NRI, for people."""
        told = self._plugin.runtime
        if told is None:
            return ""
        version = self._plugin.nri_version
        shown = "unknown" if version is None else ".".join(map(str, version))
        return f"{told.runtime_name} {told.runtime_version}, NRI {shown}"

    @property
    def pushes(self) -> bool:
        """Whether containers can be changed at any time."""
        if self._no_pushes:
            return False
        if self._settings.pin.push is not None:
            return self._settings.pin.push
        version = self._plugin.nri_version
        return version is not None and version >= SAFE_UPDATES

    @property
    def shared_in_use(self) -> bool:
        """Whether containers run on the shared pool."""
        return self._roll.shared_in_use

    def containers(self) -> tuple[ContainerView, ...]:
        return tuple(entry.view for entry in self._roll.entries.values())

    def faults(self) -> tuple[PinFault, ...]:
        """What is wrong with containers now."""
        found = self._roll.faults(self._scene())
        named = {fault.container for fault in found}
        drifted = (fault for id, fault in self.audit.faults.items() if id in self._roll.entries)
        return (*found, *(fault for fault in drifted if fault.container not in named))

    def expected(self) -> Mapping[str, tuple[ContainerView, Wanted]]:
        """What containers have for sure, as far as this driver knows; for audits."""
        found = {}
        for id, verdict in self._roll.verdicts(self._scene()).items():
            entry = self._roll.entries[id]
            if verdict.wanted is not None and entry.made and agrees(entry.view, verdict.wanted):
                found[id] = (entry.view, verdict.wanted)
        return found

    # -- changing

    async def apply(self) -> tuple[PinFault, ...]:
        """Holdings, pool or topology changed: bring running containers in line, now or with the next event.

        Never from inside a handler.
        """
        if self._linked and self.pushes and self._tasks:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._patience):
                    await self._pushed()
                    # Containers that are just being made can be changed only when they are.
                    while self._linked and self._roll.outdated(self._scene()):
                        self._news.clear()
                        await self._news.wait()
                        if self._linked:
                            await self._pushed()
        elif self._linked:
            self.counters.deferred += len(self._roll.due(self._scene()))
        return self.faults()

    async def reassert(self, containers: Iterable[str]) -> None:
        """Containers that have something else than they were given: give it to them again."""
        for id in containers:
            entry = self._roll.entries.get(id)
            if entry is not None:
                entry.view = replace(entry.view, cpus="")
        await self.apply()

    async def _pushed(self) -> None:
        """Have everything pushed that is due now."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(done)
        self._wake.set()
        await done

    async def _push_forever(self) -> None:
        pause: float | None = None
        while True:
            try:
                async with asyncio.timeout(pause):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            waiting, self._waiting = self._waiting, []
            try:
                done = await self._push()
            except Exception:  # a bug here must not end pinning for good
                _log.exception("containers are not changed")
                done = False
            for future in waiting:
                if not future.done():
                    future.set_result(None)
            pause = None if done else min(self._pauses[1], (pause or self._retry / 2) * 2)

    async def _push(self) -> bool:
        """Change what is to be changed; whether all of it is done."""
        well = True
        # First away from CPUs, then onto them.
        for losing in (True, False):
            if not self._linked or not self.pushes:
                return True  # the next connection or event sees to it
            changes = [
                change for change in self._roll.due(self._scene(), unsure=True) if change.loses is losing
            ]
            if changes:
                well = await self._push_changes(changes) and well
        self._changed()
        return well

    async def _push_changes(self, changes: Sequence[Change]) -> bool:
        answer = await self._plugin.update_containers(map(write_change, changes), timeout=self._limit)
        if isinstance(answer, Fault):
            if answer.code == UNIMPLEMENTED:
                self._no_pushes = True
                _log.warning("the runtime does not let containers be changed at any time")
                return True
            if answer.kind == "closed":
                return True  # the next connection begins anew
            _log.warning("containers are not changed: %s", answer.message)
            self.counters.failed += len(changes)
            for change in changes:
                self._roll.doubt(change, answer.message)
            return False
        failed = {message.container_id for message in answer}
        for change in changes:
            if change.view.id in failed:
                self.counters.failed += 1
                fault = self._roll.doubt(change, "the runtime could not do it")
                _log.warning("%s", fault)
            else:
                self.counters.changed += 1
                self._roll.say(change, sure=True)
        return not failed

    def _release_waiting(self) -> None:
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        self._waiting = []
        self._news.set()

    # -- the runtime comes and goes

    async def _on_configure(self, request: nri.ConfigureRequest) -> int:
        self.counters.connections += 1
        events = {
            Event.RUN_POD_SANDBOX,
            Event.REMOVE_POD_SANDBOX,
            Event.CREATE_CONTAINER,
            Event.POST_CREATE_CONTAINER,
            Event.POST_START_CONTAINER,
            Event.UPDATE_CONTAINER,
            Event.STOP_CONTAINER,
            Event.REMOVE_CONTAINER,
        }
        version = self._plugin.nri_version
        if self._settings.pin.fail_closed and version is not None and version >= VALIDATION:
            events.add(Event.VALIDATE_CONTAINER_ADJUSTMENT)
        return mask_of(events)

    async def _on_synchronize(
        self, pods: Sequence[nri.PodSandbox], containers: Sequence[nri.Container]
    ) -> list[nri.ContainerUpdate]:
        by_id = {pod.id: pod for pod in pods}
        views = [
            read_container(container, by_id.get(container.pod_sandbox_id))
            for container in containers
            if container.state != STOPPED
        ]
        self._answers.clear()
        self._roll.start_over({pod.id: pod.uid for pod in pods}, views)
        try:
            self.findings = self._book.witness(views)
        except PlimsollError as error:
            self.findings = (Finding(Severity.ERROR, f"containers were not compared with the book: {error}"),)
        for finding in self.findings:
            _log.warning("%s", finding.what)
        self._roll.prune(self._scene())
        self._linked = True
        self._no_pushes = False
        self.link_error = ""
        self.counters.synchronized += 1
        for fault in self.faults():
            _log.warning("%s", fault)
        self._changed()
        return self._tell(self._roll.due(self._scene()))

    def _on_ended(self, fault: Fault | None) -> None:
        was, self._linked = self._linked, False
        self.link_error = fault.message if fault is not None else "the runtime closed the connection"
        self._release_waiting()
        if was:
            _log.warning("NRI: %s", self.link_error)
            self._changed()

    # -- events

    async def _on_sandbox(self, request: nri.RunPodSandboxRequest) -> None:
        self._roll.add_sandbox(request.pod.id, request.pod.uid)

    async def _on_sandbox_removed(self, request: nri.RemovePodSandboxRequest) -> None:
        self._roll.forget_sandbox(request.pod.id)

    async def _on_create(self, request: nri.CreateContainerRequest) -> nri.CreateContainerResponse | Fault:
        view = read_container(request.container, request.pod, running=False)
        if request.pod.id:
            self._roll.add_sandbox(request.pod.id, request.pod.uid)
        found = self._roll.admit(view, self._scene(), patient=self.pushes)
        if isinstance(found, PinFault):
            self.counters.refused += 1
            _log.warning("%s is not made: %s", view.where, found.message)
            return Fault(UNKNOWN, found.message)
        self.counters.created += 1
        self._answers[view.id] = found.wanted
        updates = self._tell(found.changes)
        self._changed()
        if not found.wanted.cpus:
            return creation(None, updates)
        return creation(adjustment(resources=write_wanted(found.wanted)), updates)

    async def _on_validate(
        self, request: nri.ValidateContainerAdjustmentRequest
    ) -> nri.ValidateContainerAdjustmentResponse | None:
        answer = self._answers.get(request.container.id)
        if answer is None:
            reason = f"plugin {self._plugin.name} was not asked about this container"
            return nri.ValidateContainerAdjustmentResponse(reject=True, reason=reason)
        given = request.adjust.linux.resources.cpu.cpus
        if given != str(answer.cpus):
            reason = f"another plugin has set CPUs {given!r} instead of {str(answer.cpus)!r}"
            return nri.ValidateContainerAdjustmentResponse(reject=True, reason=reason)
        return None

    async def _on_news(self, request: Any) -> None:
        """A container is made, or runs: from now on it can be changed."""
        self._answers.pop(request.container.id, None)
        self._roll.see(read_container(request.container, request.pod))
        self._news.set()
        if self._roll.due(self._scene(), unsure=self.pushes):
            self._wake.set()

    async def _on_update(self, request: nri.UpdateContainerRequest) -> nri.UpdateContainerResponse:
        """Someone changes a container: it keeps its CPUs whatever they say."""
        entry = self._roll.see(read_container(request.container, request.pod))
        scene = self._scene()
        updates = []
        wish = self._roll.verdicts(scene)[entry.view.id].wanted
        if wish is not None and wish.cpus:
            self.counters.corrected += 1
            change = Change(entry.view, wish, True, entry.stamp)
            updates.append(update(entry.view.id, write_wanted(wish)))
            # What it had not yet, it has only if this update succeeds, which is not told.
            sure = entry.sure and agrees(entry.view, wish)
            self._roll.say(change, sure=sure)
            if not sure and self.pushes:
                self._wake.set()
        elif entry.view.cpus and request.linux_resources.cpu.cpus:
            kept = nri.LinuxResources(cpu=nri.LinuxCPU(cpus=entry.view.cpus))
            updates.append(update(entry.view.id, kept))
        updates += self._tell(self._roll.due(scene, besides=entry.view.id))
        return nri.UpdateContainerResponse(update=updates)

    async def _on_stop(self, request: nri.StopContainerRequest) -> nri.StopContainerResponse:
        self._forget(request.container.id)
        return nri.StopContainerResponse(update=self._tell(self._roll.due(self._scene())))

    async def _on_removed(self, request: nri.RemoveContainerRequest) -> None:
        self._forget(request.container.id)

    def _forget(self, container: str) -> None:
        self._answers.pop(container, None)
        self._news.set()
        if self._roll.forget(container):
            self._changed()

    # -- inside

    def _tell(self, changes: Iterable[Change]) -> list[nri.ContainerUpdate]:
        """Changes as part of an answer. Whether they come to pass is not told: it is asked for again."""
        messages = []
        for change in changes:
            messages.append(write_change(change, tell=change.loses))
            self._roll.say(change, sure=False)
        if messages and self.pushes:
            self._wake.set()
        return messages

    def _scene(self) -> Scene:
        return take_scene(self._book, self._topology(), self._settings.pin)

    def _changed(self) -> None:
        # Later, so that no handler fails because of who listens.
        asyncio.get_running_loop().call_soon(self.on_change)


def _nothing() -> None:
    return None
