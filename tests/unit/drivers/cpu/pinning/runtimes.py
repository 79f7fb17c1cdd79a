"""Two runtimes for tests of pinning: the NRI server of the node agent, and a scripted one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from plimsoll.api.cpuset import CpuSet
from plimsoll.drivers.cpu.pinning.nri import NriEnforcer
from plimsoll.node.containers import ContainerInfo, ContainerPhase, RuntimeFault, SandboxSpec
from plimsoll.node.hooks import RuntimeContainer, RuntimeState
from plimsoll.node.nri import NriServer
from plimsoll.node.resources import LinuxResources
from plimsoll.protocols.messages import nri
from plimsoll.protocols.mux import PLUGIN_SERVICE, RUNTIME_SERVICE, Mux
from plimsoll.protocols.nri.events import PLUGIN, RUNTIME
from plimsoll.protocols.ttrpc import TtrpcClient, TtrpcFault, TtrpcServer
from tests.directories import short_directory
from tests.unit.drivers.cpu.pinning.builders import FakeCPUState, settings
from tests.unit.node.nri.fixtures import POD, SPEC, state
from tests.waiting import DEADLINE, until


class OwnRuntime:
    """Containers behind the node agent's NRI server, without processes: only their cpusets are kept."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.socket = path
        self.options = options
        self.pods: dict[str, SandboxSpec] = {}
        self.held: dict[str, RuntimeContainer] = {}
        #: Containers whose changes fail, and all changes in order.
        self.broken: set[str] = set()
        self.log: list[tuple[str, str]] = []
        self.server: NriServer

    async def start(self) -> None:
        self.server = NriServer(self.socket, "plimsoll", "1.0", self._inventory, self._apply, **self.options)
        await self.server.start()

    async def stop(self) -> None:
        await self.server.stop()

    def _inventory(self) -> RuntimeState:
        return RuntimeState(tuple(self.pods.values()), tuple(self.held.values()))

    async def _apply(self, id: str, resources: LinuxResources) -> RuntimeFault | None:
        if id in self.broken:
            return RuntimeFault("Broken", "cannot be changed")
        self.put(id, resources)
        return None

    def put(self, id: str, resources: LinuxResources) -> None:
        if id in self.held:
            self.log.append((id, resources.cpus))
            self.held[id] = replace(self.held[id], resources=self.held[id].resources.merged(resources))

    def cpus(self, id: str) -> str:
        return self.held[id].resources.cpus

    def quota(self, id: str) -> int | None:
        return self.held[id].resources.cpu_quota

    def pod(self, name: str) -> SandboxSpec:
        return replace(POD, uid=f"uid-{name}", name=name)

    async def add(self, id: str, env: Iterable[str] = (), *, pod: str = "", **resources: Any) -> str:
        """Create and start a container as a runtime does; return the error, or an empty text."""
        created = await self.begin(id, env, pod=pod, **resources)
        return created or await self.finish(id)

    async def begin(self, id: str, env: Iterable[str] = (), *, pod: str = "", **resources: Any) -> str:
        """Run only the plugin calls of a creation."""
        sandbox = self.pod(pod or id)
        if sandbox.uid not in self.pods:
            self.pods[sandbox.uid] = sandbox
            await self.server.sandbox_run(sandbox)
        spec = replace(
            SPEC, id=id, name=id, pod=sandbox.uid, env=dict(entry.partition("=")[::2] for entry in env)
        )
        own = LinuxResources(**resources)
        adjusted = await self.server.create(sandbox, spec, own)
        if isinstance(adjusted, RuntimeFault):
            return adjusted.message
        self.making = (spec, adjusted)
        return ""

    async def finish(self, id: str) -> str:
        spec, adjusted = self.making
        self.held[id] = RuntimeContainer(spec, state(spec), adjusted.resources)
        sandbox = self.pods[spec.pod]
        await self.server.created(sandbox, self._state(id))
        await self.server.starting(sandbox, self._state(id))
        await self.server.started(sandbox, self._state(id))
        return ""

    def _state(self, id: str) -> ContainerInfo:
        return self.held[id].state

    def _pod_of(self, id: str) -> SandboxSpec:
        return self.pods[self.held[id].spec.pod]

    async def update(self, id: str, **resources: Any) -> str:
        """Update a container as a kubelet does."""
        answer = await self.server.update(self._pod_of(id), self._state(id), LinuxResources(**resources))
        if isinstance(answer, RuntimeFault):
            return answer.message
        self.put(id, answer.resources)
        return ""

    async def end(self, id: str, *, remove: bool = True) -> None:
        sandbox, last = self._pod_of(id), replace(self._state(id), phase=ContainerPhase.EXITED)
        held = self.held.pop(id)
        await self.server.stopped(sandbox, last)
        if remove:
            await self.server.removed(sandbox, last)
            if not any(one.spec.pod == held.spec.pod for one in self.held.values()):
                del self.pods[sandbox.uid]
                await self.server.sandbox_removed(sandbox)


Scenario = Callable[[OwnRuntime, NriEnforcer, FakeCPUState], Coroutine[Any, Any, None]]


def with_own(
    scenario: Scenario,
    state: FakeCPUState,
    *,
    pin: dict[str, Any] | None = None,
    runtime: dict[str, Any] | None = None,
    **options: Any,
) -> None:
    """Run a scenario with the node agent's NRI server and a connected enforcer."""

    async def whole() -> None:
        with short_directory() as path:
            own = OwnRuntime(path / "nri" / "nri.sock", **(runtime or {}))
            enforcer = NriEnforcer(
                state,
                lambda: state.topology,
                settings(path, **(pin or {})),
                **{"shortest": 0.001, "longest": 0.02, "retry": 0.002, "quiet": 3600.0, **options},
            )
            await own.start()
            await enforcer.start()
            try:
                async with asyncio.timeout(DEADLINE):
                    await until(lambda: enforcer.linked and bool(own.server.plugins()))
                    await scenario(own, enforcer, state)
            finally:
                await enforcer.stop()
                await own.stop()

    asyncio.run(whole())


RUNNING: Any = 3
STOPPED: Any = 4


def container(
    id: str, env: Iterable[str] = (), *, pod: str = "", cpus: str = "", **more: Any
) -> nri.Container:
    message = nri.Container(
        id=id, name=id, pod_sandbox_id=f"sb-{pod or id}", env=list(env), state=RUNNING, **more
    )
    if cpus:
        message.linux.resources.cpu.cpus = cpus
    return message


def sandbox(name: str) -> nri.PodSandbox:
    return nri.PodSandbox(id=f"sb-{name}", uid=f"uid-{name}", name=name, namespace="default")


class Scripted:
    """Runtime that does what the test says; by default one before NRI 0.12, with StateChange only."""

    def __init__(
        self, path: Path, *, name: str = "cri-o", release: str = "1.30.0", version: str = ""
    ) -> None:
        self.path = path
        self.env_claims = (name, release, version)
        self.mask = 0
        self.registered: list[nri.RegisterPluginRequest] = []
        self.updates: list[nri.UpdateContainersRequest] = []
        #: What UpdateContainers answers: ids that fail, a Fault, or never.
        self.failing: set[str] = set()
        self.refusing: TtrpcFault | None = None
        self.stuck: asyncio.Event | None = None
        #: Number of updates in a call above which it never answers.
        self.most_updates: int | None = None
        self.connections = 0
        self._connected = asyncio.Event()
        self._mux: Mux | None = None

    async def start(self) -> None:
        self.listener = await asyncio.start_unix_server(self._accept, str(self.path))

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._mux = mux = Mux(reader, writer)
        client = TtrpcClient(mux.open(PLUGIN_SERVICE))
        calls: dict[str, Any] = {"RegisterPlugin": self._register, "UpdateContainers": self._update}
        server = TtrpcServer(mux.open(RUNTIME_SERVICE), RUNTIME, calls)
        self.client = client
        await mux.wait_closed()
        self._connected.clear()
        await server.close()
        await client.close()
        await mux.close()

    async def _register(self, request: nri.RegisterPluginRequest) -> None:
        self.registered.append(request)
        self.connections += 1
        self._connected.set()

    async def _update(
        self, request: nri.UpdateContainersRequest
    ) -> nri.UpdateContainersResponse | TtrpcFault:
        self.updates.append(request)
        if self.stuck is not None:
            await self.stuck.wait()
        if self.most_updates is not None and len(request.update) > self.most_updates:
            await asyncio.Event().wait()
        if self.refusing is not None:
            return self.refusing
        failed = [update for update in request.update if update.container_id in self.failing]
        return nri.UpdateContainersResponse(failed=failed)

    async def call(self, method: str, request: Any) -> Any:
        return await self.client.call(PLUGIN.methods_by_name[method], request, timeout=DEADLINE)

    async def configure(self) -> int:
        name, release, version = self.env_claims
        await self._connected.wait()
        answer = await self.call(
            "Configure",
            nri.ConfigureRequest(
                runtime_name=name, runtime_version=release, NRI_version=version, request_timeout=2000
            ),
        )
        assert not isinstance(answer, TtrpcFault), answer
        self.mask = answer.events
        return self.mask

    async def synchronize(self, *containers: nri.Container, pods: Iterable[str] = ()) -> dict[str, str]:
        """Send the full state; return the updates as CPUs by container."""
        names = dict.fromkeys([*pods, *(one.pod_sandbox_id.removeprefix("sb-") for one in containers)])
        request = nri.SynchronizeRequest(pods=[sandbox(name) for name in names], containers=list(containers))
        answer = await self.call("Synchronize", request)
        assert not isinstance(answer, TtrpcFault), answer
        return changes(answer)

    async def create(self, id: str, env: Iterable[str] = (), *, pod: str = "", **more: Any) -> Any:
        request = nri.CreateContainerRequest(
            pod=sandbox(pod or id), container=container(id, env, pod=pod, **more)
        )
        return await self.call("CreateContainer", request)

    async def news(self, event: Any, id: str, *, pod: str = "", **more: Any) -> None:
        """Send StateChange, as before NRI 0.12."""
        message = nri.StateChangeEvent(event=event, pod=sandbox(pod or id))
        message.container.CopyFrom(container(id, pod=pod, **more))
        answer = await self.call("StateChange", message)
        assert not isinstance(answer, TtrpcFault), answer

    async def created(self, id: str, env: Iterable[str] = (), *, pod: str = "") -> Any:
        """Create a container and notify the plugin."""
        answer = await self.create(id, env, pod=pod)
        if not isinstance(answer, TtrpcFault):
            await self.news(5, id, pod=pod, cpus=answer.adjust.linux.resources.cpu.cpus)
        return answer

    def hang_up(self) -> None:
        assert self._mux is not None
        self._mux.end()

    async def stop(self) -> None:
        self.listener.close()
        if self._mux is not None:
            self._mux.end()
            await asyncio.sleep(0)
        await self.listener.wait_closed()


def changes(answer: Any) -> dict[str, str]:
    return {update.container_id: update.linux.resources.cpu.cpus for update in answer.update}


def apply_desired(answer: Any) -> str:
    assert not isinstance(answer, TtrpcFault), answer
    cpus: str = answer.adjust.linux.resources.cpu.cpus
    return cpus


ScriptedStory = Callable[[Scripted, NriEnforcer, FakeCPUState], Coroutine[Any, Any, None]]


def with_script(
    scenario: ScriptedStory,
    state: FakeCPUState,
    *,
    pin: dict[str, Any] | None = None,
    runtime: dict[str, str] | None = None,
    **options: Any,
) -> None:
    """Run a scenario with a scripted runtime; it is configured, but not yet synchronized."""

    async def whole() -> None:
        with short_directory() as path:
            script = Scripted(path / "s", **(runtime or {}))
            enforcer = NriEnforcer(
                state,
                lambda: state.topology,
                settings(path, **(pin or {})),
                socket=script.path,
                **{"shortest": 0.001, "longest": 0.02, "retry": 0.002, "quiet": 3600.0, **options},
            )
            await script.start()
            await enforcer.start()
            try:
                async with asyncio.timeout(DEADLINE):
                    await script.configure()
                    await scenario(script, enforcer, state)
            finally:
                await enforcer.stop()
                await script.stop()

    asyncio.run(whole())


def overlap(runtime: OwnRuntime, one: str, two: str) -> CpuSet:
    return CpuSet.parse(runtime.cpus(one)) & CpuSet.parse(runtime.cpus(two))
