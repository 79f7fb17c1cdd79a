"""Scriptable node with an API server, a runtime and drivers, and a log of everything they did."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.client import Client
from plimsoll.client.endpoints import PODS, RESOURCE_CLAIMS
from plimsoll.client.http import HttpTransport
from plimsoll.client.transport import Reply, Request, ResponseStream
from plimsoll.errors import ApiError, UnreachableError
from plimsoll.node.cgroup_planner import CgroupPlanner
from plimsoll.node.cgroup_plans import CgroupSettings
from plimsoll.node.claim_info import ClaimRef, Devices, DriverFault, PreparedDevice
from plimsoll.node.claims.claim_info_cache import ClaimInfoCache
from plimsoll.node.containers import ContainerInfo, ContainerPhase, ContainerSpec, RuntimeFault, SandboxSpec
from plimsoll.node.pods.backoff import PodTiming
from plimsoll.node.pods.dependencies import WorkerDependencies
from plimsoll.node.pods.downward_fields import DownwardNodeInfo
from plimsoll.node.pods.worker import PodWorker
from plimsoll.node.pods.writer import PodEvents, StatusWriter
from plimsoll.node.runtime.simulated import SimulatedRuntime
from plimsoll.up.local_cluster import LocalCluster

DRIVER = "gpu.example.com"
#: Everything quick; real crash loops are tried in virtual time.
QUICK = PodTiming(
    crash_first=0.05,
    crash_max=0.2,
    retry_first=0.02,
    retry_max=0.05,
    grace_min=0.05,
    grace_removed=0.05,
    grace_default=0.3,
    reading=2.0,
)
_names = itertools.count()


@dataclass
class Log:
    """Log of what happened, in order."""

    lines: list[str] = field(default_factory=list)
    #: Called with every line; raises to crash the agent there.
    hook: Callable[[str], None] = lambda line: None

    def add(self, line: str) -> None:
        self.lines.append(line)
        self.hook(line)

    def count(self, prefix: str) -> int:
        return sum(line.startswith(prefix) for line in self.lines)

    def place(self, prefix: str) -> int:
        return next(i for i, line in enumerate(self.lines) if line.startswith(prefix))


@dataclass
class Machine(SimulatedRuntime):
    """Runtime that outlives its agents. `deaf` containers ignore the stop signal until they are killed."""

    log: Log = field(default_factory=Log)
    deaf: set[str] = field(default_factory=set)
    faults: dict[str, list[RuntimeFault]] = field(default_factory=dict)  #: step -> what it answers first
    held: dict[str, asyncio.Event] = field(default_factory=dict)  #: step -> what it waits for

    def __post_init__(self) -> None:
        SimulatedRuntime.__init__(self)

    async def _step(self, step: str) -> RuntimeFault | None:
        self.log.add(step)
        gate = self.held.get(step.split(maxsplit=1)[0])
        if gate is not None:
            await gate.wait()
        answers = self.faults.get(step.split(maxsplit=1)[0])
        return answers.pop(0) if answers else None

    async def run_sandbox(self, spec: SandboxSpec) -> RuntimeFault | None:
        return await self._step("sandbox") or await super().run_sandbox(spec)

    async def stop_sandbox(self, uid: str) -> None:
        if any(each.uid == uid and each.running for each in self.sandboxes()):
            self.log.add("stop-sandbox")
        await super().stop_sandbox(uid)

    async def remove_sandbox(self, uid: str) -> None:
        self.log.add("remove-sandbox")
        await super().remove_sandbox(uid)

    async def create(self, spec: ContainerSpec) -> RuntimeFault | None:
        running = [s.name for s in self.containers(spec.pod) if s.phase is ContainerPhase.RUNNING]
        assert spec.name not in running, "two attempts at once"
        fault = await self._step(f"create {spec.name} {spec.attempt} {' '.join(spec.cdi)}".strip())
        return fault or await super().create(replace(spec, cdi=()))  # there are no CDI files here

    async def start_container(self, id: str) -> RuntimeFault | None:
        name = next((s.name for s in self.containers() if s.id == id), "?")
        return await self._step(f"start {name}") or await super().start_container(id)

    async def stop_container(self, id: str, grace: float) -> None:
        state = next(s for s in self.containers() if s.id == id)
        self.log.add(f"stop {state.name}")
        if state.name in self.deaf:
            await asyncio.sleep(grace)
            await self._end(id, 137)
        else:
            await self._end(id, 0)
        self.log.add(f"stopped {state.name}")

    async def crash(self, uid: str, name: str, code: int) -> None:
        """Let a container exit."""
        state = self.latest(uid, name)
        await self._end(state.id, code)
        self.log.add(f"crashed {name}")
        if self._changed is not None:
            self._changed(uid)

    def latest(self, uid: str, name: str) -> ContainerInfo:
        return [s for s in self.containers(uid) if s.name == name][-1]


@dataclass
class FakeGpuDriver:
    """Driver that prepares what it is asked for, unless it is scripted otherwise."""

    log: Log
    faults: list[str] = field(default_factory=list)
    release_faults: list[str] = field(default_factory=list)
    gate: asyncio.Event | None = None
    held: set[str] = field(default_factory=set)
    is_used: Callable[[], bool] = lambda: False

    async def prepare(self, driver: str, claims: Sequence[ClaimRef]) -> Mapping[str, Devices | DriverFault]:
        self.log.add("prepare")
        if self.gate is not None:
            await self.gate.wait()
        if self.faults:
            fault = DriverFault(driver, "refused", self.faults.pop(0))
            return {claim.uid: fault for claim in claims}
        self.held |= {claim.uid for claim in claims}
        self.log.add("prepared")
        return {c.uid: (PreparedDevice("pool", "gpu-0", ("gpu",), (f"{driver}/gpu=0",)),) for c in claims}

    async def unprepare(self, driver: str, claims: Sequence[ClaimRef]) -> Mapping[str, DriverFault | None]:
        assert not self.is_used(), "a claim is released while a container runs"
        self.log.add("unprepare")
        if self.release_faults:
            fault = DriverFault(driver, "refused", self.release_faults.pop(0))
            return {claim.uid: fault for claim in claims}
        self.held -= {claim.uid for claim in claims}
        self.log.add("unprepared")
        return {claim.uid: None for claim in claims}


@dataclass
class ApiConnection:
    """Connection to the API server, which can be cut."""

    inner: HttpTransport
    cut: bool = False

    async def send(self, request: Request) -> Reply:
        if self.cut:
            raise UnreachableError("the line is cut", sent=False)
        return await self.inner.send(request)

    def stream(self, request: Request) -> AbstractAsyncContextManager[ResponseStream]:
        return self.inner.stream(request)

    async def renew(self) -> bool:
        return await self.inner.renew()

    async def close(self) -> None:
        await self.inner.close()


@dataclass
class Node:
    """Components of an agent, and one worker at a time."""

    client: Client
    line: ApiConnection
    admin: Client
    log: Log = field(default_factory=Log)
    worker: PodWorker | None = None
    name: str = ""
    serial: int = field(default_factory=_names.__next__)

    def __post_init__(self) -> None:
        self.machine = Machine(log=self.log)
        self.gpus = FakeGpuDriver(self.log, is_used=self._runs)
        self.claim_cache = ClaimInfoCache(self.gpus)
        self.watching: asyncio.Task[None] | None = None
        self.deps = self._parts()

    def _parts(self) -> WorkerDependencies:
        return WorkerDependencies(
            runtime=self.machine,
            claim_cache=self.claim_cache,
            plans=CgroupPlanner(CgroupSettings(memory_capacity=2**34)),
            objects=self.client,
            writer=StatusWriter(self.client, retry_first=0.02, retry_max=0.05),
            events=PodEvents(self.client, "n1"),
            timing=QUICK,
            facts=lambda: DownwardNodeInfo("n1", ("10.0.0.1",)),
        )

    # -- the API

    async def create(self, spec: Mapping[str, Any], **metadata: Any) -> Pod:
        self.name = f"pod-{next(_names)}"
        tree = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": self.name, "namespace": "default", **metadata},
            "spec": {"nodeName": "n1", **spec},
        }
        made = await self.admin.create(PODS, tree, "default")
        return codec.decode(codec.encode(made), Pod)

    async def create_claim(self, pod: Pod, name: str) -> None:
        """Create a claim that is allocated and reserved for a pod."""
        request = {"name": "gpu", "exactly": {"deviceClassName": "gpus"}}
        claim = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"devices": {"requests": [request]}},
        }
        made = await self.admin.create(RESOURCE_CLAIMS, claim, "default")
        device = {"request": "gpu", "driver": DRIVER, "pool": "pool", "device": "gpu-0"}
        user = {"resource": "pods", "name": pod.metadata.name, "uid": pod.metadata.uid}
        made["status"] = {"allocation": {"devices": {"results": [device]}}, "reservedFor": [user]}
        await self.admin.update(RESOURCE_CLAIMS, made, "default", subresource="status")

    async def get(self) -> dict[str, Any] | None:
        try:
            return await self.admin.get(PODS, self.name, "default")
        except ApiError as error:
            if error.code != 404:
                raise
            return None

    async def view(self) -> Pod:
        return codec.decode(codec.encode(await self.get()), Pod)

    async def status(self) -> dict[str, Any]:
        tree = await self.get()
        assert tree is not None
        found = tree.get("status", {})
        assert isinstance(found, dict)
        return found

    async def delete(self, grace: int | None = None) -> None:
        await self.admin.delete(PODS, self.name, "default", grace=grace)

    # -- the agent

    async def begin(self, pod: Pod) -> PodWorker:
        """Start a worker, and pass it the API's changes as long as the connection is not cut."""
        await self.machine.start(self._stirred)
        tree = await self.get()
        if tree is not None and tree["metadata"]["uid"] == pod.metadata.uid:
            pod = codec.decode(codec.encode(tree), Pod)
        self.worker = PodWorker(pod, self.deps).start()
        if tree is None:
            self.worker.mark_removed()
        self.watching = asyncio.create_task(self._watch(pod))
        return self.worker

    async def crash(self) -> None:
        """Let the agent crash; the machine keeps running."""
        assert self.watching is not None
        self.watching.cancel()
        await asyncio.gather(self.watching, return_exceptions=True)
        if self.worker is not None:
            await self.worker.stop()
        await self.deps.writer.stop()
        await self.deps.events.stop(0)
        await self.machine.stop()
        self.worker = None
        self.deps = self._parts()

    def _runs(self) -> bool:
        return any(state.phase is ContainerPhase.RUNNING for state in self.machine.containers())

    def forget(self) -> None:
        """Let the machine lose all containers, as after a reboot."""
        self.machine = self.deps.runtime = Machine(log=self.log)

    def kill(self) -> None:
        """Let the agent crash inside a step."""
        assert self.worker is not None
        assert self.watching is not None
        worker = self.worker
        for task in (self.watching, worker.task, worker.work, *worker.stopper.tasks):
            if task is not None:
                task.cancel()

    async def stop(self) -> None:
        if self.watching is not None:
            await self.crash()
        await self.deps.events.stop(0)

    def _stirred(self, uid: str) -> None:
        if self.worker is not None:
            self.worker.notify()

    async def _watch(self, pod: Pod) -> None:
        revision = ""
        while True:
            await asyncio.sleep(0.01)
            if self.line.cut or self.worker is None:
                continue
            tree = await self.get()
            if tree is None or tree["metadata"]["uid"] != pod.metadata.uid:
                self.worker.mark_removed()
                return
            if tree["metadata"]["resourceVersion"] != revision:
                revision = tree["metadata"]["resourceVersion"]
                self.worker.update(codec.decode(codec.encode(tree), Pod))


@asynccontextmanager
async def node_of(cluster: LocalCluster) -> AsyncIterator[Node]:
    line = ApiConnection(HttpTransport(cluster.config))
    async with Client.connect(cluster.config) as admin, Client(line, attempts=1) as client:
        node = Node(client, line, admin)
        try:
            yield node
        finally:
            await node.stop()
