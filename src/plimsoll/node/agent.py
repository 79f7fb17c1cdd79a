"""One node's agent: from the pods of the API to their containers, claims and cgroups, and back. START HERE.

Owns the order of things. All pods of the node are listed once: who was let in before a restart comes first,
in the same order, then the others are judged on the node's own books (`admission`). A pod that is let in is
on record before anything is done for it; then a worker of its own prepares its claims, runs its containers
and tells the API (`pods.worker`). A pod that has ended gives back what it held when nothing of it runs any
more.

Promises: what the runtime has and the API does not know is ended and cleaned up, its claims included; nothing
of the agent's own work depends on the API server or on drivers being there; stopping the agent stops no
container.

Documents 000 ("Kubelet Admission Control") and 004.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from plimsoll.api.core import Pod
from plimsoll.errors import ConfigError
from plimsoll.ledger.fit import Admission
from plimsoll.ledger.node import pod_key
from plimsoll.node.admission.admit import Admitter, has_ended
from plimsoll.node.admission.preemption import CONDITION_REASON, MESSAGE, REASON
from plimsoll.node.cgroups import Cgroups
from plimsoll.node.cgroups.ownership import RootMark
from plimsoll.node.cgroups.values import CgroupFault
from plimsoll.node.cgroups.watch import CgroupWatch
from plimsoll.node.claims.claim_info_cache import ClaimBook
from plimsoll.node.containers import Runtime, RuntimeFault
from plimsoll.node.enforcement import Enforcement
from plimsoll.node.eviction.manager import Eviction, PressureWatch, admit_under
from plimsoll.node.machine.machine import pods_share
from plimsoll.node.nri import NriServer
from plimsoll.node.plugins import Plugins
from plimsoll.node.podresources import PodResourcesServer
from plimsoll.node.podresources.provider import Sights
from plimsoll.node.pods.backoff import Failure, fail
from plimsoll.node.pods.components import Parts
from plimsoll.node.pods.pod_state import Order
from plimsoll.node.pods.steps import read_claims
from plimsoll.node.pods.worker import PodWorker, reject
from plimsoll.node.slices import Slices
from plimsoll.node.status.reporter import Presence

_log = logging.getLogger("plimsoll.node")

#: The kubelet's word for a pod that could not be judged.
_UNEXPECTED = "UnexpectedAdmissionError"
#: How often claims, pods and cgroups that nobody knows are looked for (seconds).
_TIDY_SECONDS = 60.0
#: How long a critical pod waits for those that go for its sake (seconds).
_ROOM_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Equipment:
    """The parts of one agent; those that are None are not wanted."""

    presence: Presence
    admitter: Admitter
    book: ClaimBook
    runtime: Runtime
    cgroups: Cgroups
    enforcement: Enforcement
    parts: Parts  #: what workers work with
    sights: Sights
    mark: RootMark  #: on the root of the cgroups
    plugins: Plugins | None = None
    slices: Slices | None = None
    nri: NriServer | None = None
    pod_resources: PodResourcesServer | None = None
    pressure: PressureWatch | None = None
    cgroup_watch: CgroupWatch | None = None


class Agent:
    """The agent of one node."""

    def __init__(
        self, equipment: Equipment, *, tidy: float = _TIDY_SECONDS, room: float = _ROOM_SECONDS
    ) -> None:
        self.equipment = equipment
        self.presence = equipment.presence
        self.admitter = equipment.admitter
        self.name = equipment.presence.name
        self._tidy_seconds = tidy
        self._room_seconds = room
        self._pods: dict[str, Pod] = {}
        self._workers: dict[str, PodWorker] = {}
        self._coming: asyncio.Queue[Pod] = asyncio.Queue()
        self._retiring: dict[str, asyncio.Task[None]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._tiers_due = asyncio.Event()
        self._drivers_changed = asyncio.Event()
        #: Drivers have to release or prepare something that no worker asks for; counts the failed tries.
        self._undone: Failure | None = None

    # -- life

    async def start(self) -> None:
        """Take over what is there, open the sockets, begin to register; pods come by `pods_listed`."""
        own = self.equipment
        try:
            for fault in await asyncio.to_thread(self._set_up_root):
                _log.warning("%s: %s", self.name, fault)
            if not own.cgroups.lost():
                # Nothing below the root is touched before it is certain that no other agent uses it.
                problem = await asyncio.to_thread(own.mark.take, own.cgroups.root_folders())
                if problem:
                    raise ConfigError(f"{problem}; stop it, or give another root with --cgroup-root")
            own.book.on_release = self._claims_released
            await own.runtime.start(self._stirred)
            if own.nri is not None:
                await own.nri.start()
            if own.plugins is not None:
                own.plugins.on_change = self._poke_all
                if own.slices is not None:
                    own.plugins.on_gone = own.slices.remove
                    self._keep(own.slices.sweep(self._connected), "slices")
                await own.plugins.start()
            if own.pod_resources is not None:
                await own.pod_resources.start()
        except BaseException:
            await self.stop()
            raise
        for finding in (*own.book.findings, *own.admitter.findings, *own.runtime.findings):
            _log.warning("%s: %s", self.name, finding)
        self._keep(own.presence.run(), "presence")
        self._keep(self._keep_tiers(), "tiers")
        if own.pressure is not None:
            self._keep(own.pressure.run(), "pressure")
        if own.cgroup_watch is not None:
            self._keep(own.cgroup_watch.run(), "cgroups")

    async def stop(self) -> None:
        """End in order; containers go on running, the Node stays."""
        own = self.equipment
        workers = list(self._workers.values())  # those that attend to them let go of them when they end
        await _cancel([*self._tasks, *self._retiring.values()])
        self._tasks.clear()
        self._retiring.clear()
        await asyncio.gather(*(worker.stop() for worker in workers))
        self._workers.clear()
        await own.parts.writer.stop()
        await own.parts.events.stop()
        for part in (own.pod_resources, own.plugins, own.nri):
            if part is not None:
                await part.stop()
        await own.runtime.stop()
        own.mark.release()
        await own.admitter.flush()

    # -- pods come and go

    def pods(self) -> Sequence[Pod]:
        """The pods the agent knows, ended ones included until the API has them no more."""
        return tuple(self._pods.values())

    def running(self) -> Sequence[Pod]:
        """The pods that were let in and have not ended on this node."""
        return tuple(self._pods[uid] for uid in self.admitter.order if uid in self._pods)

    def show_cgroups(self) -> dict[str, Any]:
        """What is set in cgroups, or would be if they could be used: a plan."""
        cgroups = self.equipment.cgroups
        return {
            "version": cgroups.version or "plan",
            "note": cgroups.note,
            "files": dict(cgroups.plan()),
            "faults": {file: str(fault) for file, fault in cgroups.unapplied().items()},
        }

    def cgroup_counts(self) -> tuple[int, int]:
        """Number of times that cgroups were found to be removed, and created again."""
        watch = self.equipment.cgroup_watch
        return (watch.losses, watch.restores) if watch is not None else (0, 0)

    def is_active(self, pod: Pod) -> bool:
        """Whether a pod holds anything here, or will."""
        return pod_key(pod) in self.admitter

    def pods_listed(self, pods: Sequence[Pod]) -> None:
        """All pods of the node, once: who was in before comes first."""
        for pod in pods:
            self._pods[pod_key(pod)] = pod
        others = self.admitter.restore(pods)
        for uid in self.admitter.order:
            self._begin(self._pods[uid])
        for pod in pods:
            if has_ended(pod) and self._is_unfinished(pod):
                self._begin(pod)
        for pod in others:
            self._coming.put_nowait(pod)
        self._keep(self._take_in(), "admission")
        self._keep(self._tidy(), "tidying")
        self.equipment.sights.stir()

    def pod_added(self, pod: Pod) -> None:
        self._pods[pod_key(pod)] = pod
        if not has_ended(pod):
            self._coming.put_nowait(pod)
        elif self._is_unfinished(pod):
            self._begin(pod)
        self.equipment.sights.stir()

    def pod_changed(self, old: Pod, new: Pod) -> None:
        uid = pod_key(new)
        self._pods[uid] = new
        self.admitter.update(new)
        worker = self._workers.get(uid)
        if worker is not None:
            worker.update(new)
        elif has_ended(new) and self._is_unfinished(new):
            self._begin(new)
        self.equipment.sights.stir()

    def pod_removed(self, old: Pod) -> None:
        """A pod is gone from the API; what still runs of it is ended."""
        uid = pod_key(old)
        self._pods.pop(uid, None)
        worker = self._workers.get(uid)
        if worker is not None:
            worker.vanish()
        else:
            self.equipment.parts.writer.forget(uid)
        self.equipment.sights.stir()

    async def evict(self, pod: Pod, eviction: Eviction) -> None:
        """Have a pod fail because the node is short of something."""
        order = Order(eviction.reason, eviction.message, eviction.grace, eviction.condition.reason or "")
        self._order(pod, order)

    # -- admission

    async def _take_in(self) -> None:
        """Judge pods one after the other, as they come."""
        while True:
            pod = self._pods.get(pod_key(await self._coming.get()))
            if pod is None or has_ended(pod) or pod_key(pod) in self._workers:
                continue
            try:
                await self._judge(pod)
            except Exception as error:
                _log.exception("%s: pod %s cannot be judged", self.name, _name(pod))
                self._refuse(pod, _UNEXPECTED, f"{type(error).__name__}: {error}")

    async def _judge(self, pod: Pod) -> None:
        """Let a pod in or refuse it; while something is waited for it may change or go."""
        uid = pod_key(pod)
        answer = self._admit(pod)
        victims = () if answer.admit else self.admitter.victims(pod)
        if victims:
            await self._make_room(pod, victims)
            if uid not in self._pods:
                return
            pod = self._pods[uid]
            answer = self._admit(pod)
        if not answer.admit:
            self._refuse(pod, answer.reason, answer.message)
            return
        finding = await self.admitter.flush()
        if finding is not None:
            _log.warning("%s: %s", self.name, finding)
        if uid in self._pods:
            self._begin(self._pods[uid])
        else:
            self.admitter.remove(uid)
            await self.admitter.flush()

    def _refuse(self, pod: Pod, reason: str, message: str) -> None:
        _log.info("%s: pod %s is not let in: %s", self.name, _name(pod), message)
        self._attend(pod, reject(pod, reason, message, self.equipment.parts))

    def _admit(self, pod: Pod) -> Admission:
        """Let a pod in, if the node is not short of something and there is room on its books."""
        pressure = self.equipment.pressure
        if pressure is not None:
            form = self.equipment.enforcement.settings.form
            answer = admit_under(pressure.conditions, pod, form=form)
            if not answer.admit:
                return answer
        return self.admitter.admit(pod)

    async def _make_room(self, pod: Pod, victims: Sequence[Pod]) -> None:
        """End pods for one that the node cannot do without, and wait until they are gone."""
        workers = [self._workers[key] for key in map(pod_key, victims) if key in self._workers]
        for victim in victims:
            self._order(victim, Order(REASON, MESSAGE, None, CONDITION_REASON))
        with suppress(TimeoutError):  # others wait behind this pod: if room takes too long, it is refused
            async with asyncio.timeout(self._room_seconds):
                await asyncio.gather(*(worker.released.wait() for worker in workers))
        for worker in workers:
            if worker.released.is_set():
                self.admitter.remove(worker.uid)

    def _order(self, pod: Pod, order: Order) -> None:
        worker = self._workers.get(pod_key(pod))
        if worker is not None:
            worker.end(order)

    # -- workers

    def _begin(self, pod: Pod) -> None:
        self._attend(pod, PodWorker(pod, self.equipment.parts).start())

    def _attend(self, pod: Pod, worker: PodWorker) -> None:
        uid = pod_key(pod)
        self._workers[uid] = worker
        self._retiring[uid] = asyncio.create_task(self._retire(uid, worker), name=f"end of {_name(pod)}")
        self._tiers_due.set()

    async def _retire(self, uid: str, worker: PodWorker) -> None:
        """When nothing of a pod runs any more its charges are free; when nothing is left, it is forgotten."""
        try:
            await worker.released.wait()
            self.admitter.remove(uid)
            self.equipment.sights.stir()
            self._tiers_due.set()
            for other in self._workers.values():
                if other.waits_for_room:
                    other.poke()
            await self.admitter.flush()
            await worker.done.wait()
        finally:
            if self._workers.get(uid) is worker:
                del self._workers[uid]
            self._retiring.pop(uid, None)

    def _stirred(self, uid: str) -> None:
        """A container has changed by itself."""
        self.equipment.sights.stir()
        worker = self._workers.get(uid)
        if worker is not None:
            worker.poke()

    def _connected(self) -> set[str]:
        """The drivers that answer now."""
        plugins = self.equipment.plugins
        return {each.name for each in plugins.drivers() if each.connected} if plugins is not None else set()

    def _claims_released(self, uids: frozenset[str]) -> None:
        """Claims were unprepared: pods whose claims need the same devices go on without a back-off."""
        for worker in self._workers.values():
            worker.claims_released(uids)

    def _poke_all(self) -> None:
        self._drivers_changed.set()
        for worker in self._workers.values():
            worker.poke()

    # -- upkeep

    def _set_up_root(self) -> tuple[CgroupFault, ...]:
        """Make the root of the cgroups and its tiers, limited to what the machine leaves for pods."""
        own = self.equipment
        limits = own.enforcement.root(pods_share(own.presence.machine, own.presence.reservations))
        return own.cgroups.set_up(limits)

    async def restore_root(self) -> tuple[CgroupFault, ...]:
        """Make the root of the cgroups and its tiers again while the agent runs."""
        faults = await asyncio.to_thread(self._set_up_root)
        plan = self.equipment.enforcement.tiers(self.running())
        return (*faults, *await asyncio.to_thread(self.equipment.cgroups.apply_tiers, plan))

    async def _keep_tiers(self) -> None:
        """Follow the pods that run with the cgroups above them."""
        own = self.equipment
        while True:
            await self._tiers_due.wait()
            self._tiers_due.clear()
            try:
                plan = own.enforcement.tiers(self.running())
                for fault in await asyncio.to_thread(own.cgroups.apply_tiers, plan):
                    _log.debug("%s: %s", self.name, fault)
            except Exception:
                _log.exception("%s: the cgroups of the classes were not set", self.name)

    async def _tidy(self) -> None:
        """Now and then, look for what nobody knows any more."""
        while True:
            self._drivers_changed.clear()
            try:
                await self.tidy()
            except Exception:
                _log.exception("%s: tidying up failed; it goes on", self.name)
            await self._next_tidying()

    async def _next_tidying(self) -> None:
        """Wait until it is time. If drivers have left something undone, wait only until the next retry, or
        until a driver comes: another claim may need the devices."""
        seconds = self._tidy_seconds
        if self._undone is not None:
            seconds = min(seconds, self._undone.again_at(self.equipment.parts.timing))
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    await self._drivers_changed.wait()
                    self._drivers_changed.clear()
                    if self._undone is not None:
                        return

    async def tidy(self) -> None:
        """End and clean up what belongs to pods that are gone: sandboxes, claims, cgroups, the record."""
        own = self.equipment
        if own.book.lost:
            await self._rebuild()
        for sandbox in own.runtime.sandboxes():
            if sandbox.uid not in self._pods and sandbox.uid not in self._workers:
                _log.info("%s: pod %s is gone; its containers are ended", self.name, sandbox.name)
                await own.runtime.stop_sandbox(sandbox.uid)
                await own.book.unprepare(sandbox.uid)
                await own.runtime.remove_sandbox(sandbox.uid)
        known = {*self._workers, *(state.uid for state in own.runtime.sandboxes())}
        faults = await own.book.reconcile(known)
        for fault in faults:
            _log.warning("%s: claim %s: %s", self.name, fault.claim, fault.message)
        undone = "; ".join(fault.message for fault in faults)
        self._undone = fail(self._undone, "", undone, 0.0) if faults or own.book.lost else None
        for uid in await asyncio.to_thread(own.cgroups.pods):
            if uid not in self._pods and uid not in self._workers:
                await asyncio.to_thread(own.cgroups.remove_pod, uid)
        await self.admitter.flush()  # who is gone since the last agent, and what could not be saved

    async def _rebuild(self) -> None:
        """The record of claims is lost: have those of all pods prepared again, which drivers can take."""
        pods = []
        for pod in self.running():
            claims = await read_claims(pod, self.equipment.parts)
            if isinstance(claims, RuntimeFault):
                _log.warning("%s: pod %s: %s", self.name, _name(pod), claims.message)
                return  # all of them or none: what is not in the book is let go of
            pods.append((pod, claims))
        for fault in await self.equipment.book.rebuild(pods):
            _log.warning("%s: claim %s: %s", self.name, fault.claim, fault.message)

    def _is_unfinished(self, pod: Pod) -> bool:
        """Whether there is something to do about a pod that has ended: it is to go, or has left something."""
        own, uid = self.equipment, pod_key(pod)
        if uid in self._workers:
            return False  # it is seen to already
        remains = any(s.uid == uid for s in own.runtime.sandboxes()) or bool(own.book.of_pod(uid))
        return remains or pod.metadata.deletion_timestamp is not None

    def _keep(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=f"{name} of {self.name}")
        task.add_done_callback(_report)
        self._tasks.append(task)


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        _log.error("%s ended: %s", task.get_name(), task.exception(), exc_info=task.exception())


async def _cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel and wait; who is cancelled while waiting here hears of it."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _name(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"
