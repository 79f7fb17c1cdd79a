"""Agent of one node: reconciles the pods of the API with containers, claims and cgroups. START HERE.

All pods of the node are listed once. Pods that were admitted before a restart come first, in their recorded
order; then the others pass admission against the node's own ledger (`admission`). An admitted pod is
checkpointed before any work is done for it; then its own pod worker prepares its claims, runs its containers
and reports its status (`pods.worker`). A terminated pod releases its resources once none of its containers
runs.

Guarantees that pods which the runtime has and the API does not are stopped and cleaned up, including their
claims; that neither an unreachable API server nor a missing driver stops the agent; and that stopping the
agent stops no container.

KEP-5517, "Kubelet Admission Control", and KEP-3695 (docs/spec/keps.md).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.kept import is_kept
from plimsoll.common.tasks import at_most, cancel_tasks
from plimsoll.errors import ConfigError
from plimsoll.ledger.fit import PodAdmitResult
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.ledger.qos import BURSTABLE, GUARANTEED
from plimsoll.node.admission.admission_handler import is_terminal
from plimsoll.node.admission.preemption import CONDITION_REASON, MESSAGE, REASON
from plimsoll.node.cgroups.values import CgroupFault
from plimsoll.node.components import Components
from plimsoll.node.containers import ContainerInfo
from plimsoll.node.eviction.manager import PodEviction, admit_under_pressure
from plimsoll.node.housekeeping import HOUSEKEEPING_SECONDS, Housekeeping
from plimsoll.node.machine.machine import available_to_pods
from plimsoll.node.pods.pod_state import TerminationRequest
from plimsoll.node.pods.reported_containers import is_ending, is_running, reported_containers
from plimsoll.node.pods.steps import sandbox_spec
from plimsoll.node.pods.worker import PodWorker, reject
from plimsoll.node.pods.writer import WARNING
from plimsoll.node.runtime.simulated import SimulatedRuntime

_log = logging.getLogger("plimsoll.node")

#: The kubelet's reason for a pod whose admission check failed with an error.
_UNEXPECTED = "UnexpectedAdmissionError"
#: Time a critical pod waits for its preemption victims to terminate (seconds).
_PREEMPTION_SECONDS = 120.0


class Agent:
    """Agent of one node."""

    def __init__(
        self,
        components: Components,
        *,
        housekeeping_seconds: float = HOUSEKEEPING_SECONDS,
        preemption_seconds: float = _PREEMPTION_SECONDS,
    ) -> None:
        self.components = components
        self.status_reporter = components.status_reporter
        self.admission_handler = components.admission_handler
        self.name = components.status_reporter.name
        self._preemption_seconds = preemption_seconds
        self._pods: dict[str, Pod] = {}
        self.workers: dict[str, PodWorker] = {}
        self._admission_queue: asyncio.Queue[Pod] = asyncio.Queue()
        self.termination_tasks: dict[str, asyncio.Task[None]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._is_stopping = False
        self._qos_cgroups_changed = asyncio.Event()
        self._housekeeping = Housekeeping(
            components, self._pods, self.workers, running=self.running, interval=housekeeping_seconds
        )

    # -- lifecycle

    async def start(self) -> None:
        """Adopt running containers, open the sockets and start registering; pods arrive by `pods_listed`."""
        components = self.components
        try:
            for fault in await asyncio.to_thread(self._set_up_root):
                _log.warning("%s: %s", self.name, fault)
            if not components.cgroups.lost():
                # Nothing below the root is touched before it is certain that no other agent uses it.
                problem = await asyncio.to_thread(components.mark.take, components.cgroups.root_directories())
                if problem:
                    raise ConfigError(f"{problem}; stop it, or choose another root with --cgroup-root")
            components.claim_cache.on_release = self._on_claims_released
            await components.runtime.start(self._on_container_changed)
            components.status_reporter.set_runtime(
                f"{components.runtime.name}://{components.runtime.version}"
            )
            if components.nri is not None:
                await components.nri.start()
            if components.plugins is not None:
                components.plugins.on_change = self._notify_workers
                if components.slice_cleaner is not None:
                    components.plugins.on_gone = components.slice_cleaner.remove
                    self._start_task(
                        components.slice_cleaner.remove_orphaned(self._connected_drivers), "slice_cleaner"
                    )
                await components.plugins.start()
            if components.device_manager is not None:
                components.device_manager.on_change = self._on_devices_changed
                await components.device_manager.start()
            if components.pod_resources is not None:
                await components.pod_resources.start()
            if components.kubelet_api is not None:
                components.status_reporter.set_port(await components.kubelet_api.start(self))
        except BaseException:
            await self.stop()
            raise
        for finding in (
            *components.claim_cache.findings,
            *(components.device_manager.findings if components.device_manager is not None else ()),
            *components.admission_handler.findings,
            *components.runtime.findings,
        ):
            _log.warning("%s: %s", self.name, finding)
        self._start_task(components.status_reporter.run(), "node status")
        self._start_task(self._sync_qos_cgroups(), "QoS cgroups")
        if components.eviction_manager is not None:
            self._start_task(components.eviction_manager.run(), "pressure")
        if components.local_storage is not None:
            self._start_task(components.local_storage.run(), "local storage")
        if components.volumes is not None:
            self._start_task(components.volumes.run(), "volumes")
        if components.cgroup_watch is not None:
            self._start_task(components.cgroup_watch.run(), "cgroups")

    async def stop(self) -> None:
        """Stop in order; containers keep running and the Node object stays."""
        components = self.components
        self._is_stopping = True
        workers = list(self.workers.values())  # the tasks that are canceled next remove them from the dict
        await cancel_tasks([*self._tasks, *self.termination_tasks.values()])
        self._tasks.clear()
        self.termination_tasks.clear()
        await asyncio.gather(*(worker.stop() for worker in workers))
        self.workers.clear()
        await components.worker_deps.writer.stop()
        await components.worker_deps.events.stop()
        for part in (
            components.kubelet_api,
            components.pod_resources,
            components.device_manager,
            components.plugins,
            components.nri,
        ):
            if part is not None:
                await part.stop()
        await components.runtime.stop()
        components.mark.release()
        await components.admission_handler.flush()

    # -- pod events

    def pods(self) -> Sequence[Pod]:
        """Return the pods the agent knows, including terminated ones until they are deleted from the API."""
        return tuple(self._pods.values())

    def find_pod(self, uid: str) -> Pod | None:
        """Return a pod by its UID, with its allocated resources, which a pending resize does not change."""
        pod, resizer = self._pods.get(uid), self.components.worker_deps.resizer
        return pod if pod is None or resizer is None else resizer.allocated(pod)

    def running(self) -> Sequence[Pod]:
        """Return the pods that were admitted and have not terminated on this node."""
        return tuple(self._pods[uid] for uid in self.admission_handler.admitted_uids if uid in self._pods)

    def status_of(self, pod: Pod) -> Mapping[str, Any]:
        """Return the status of a pod as last reported: by its worker, or before that in the API."""
        worker = self.workers.get(pod_key(pod))
        return (worker.status if worker is not None else {}) or codec.to_tree(pod.status)

    def containers_of(self, uid: str) -> Sequence[ContainerInfo]:
        """Return the containers of a pod, oldest first."""
        return self.components.runtime.containers(uid)

    def describe_cgroups(self) -> dict[str, Any]:
        """Describe the applied cgroup settings, or those that would be applied if cgroups were available."""
        cgroups = self.components.cgroups
        return {
            "version": cgroups.version or "plan",
            "note": cgroups.note,
            "files": dict(cgroups.plan()),
            "faults": {file: str(fault) for file, fault in cgroups.unapplied().items()},
        }

    def cgroup_counts(self) -> tuple[int, int]:
        """Return how many times cgroups were found removed, and how many times they were created again."""
        watch = self.components.cgroup_watch
        return (watch.losses, watch.restores) if watch is not None else (0, 0)

    def is_active(self, pod: Pod) -> bool:
        """Return whether a pod is admitted, and so holds or will hold resources here."""
        return pod_key(pod) in self.admission_handler

    def pods_listed(self, pods: Sequence[Pod]) -> None:
        """Handle the initial list of the node's pods; those admitted before a restart come first."""
        for pod in pods:
            self._pods[pod_key(pod)] = pod
        runtime = self.components.runtime
        ending = self._adopt(runtime, pods) if isinstance(runtime, SimulatedRuntime) else ()
        others = self.admission_handler.restore(pods)
        for uid in self.admission_handler.admitted_uids:
            if uid not in ending:
                self._start_worker(self._pods[uid])
        for pod in pods:
            if is_terminal(pod) and self._needs_cleanup(pod):
                self._start_worker(pod)
        for pod in others:
            self._admission_queue.put_nowait(pod)
        self._start_task(self._admit_pods(), "admission")
        self._start_task(self._housekeeping.run(), "housekeeping")
        self.components.pod_resources_provider.invalidate()

    def _adopt(self, runtime: SimulatedRuntime, pods: Sequence[Pod]) -> set[str]:
        """Take over the pods that run according to the API; return those that are kept and would end.

        The latter stay as they are until they are kept no longer, or deleted by force.
        """
        deps, running = self.components.worker_deps, [pod for pod in pods if is_running(pod)]
        self.admission_handler.add_recovered(map(pod_key, running))
        for pod in running:
            plans = deps.plans.plan(pod)
            runtime.adopt(sandbox_spec(pod, plans), plans.containers, reported_containers(pod, deps.new_id))
        return {pod_key(pod) for pod in running if is_kept(pod.metadata) and is_ending(pod)}

    def pod_added(self, pod: Pod) -> None:
        self._pods[pod_key(pod)] = pod
        if not is_terminal(pod):
            self._admission_queue.put_nowait(pod)
        elif self._needs_cleanup(pod):
            self._start_worker(pod)
        self.components.pod_resources_provider.invalidate()

    def pod_changed(self, old: Pod, new: Pod) -> None:
        uid = pod_key(new)
        self._pods[uid] = new
        self.admission_handler.update(new)
        worker = self.workers.get(uid)
        if worker is not None:
            worker.update(new)
        elif (is_terminal(new) and self._needs_cleanup(new)) or (
            is_kept(old.metadata) and not is_kept(new.metadata) and self.is_active(new)
        ):
            self._start_worker(new)
        self.components.pod_resources_provider.invalidate()

    def pod_removed(self, old: Pod) -> None:
        """Handle a pod that was deleted from the API: stop its remaining containers."""
        uid = pod_key(old)
        self._pods.pop(uid, None)
        worker = self.workers.get(uid)
        if worker is not None:
            worker.mark_removed()
        else:
            self.admission_handler.remove(uid)
            self.components.worker_deps.writer.forget(uid)
        self.components.pod_resources_provider.invalidate()

    async def evict(self, pod: Pod, eviction: PodEviction) -> None:
        """Terminate a pod because the node is short of a resource, or the pod exceeds a limit."""
        reason = eviction.condition.reason if eviction.condition is not None else None
        request = TerminationRequest(eviction.reason, eviction.message, eviction.grace, reason or "")
        if self._terminate(pod, request):
            self.components.worker_deps.events.emit(
                pod, eviction.reason, eviction.message, type=WARNING, annotations=eviction.annotations
            )

    # -- admission

    async def _admit_pods(self) -> None:
        """Admit or reject pods one after the other, in the order they arrive."""
        while True:
            pod = self._pods.get(pod_key(await self._admission_queue.get()))
            if pod is None or is_terminal(pod) or pod_key(pod) in self.workers:
                continue
            try:
                await self._admit_or_reject(pod)
            except Exception as error:
                _log.exception(
                    "%s: pod %s cannot be checked for admission", self.name, pod.metadata.full_name
                )
                self._reject(pod, _UNEXPECTED, f"{type(error).__name__}: {error}")

    async def _admit_or_reject(self, pod: Pod) -> None:
        """Admit or reject a pod; it may change or be deleted while its victims terminate."""
        uid = pod_key(pod)
        result = self._admit(pod)
        ended = [] if result.admit else self._find_ended_pods()
        if ended and self.admission_handler.fits_without(ended, pod):
            # DIFF: a scheduler does not count pods in a terminal phase, whose containers may still be
            # stopping; a kubelet rejects the next pod then: test_a_pod_waits_for_one_that_has_failed.
            await self._await_release(ended)
            if uid not in self._pods:
                return
            pod = self._pods[uid]
            result = self._admit(pod)
        victims = () if result.admit else self.admission_handler.find_victims(pod)
        if victims:
            for victim in victims:
                self._terminate(victim, TerminationRequest(REASON, MESSAGE, None, CONDITION_REASON))
            await self._await_release(victims)
            if uid not in self._pods:
                return
            pod = self._pods[uid]
            result = self._admit(pod)
        if not result.admit:
            self._reject(pod, result.reason, result.message)
            return
        finding = await self.admission_handler.flush()
        if finding is not None:
            _log.warning("%s: %s", self.name, finding)
        if uid in self._pods:
            self._start_worker(self._pods[uid])
        else:
            self.admission_handler.remove(uid)
            await self.admission_handler.flush()

    def _reject(self, pod: Pod, reason: str, message: str) -> None:
        _log.info("%s: pod %s was rejected: %s", self.name, pod.metadata.full_name, message)
        self._track_worker(pod, reject(pod, reason, message, self.components.worker_deps))

    def _admit(self, pod: Pod) -> PodAdmitResult:
        """Admit a pod if no pressure condition forbids it and the ledger has room."""
        eviction_manager = self.components.eviction_manager
        if eviction_manager is not None:
            settings = self.components.cgroup_planner.settings
            result = admit_under_pressure(
                eviction_manager.conditions, pod, form=settings.form, claims_in_qos=settings.claims_raise_qos
            )
            if not result.admit:
                return result
        return self.admission_handler.admit(pod)

    def _find_ended_pods(self) -> list[Pod]:
        """Return the admitted pods whose phase in the API is terminal."""
        return [
            pod for pod in self.admission_handler.pods() if is_terminal(self._pods.get(pod_key(pod), pod))
        ]

    async def _await_release(self, pods: Sequence[Pod]) -> None:
        """Wait until terminating pods have released their resources, for a limited time."""
        workers = [self.workers[key] for key in map(pod_key, pods) if key in self.workers]
        async with at_most(
            self._preemption_seconds
        ):  # other pods wait behind this one: if it takes too long, it is rejected
            await asyncio.gather(*(worker.released.wait() for worker in workers))
        for worker in workers:
            if worker.released.is_set():
                self.admission_handler.remove(worker.uid)

    def _terminate(self, pod: Pod, request: TerminationRequest) -> bool:
        """Request the termination of a pod; return whether that is new."""
        worker = self.workers.get(pod_key(pod))
        return worker is not None and worker.terminate(request)

    # -- workers

    def _start_worker(self, pod: Pod) -> None:
        if self._is_stopping:
            return  # pods still arrive from the API: the next agent handles them
        self._track_worker(pod, PodWorker(pod, self.components.worker_deps).start())

    def _track_worker(self, pod: Pod, worker: PodWorker) -> None:
        uid = pod_key(pod)
        self.workers[uid] = worker
        self.termination_tasks[uid] = asyncio.create_task(
            self._await_termination(uid, worker), name=f"end of {pod.metadata.full_name}"
        )
        self._qos_cgroups_changed.set()

    async def _await_termination(self, uid: str, worker: PodWorker) -> None:
        """Free a pod's charges once no container runs, and drop its worker once all is cleaned up."""
        try:
            await worker.released.wait()
            self.admission_handler.remove(uid)
            self.components.pod_resources_provider.invalidate()
            self._qos_cgroups_changed.set()
            for other in order_deferred_resizes(self.workers.values()):
                other.notify()
            await self.admission_handler.flush()
            await worker.done.wait()
        finally:
            if self.workers.get(uid) is worker:
                del self.workers[uid]
            self.termination_tasks.pop(uid, None)

    def _on_container_changed(self, uid: str) -> None:
        """Handle a change of a container in the runtime."""
        self.components.pod_resources_provider.invalidate()
        worker = self.workers.get(uid)
        if worker is not None:
            worker.notify()

    def _connected_drivers(self) -> set[str]:
        """Return the names of the drivers that are connected."""
        plugins = self.components.plugins
        return {each.name for each in plugins.drivers() if each.connected} if plugins is not None else set()

    def _on_claims_released(self, uids: frozenset[str]) -> None:
        """Let workers whose claims wait for the devices of unprepared claims retry without back-off."""
        for worker in self.workers.values():
            worker.claims_released(uids)

    def _on_devices_changed(self) -> None:
        """Handle devices of device plugins that were added, removed or released, or changed their health."""
        assert self.components.device_manager is not None
        self.status_reporter.set_plugin_resources(self.components.device_manager.resources())
        self.components.pod_resources_provider.invalidate()
        for worker in self.workers.values():
            worker.devices_changed()

    def _notify_workers(self) -> None:
        self._housekeeping.on_drivers_changed()
        for worker in self.workers.values():
            worker.notify()

    # -- cgroups and cleanup

    def _set_up_root(self) -> tuple[CgroupFault, ...]:
        """Create the root cgroup and the QoS cgroups, limited to what the machine leaves for pods."""
        components = self.components
        limits = components.cgroup_planner.root(
            available_to_pods(components.status_reporter.machine, components.status_reporter.reservations)
        )
        return components.cgroups.set_up(limits)

    async def restore_root(self) -> tuple[CgroupFault, ...]:
        """Create the root cgroup and the QoS cgroups again while the agent runs."""
        faults = await asyncio.to_thread(self._set_up_root)
        plan = self.components.cgroup_planner.tiers(self.running())
        return (*faults, *await asyncio.to_thread(self.components.cgroups.apply_tiers, plan))

    async def _sync_qos_cgroups(self) -> None:
        """Keep the QoS cgroups in line with the running pods."""
        components = self.components
        while True:
            await self._qos_cgroups_changed.wait()
            self._qos_cgroups_changed.clear()
            try:
                plan = components.cgroup_planner.tiers(self.running())
                for fault in await asyncio.to_thread(components.cgroups.apply_tiers, plan):
                    _log.debug("%s: %s", self.name, fault)
            except Exception:
                _log.exception("%s: QoS cgroups were not updated", self.name)

    async def clean_up_orphans(self) -> None:
        """Clean up what belongs to deleted pods at once, without waiting for the next interval."""
        await self._housekeeping.clean_up_orphans()

    def _needs_cleanup(self, pod: Pod) -> bool:
        """Return whether a terminated pod still needs work: it is being deleted, or left something behind."""
        components, uid = self.components, pod_key(pod)
        if uid in self.workers:
            return False  # already handled
        remains = any(s.uid == uid for s in components.runtime.sandboxes()) or bool(
            components.claim_cache.claims_of_pod(uid)
        )
        return remains or pod.metadata.deletion_timestamp is not None

    def _start_task(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=f"{name} of {self.name}")
        task.add_done_callback(_log_task_failure)
        self._tasks.append(task)


def _log_task_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        _log.error("%s ended: %s", task.get_name(), task.exception(), exc_info=task.exception())


def order_deferred_resizes(workers: Iterable[PodWorker]) -> list[PodWorker]:
    """Return the pods with a deferred resize in the order in which they are checked again, as a kubelet does:
    by priority, then by QoS class, the oldest deferral first.
    """
    ranks = {GUARANTEED: 0, BURSTABLE: 1}

    def rank(worker: PodWorker) -> tuple[int, int, float]:
        pod = worker.pod
        return -pod.priority, ranks.get(pod.status.qos_class, len(ranks)), worker.deferred_since or 0.0

    return sorted((worker for worker in workers if worker.deferred_since is not None), key=rank)
