"""A container runtime as NRI plugins see one: messages over a socket, no processes.

It keeps what each container may run on, and does with answers what real runtimes do
(docs/spec/node-protocols.md, "NRI"): one event at a time, changes in answers are applied and failures among
them passed over, a plugin that goes away is gone without, a failed creation is undone by Stop and Remove.
Whatever must never happen, in no order of events, is noted in `wrongs` when it does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from plimsoll.api.cpuset import CpuSet
from plimsoll.common.tasks import cancel_tasks
from plimsoll.protocols.messages import nri
from plimsoll.protocols.mux import PLUGIN_SERVICE, RUNTIME_SERVICE, Mux
from plimsoll.protocols.nri.events import NOTIFICATIONS, PLUGIN, RUNTIME, NriEvent
from plimsoll.protocols.ttrpc import UNKNOWN, TtrpcClient, TtrpcFault, TtrpcServer
from tests.waiting import DEADLINE

CREATED: Any = 1
RUNNING: Any = 3
ENV = "DRA_CPUSET_"


class RuntimeVersion(Enum):
    """Runtime version: its name, its release, and the NRI version it reports."""

    OLD = ("cri-o", "1.30.0", "")  # StateChange, nothing at any time
    MIDDLE = ("containerd", "v2.3.4", "v0.12.0")  # calls of their own; changes at any time may lock it up
    NEW = ("containerd", "v2.4.0", "v0.12.1")  # changes at any time

    @property
    def own_calls(self) -> bool:
        return self is not RuntimeVersion.OLD

    @property
    def pushes(self) -> bool:
        return self is RuntimeVersion.NEW


@dataclass
class FakeContainer:
    """A container. Its `cpus` are what its cgroup was set to, empty for never. `created`: it can be changed.

    `unseen`: it was being made when a plugin came, which runtimes do not report. No plugin can know.
    `astray`: a change in an answer was passed over, of which no plugin is notified.
    """

    id: str
    pod: str
    env: tuple[str, ...] = ()
    cpus: str = ""
    created: bool = False
    started: bool = False
    quota: int = 0
    unseen: bool = False
    astray: bool = False

    @property
    def env_claims(self) -> dict[str, set[int]]:
        """Return the CPUs passed to the container, by claim."""
        found = {}
        for entry in self.env:
            name, _, value = entry.partition("=")
            if name.startswith(ENV):
                found[name.removeprefix(ENV)] = set(CpuSet.parse(value))
        return found


@dataclass
class Peer:
    """Connected plugin."""

    mux: Mux
    client: TtrpcClient
    mask: int = 0
    ready: bool = False
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def wants(self, event: NriEvent) -> bool:
        return self.ready and bool(self.mask & event.bit)


class Runtime:
    """Containers by id, pods by name. `online` are the CPUs that the kernel would let be set."""

    def __init__(self, path: Path, age: RuntimeVersion, online: Callable[[], set[int]]) -> None:
        self.path = path
        self.age = age
        self.online = online
        self.pods: set[str] = set()
        self.boxes: dict[str, FakeContainer] = {}
        self.peers: list[Peer] = []
        self.wrongs: list[str] = []
        #: How it behaves: changes fail (all, or of some), take long, answers' changes get lost, parts.
        self.refuses = False
        self.failing: set[str] = set()
        self.slow = 0.0
        self.forgets = False
        self.parts = 100
        #: How many answers with changes containers have been given.
        self.answers = 0
        self.synchronized = 0
        #: CPUs passed to containers, as far as the last synchronization reported them.
        self.env_claims: list[dict[str, set[int]]] = []
        #: Whether changes of plugins wait for events under way, and whether creation stops before validation.
        self.orderly = True
        self._turn = asyncio.Lock()
        self._listener: asyncio.Server | None = None

    # -- connections

    @property
    def up(self) -> bool:
        return self._listener is not None

    @property
    def linked(self) -> int:
        return sum(peer.ready for peer in self.peers)

    async def start(self) -> None:
        self.path.parent.mkdir(exist_ok=True)
        self.path.unlink(missing_ok=True)
        self._listener = await asyncio.start_unix_server(self._accept, str(self.path))

    async def stop(self) -> None:
        """Stop the runtime; its containers keep running."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        await self.hang_up()

    async def hang_up(self) -> None:
        peers, self.peers = self.peers, []
        for peer in peers:
            peer.ready = False
            peer.mux.end()
        for peer in peers:
            await cancel_tasks(peer.tasks)
            await peer.client.close()
            await peer.mux.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        mux = Mux(reader, writer)
        peer = Peer(mux, TtrpcClient(mux.open(PLUGIN_SERVICE)))
        self.peers.append(peer)

        async def register(request: nri.RegisterPluginRequest) -> None:
            peer.tasks.append(asyncio.create_task(self._greet(peer)))

        async def change(request: nri.UpdateContainersRequest) -> Any:
            return await self._on_update(request)

        calls: dict[str, Any] = {"RegisterPlugin": register, "UpdateContainers": change}
        server = TtrpcServer(mux.open(RUNTIME_SERVICE), RUNTIME, calls)
        try:
            await mux.wait_closed()
        finally:
            peer.ready = False
            if peer in self.peers:
                self.peers.remove(peer)
            await server.close()
            await mux.close()

    async def _greet(self, peer: Peer) -> None:
        name, release, version = self.age.value
        request: Any = nri.ConfigureRequest(
            runtime_name=name, runtime_version=release, NRI_version=version, request_timeout=2000
        )
        answer = await self._call(peer, "Configure", request)
        if isinstance(answer, TtrpcFault):
            return
        peer.mask = answer.events
        async with self._turn:
            for box in self.boxes.values():
                box.unseen, box.astray = not box.created, False
            self.env_claims = [box.env_claims for box in self.boxes.values() if box.created]
            pods = [self.sandbox(name) for name in sorted(self.pods)]
            boxes = [self.message(box) for box in self.boxes.values() if box.created]
            whole: list[Any] = [*pods, *boxes]
            for start in range(0, max(len(whole), 1), self.parts):
                part = whole[start : start + self.parts]
                more = start + self.parts < len(whole)
                request = nri.SynchronizeRequest(
                    pods=[one for one in part if isinstance(one, nri.PodSandbox)],
                    containers=[one for one in part if isinstance(one, nri.Container)],
                    more=more,
                )
                answer = await self._call(peer, "Synchronize", request)
                if isinstance(answer, TtrpcFault):
                    return
            peer.ready = True
            self.synchronized += 1
            self._apply(answer.update)
            self.answers += 1

    async def _call(self, peer: Peer, method: str, request: Any) -> Any:
        answer = await peer.client.call(PLUGIN.methods_by_name[method], request, timeout=DEADLINE)
        if isinstance(answer, TtrpcFault) and answer.fatal:
            if answer.kind == "timeout":
                self.wrongs.append(f"{method} was not answered")
            peer.ready = False
        return answer

    # -- messages

    def sandbox(self, pod: str) -> nri.PodSandbox:
        return nri.PodSandbox(id=f"sb-{pod}", uid=f"uid-{pod}", name=pod, namespace="default")

    def message(self, box: FakeContainer) -> nri.Container:
        message = nri.Container(
            id=box.id,
            name=box.id,
            pod_sandbox_id=f"sb-{box.pod}",
            env=["PATH=/bin", *box.env],
            state=RUNNING if box.started else CREATED,
        )
        if box.cpus:
            message.linux.resources.cpu.cpus = box.cpus
        if box.quota:
            message.linux.resources.cpu.quota.value = box.quota
        return message

    # -- plugin requests

    async def _on_update(self, request: nri.UpdateContainersRequest) -> Any:
        if not self.age.pushes:
            self.wrongs.append(f"a runtime that may lock up was asked to change containers: {request}")
        if self.slow:
            await asyncio.sleep(self.slow)
        if not self.orderly:
            return self._push(request)
        async with self._turn:
            return self._push(request)

    def _push(self, request: nri.UpdateContainersRequest) -> Any:
        if self.refuses:
            return TtrpcFault(UNKNOWN, "the runtime is busy with something else")
        failed = self._apply(request.update, env_claims=True)
        return nri.UpdateContainersResponse(failed=failed)

    def _apply(self, updates: Iterable[nri.ContainerUpdate], *, env_claims: bool = False) -> list[Any]:
        """Update containers as the kernel allows; unknown containers are ignored."""
        failed = []
        for update in updates:
            cpus = update.linux.resources.cpu.cpus
            if not cpus:
                self.wrongs.append(f"an empty set for {update.container_id}")
                continue
            box = self.boxes.get(update.container_id)
            if box is None or not box.created:
                continue
            offline_allocated = self.forgets and not env_claims
            wrong = self.refuses or box.id in self.failing or not self._settable(cpus)
            box.astray = offline_allocated or wrong
            if box.astray:
                failed.append(update)
                continue
            self._set(box, update.linux.resources)
        return failed

    def _settable(self, cpus: str) -> bool:
        return set(CpuSet.parse(cpus)) <= self.online()

    def _set(self, box: FakeContainer, resources: nri.LinuxResources) -> None:
        box.cpus = resources.cpu.cpus or box.cpus
        if resources.cpu.HasField("quota"):
            box.quota = resources.cpu.quota.value

    # -- events

    async def _container_changed(self, event: NriEvent, pod: str, box: FakeContainer | None = None) -> None:
        assert event in NOTIFICATIONS
        for peer in [peer for peer in self.peers if peer.wants(event)]:
            if self.age.own_calls:
                request = event.request(pod=self.sandbox(pod))
                if box is not None:
                    request.container.CopyFrom(self.message(box))
                answer = await self._call(peer, event.method, request)
            else:
                old = nri.StateChangeEvent(event=event.value, pod=self.sandbox(pod))  # type: ignore[arg-type]
                if box is not None:
                    old.container.CopyFrom(self.message(box))
                answer = await self._call(peer, "StateChange", old)
            if isinstance(answer, TtrpcFault) and not answer.fatal:
                self.wrongs.append(f"{event.method}: {answer.message}")

    async def create(self, id: str, pod: str, env: Iterable[str] = (), *, cpus: str = "") -> str:
        """Create and start a container; return the error, or an empty text."""
        return await self.begin(id, pod, env, cpus=cpus) or await self.finish(id)

    async def begin(self, id: str, pod: str, env: Iterable[str] = (), *, cpus: str = "") -> str:
        """Run only the plugin calls of a creation."""
        async with self._turn:
            if pod not in self.pods:
                self.pods.add(pod)
                await self._container_changed(NriEvent.RUN_POD_SANDBOX, pod)
            box = FakeContainer(id, pod, tuple(env), cpus)
            problem, failed = await self._ask(box)
            if problem:
                await self._restore_checkpoint(box)
                return problem
            self.boxes[id] = box
            box.unseen = not self.linked
            self._look(box, failed)
            return ""

    async def _ask(self, box: FakeContainer) -> tuple[str, set[str]]:
        """Return the plugins' responses to a new container: why it fails, and others that could not be
        updated.
        """
        asked = [peer for peer in self.peers if peer.ready]
        setter: Peer | None = None
        failed: set[str] = set()
        for peer in asked:
            request: Any = nri.CreateContainerRequest(pod=self.sandbox(box.pod), container=self.message(box))
            answer = await self._call(peer, "CreateContainer", request)
            if isinstance(answer, TtrpcFault):
                if answer.fatal:
                    if peer.mask & NriEvent.VALIDATE_CONTAINER_ADJUSTMENT.bit:
                        return "validator plugin is gone", failed
                    continue
                return answer.message, failed
            if answer.HasField("adjust"):
                assigned = answer.adjust.linux.resources.cpu.cpus
                if not assigned:
                    self.wrongs.append(f"an empty set for new container {box.id}")
                if setter is not None:
                    return "both tried to set CPUSetCPUs", failed
                setter = peer
                if not self._settable(assigned):
                    return f"the kernel does not set {assigned}", failed
                self._set(box, answer.adjust.linux.resources)
            validation = nri.ValidateContainerAdjustmentRequest(
                pod=self.sandbox(box.pod), container=self.message(box), adjust=answer.adjust
            )
            failed |= {update.container_id for update in self._apply(answer.update)}
            self.answers += 1
            if peer.mask & NriEvent.VALIDATE_CONTAINER_ADJUSTMENT.bit:
                decision = await self._call(peer, "ValidateContainerAdjustment", validation)
                if isinstance(decision, TtrpcFault):
                    return "validator plugin is gone", failed
                if decision.reject:
                    return f"validation: {decision.reason}", failed
        return "", failed

    def _look(self, box: FakeContainer, failed: set[str]) -> None:
        """Check that a container with claims is alone on their CPUs from the start."""
        if not self.linked:
            return
        for other in self.boxes.values():
            if other is box:
                continue
            alone = [cpus for uid, cpus in box.env_claims.items() if uid not in other.env_claims]
            own = set().union(*alone) & self.online()
            # One that is being made cannot be changed yet; where changes are possible it is, when it is made.
            if other.unseen or (not other.created and self.age.pushes):
                continue
            if other.id in failed or self.is_stubborn(other.id):
                continue
            both = own & self.cpus(other.id)
            if both:
                self.wrongs.append(f"{box.id} was made with {sorted(own)}, {other.id} is on {sorted(both)}")

    async def finish(self, id: str) -> str:
        """Finish the creation and start the container."""
        async with self._turn:
            box = self.boxes[id]
            box.created = True
            box.unseen = not self.linked
            await self._container_changed(NriEvent.POST_CREATE_CONTAINER, box.pod, box)
        async with self._turn:
            if id in self.boxes:
                box.started = True
                await self._container_changed(NriEvent.POST_START_CONTAINER, box.pod, box)
        return ""

    async def _restore_checkpoint(self, box: FakeContainer) -> None:
        await self._stop(box)
        await self._container_changed(NriEvent.REMOVE_CONTAINER, box.pod, box)

    async def update(self, id: str, *, cpus: str = "", quota: int = 0) -> str:
        """Update a container as a kubelet does."""
        async with self._turn:
            box = self.boxes[id]
            desired = nri.LinuxResources(cpu=nri.LinuxCPU(cpus=cpus))
            if quota:
                desired.cpu.quota.value = quota
            for peer in [peer for peer in self.peers if peer.ready]:
                request = nri.UpdateContainerRequest(
                    pod=self.sandbox(box.pod), container=self.message(box), linux_resources=desired
                )
                answer = await self._call(peer, "UpdateContainer", request)
                if isinstance(answer, TtrpcFault):
                    if answer.fatal:
                        continue
                    return answer.message
                own = [one for one in answer.update if one.container_id == id]
                for one in own:
                    if not one.linux.resources.cpu.cpus:
                        self.wrongs.append(f"an empty set for {id}")
                    desired.MergeFrom(one.linux.resources)
                self._apply(one for one in answer.update if one.container_id != id)
                self.answers += 1
            if (
                self.refuses
                or id in self.failing
                or (desired.cpu.cpus and not self._settable(desired.cpu.cpus))
            ):
                box.astray = True
                return "the kernel does not set that"
            self._set(box, desired)
            return ""

    async def end(self, id: str) -> None:
        """Stop and remove a container."""
        async with self._turn:
            box = self.boxes.pop(id)
            await self._stop(box)
            await self._container_changed(NriEvent.REMOVE_CONTAINER, box.pod, box)

    async def _stop(self, box: FakeContainer) -> None:
        for peer in [peer for peer in self.peers if peer.ready]:
            request = nri.StopContainerRequest(pod=self.sandbox(box.pod), container=self.message(box))
            answer = await self._call(peer, "StopContainer", request)
            if not isinstance(answer, TtrpcFault):
                self._apply(answer.update)
                self.answers += 1
            elif not answer.fatal:
                self.wrongs.append(f"StopContainer: {answer.message}")

    async def remove_pod(self, pod: str) -> None:
        for id in [box.id for box in self.boxes.values() if box.pod == pod]:
            await self.end(id)
        async with self._turn:
            if pod in self.pods:
                self.pods.discard(pod)
                await self._container_changed(NriEvent.REMOVE_POD_SANDBOX, pod)

    # -- state

    def is_stubborn(self, id: str) -> bool:
        """Return whether updates of a container may fail, or be late."""
        return self.refuses or self.forgets or id in self.failing or self.slow > 0

    def cpus(self, id: str) -> set[int]:
        """Return the effective CPUs of a container: the kernel leaves out offline CPUs, but never all."""
        box = self.boxes[id]
        return set(CpuSet.parse(box.cpus)) & self.online() or self.online()
