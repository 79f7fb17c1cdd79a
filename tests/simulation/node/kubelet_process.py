"""Process of a kubelet: pods of the node, their admission and workers, and the product's claim manager.

Admission decides about pods in the order in which they arrive; those admitted before a restart come first,
then the others by age. The plugin manager, the claim info cache, its housekeeping, the writer of statuses and
the cleaner of slices are those of the node agent.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.client import Client
from plimsoll.client.endpoints import PODS
from plimsoll.client.informer import CallbackHandler, Informer
from plimsoll.node.claims.claim_info_cache import ClaimInfoCache
from plimsoll.node.components import Components
from plimsoll.node.housekeeping import Housekeeping
from plimsoll.node.layout import Layout
from plimsoll.node.plugins import PluginManager
from plimsoll.node.plugins.registration import PluginTiming
from plimsoll.node.pods.backoff import PodTiming
from plimsoll.node.pods.dependencies import WorkerDependencies
from plimsoll.node.pods.writer import StatusWriter
from plimsoll.node.slice_cleaner import SliceCleaner
from tests.simulation.loop import Process
from tests.simulation.node.admission import Rejection, check_fit, load_of
from tests.simulation.node.pod_worker import SimulatedPodWorker

if TYPE_CHECKING:
    from tests.simulation.node.kubelet import Kubelet

Tree = dict[str, Any]

_SCAN_SECONDS = 2.0
_TERMINAL = ("Succeeded", "Failed")


class KubeletPod(NamedTuple):
    """Pod as the API server sent it: for the simulation, and for the product's code."""

    tree: Tree
    view: Pod

    @property
    def uid(self) -> str:
        return str(self.tree["metadata"]["uid"])

    @property
    def is_terminal(self) -> bool:
        return self.tree["status"].get("phase") in _TERMINAL

    @property
    def is_deleted(self) -> bool:
        return bool(self.tree["metadata"].get("deletionTimestamp"))


def decode_pod(raw: bytes) -> KubeletPod:
    return KubeletPod(codec.decode_tree(raw), codec.decode(raw, Pod))


class KubeletProcess:
    """Kubelet from one start to its end."""

    def __init__(self, kubelet: Kubelet, process: Process) -> None:
        self.kubelet = kubelet
        self.node = kubelet.node
        self.process = process
        self.pods: dict[str, KubeletPod] = {}
        self.workers: dict[str, SimulatedPodWorker] = {}
        self._finished: dict[str, None] = {}

    async def run(self) -> None:
        node, kubelet = self.node, self.kubelet
        self.client = Client(node.network.transport(self.process, f"system:node:{node.name}"))
        layout = Layout(node.directory)
        times = PluginTiming(scan=_SCAN_SECONDS, call=kubelet.options.call_timeout)
        self.plugins = PluginManager(layout, times=times)
        self.cache = ClaimInfoCache.open(layout, self.plugins, boot=node.boot_id)
        for finding in self.cache.findings:
            node.history.note(self.process.name, "finding:", finding.what.replace(str(node.directory), ""))
        self.cache.on_release = self._on_claims_released
        self.writer = StatusWriter(self.client)
        self.deps = cast(
            WorkerDependencies,
            SimpleNamespace(
                claim_cache=self.cache,
                objects=self.client,
                timing=PodTiming(),
                devices=None,
                observe=lambda operation, seconds, failed: None,
            ),
        )
        self._housekeeping = Housekeeping(
            self._components(), self.pods, self.workers, running=self._admitted_pods
        )
        cleaner = SliceCleaner(self.client, node.name)
        self.plugins.on_change = self._housekeeping.on_drivers_changed
        self.plugins.on_gone = cleaner.remove
        await self.plugins.start()
        self.start_task(cleaner.remove_orphaned(self._connected_drivers))
        informer = Informer(self.client, PODS, decode_pod, fields=f"spec.nodeName={node.name}")
        self.start_task(informer.run())
        await informer.synced()
        self._pods_listed(informer.items())
        informer.add_handler(CallbackHandler(self._on_pod))
        self.start_task(self._housekeeping.run())

    def start_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task whose failure is an error of the simulation or the product."""
        task = asyncio.create_task(work)
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.node.report(f"{self.process.name}: {type(error).__name__}: {error}", error)

    def _connected_drivers(self) -> set[str]:
        return {each.name for each in self.plugins.drivers() if each.connected}

    # -- pods

    def _pods_listed(self, pods: list[KubeletPod]) -> None:
        kubelet = self.kubelet
        for pod in pods:
            self.pods[pod.uid] = pod
        for uid in list(self.node.ended):
            if uid not in self.pods:
                del self.node.ended[uid]
        for uid in list(kubelet.admitted):
            if uid not in self.pods:
                del kubelet.admitted[uid]
            else:
                self._start_worker(self.pods[uid])
        for pod in sorted(pods, key=_age):
            self._pod_added(pod)

    def _on_pod(self, old: KubeletPod | None, new: KubeletPod | None) -> None:
        if old is not None and (new is None or new.uid != old.uid):
            self._pod_removed(old)
            old = None
        if new is None:
            return
        self.pods[new.uid] = new
        worker = self.workers.get(new.uid)
        if worker is not None:
            worker.update(new)
        elif new.uid not in self._finished:
            self._pod_added(new)

    def _pod_added(self, pod: KubeletPod) -> None:
        if pod.uid in self.workers:
            return
        if not pod.is_terminal and not pod.is_deleted:
            self._admit(pod)
        elif pod.is_deleted or pod.uid in self.node.containers or self.cache.claims_of_pod(pod.uid):
            self._start_worker(pod)

    def _pod_removed(self, pod: KubeletPod) -> None:
        self.pods.pop(pod.uid, None)
        self._finished.pop(pod.uid, None)
        self.node.ended.pop(pod.uid, None)
        # A kubelet counts the pods of the API.
        self.kubelet.admitted.pop(pod.uid, None)
        worker = self.workers.get(pod.uid)
        if worker is not None:
            worker.mark_removed()
        else:
            self.writer.forget(pod.uid)

    def _admit(self, pod: KubeletPod) -> None:
        kubelet = self.kubelet
        load = load_of(pod.tree, counts_claims=kubelet.options.counts_claims)
        if reason := kubelet.options.rejects(pod.tree):
            rejection: Rejection | None = Rejection(reason, "the node rejects it")
        else:
            rejection = check_fit(load, kubelet.admitted.values(), kubelet.allocatable)
        name = pod.view.metadata.full_name
        if rejection is None:
            kubelet.admitted[pod.uid] = load
            self.node.history.note(self.process.name, "admits pod", name)
        else:
            self.node.history.note(self.process.name, "rejects pod", f"{name}: {rejection.message}")
        self._start_worker(pod, rejection)

    def _start_worker(self, pod: KubeletPod, rejection: Rejection | None = None) -> None:
        worker = self.workers[pod.uid] = SimulatedPodWorker(self, pod, rejection)
        self.start_task(self._run_worker(worker))

    async def _run_worker(self, worker: SimulatedPodWorker) -> None:
        await worker.run()
        uid = worker.uid
        del self.workers[uid]
        self._finished[uid] = None
        self.writer.forget(uid)

    def _on_claims_released(self, uids: frozenset[str]) -> None:
        for worker in self.workers.values():
            worker.claims_released(uids)

    # -- housekeeping

    def _admitted_pods(self) -> list[Pod]:
        return [self.pods[uid].view for uid in self.kubelet.admitted if uid in self.pods]

    def _components(self) -> Components:
        """Return what the housekeeping of the node agent uses of it."""

        async def stop_sandbox(uid: str) -> None:
            await asyncio.sleep(self.process.loop.dice.random())
            self.node.stop_containers(uid, self.process.name)

        async def do_nothing(*_: object) -> None:
            return None

        runtime = SimpleNamespace(
            sandboxes=lambda: [
                SimpleNamespace(uid=uid, name=each.name) for uid, each in self.node.containers.items()
            ],
            stop_sandbox=stop_sandbox,
            remove_sandbox=do_nothing,
        )
        return cast(
            Components,
            SimpleNamespace(
                status_reporter=SimpleNamespace(name=self.node.name),
                claim_cache=self.cache,
                runtime=runtime,
                device_manager=None,
                worker_deps=self.deps,
                cgroups=SimpleNamespace(pods=list),
                admission_handler=SimpleNamespace(flush=do_nothing),
            ),
        )

    def now(self) -> float:
        return time.time()


def _age(pod: KubeletPod) -> tuple[str, str, str]:
    meta = pod.tree["metadata"]
    return meta.get("creationTimestamp", ""), meta["namespace"], meta["name"]
