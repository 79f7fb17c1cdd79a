"""NRI plugin against a minimal runtime."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from plimsoll.protocols.messages import nri
from plimsoll.protocols.mux import PLUGIN_SERVICE, RUNTIME_SERVICE, Mux
from plimsoll.protocols.nri import NriEvent, NriPlugin, edits
from plimsoll.protocols.nri.events import NOTIFICATIONS, PLUGIN, RUNTIME
from plimsoll.protocols.ttrpc import CLOSED, TtrpcClient, TtrpcFault, TtrpcServer
from tests.directories import short_directory
from tests.unit.protocols.nri.responses import cpu_resources, pin
from tests.waiting import DEADLINE


@pytest.fixture
def directory() -> Iterator[Path]:
    with short_directory() as path:
        yield path


class Runtime:
    """Runtime side of one connection at a time."""

    def __init__(self, path: Path, *, refuse: TtrpcFault | None = None) -> None:
        self.path = path
        self.refuse = refuse
        self.registered: list[nri.RegisterPluginRequest] = []
        self.updates: list[nri.UpdateContainersRequest] = []
        self.connected = asyncio.Event()
        self.mux: Mux | None = None

    async def start(self) -> None:
        self.listener = await asyncio.start_unix_server(self._accept, str(self.path))

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.mux = mux = Mux(reader, writer)
        self.client = TtrpcClient(mux.open(PLUGIN_SERVICE))
        server = TtrpcServer(
            mux.open(RUNTIME_SERVICE),
            RUNTIME,
            {"RegisterPlugin": self._register, "UpdateContainers": self._update},
        )
        self.connected.set()
        await mux.wait_closed()
        self.connected.clear()
        await server.close()
        await self.client.close()
        await mux.close()

    async def _register(self, request: nri.RegisterPluginRequest) -> TtrpcFault | None:
        self.registered.append(request)
        return self.refuse

    async def _update(self, request: nri.UpdateContainersRequest) -> nri.UpdateContainersResponse:
        self.updates.append(request)
        return nri.UpdateContainersResponse(failed=request.update[:1])

    async def call(self, method: str, request: Any) -> Any:
        return await self.client.call(PLUGIN.methods_by_name[method], request, timeout=DEADLINE)

    def hang_up(self) -> None:
        assert self.mux is not None
        self.mux.end()

    async def stop(self) -> None:
        self.listener.close()
        if self.mux is not None:
            self.mux.end()
            await asyncio.sleep(0)
        await self.listener.wait_closed()


def _send(
    directory: Path,
    make: Callable[[Path], NriPlugin],
    scenario: Callable[[Runtime, NriPlugin], Awaitable[None]],
) -> None:
    async def run() -> None:
        runtime = Runtime(directory / "s")
        await runtime.start()
        plugin = make(runtime.path)
        serving = asyncio.create_task(plugin.serve(shortest=0.001, longest=0.01))
        try:
            async with asyncio.timeout(DEADLINE):
                await runtime.connected.wait()
                await scenario(runtime, plugin)
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
            await runtime.stop()

    asyncio.run(run())


async def _nothing(request: Any) -> None:
    return None


def test_a_plugin_registers_is_configured_and_synchronised(directory: Path) -> None:
    received: list[Any] = []

    async def synchronize(pods: Any, containers: Any) -> list[nri.ContainerUpdate]:
        received.append(([pod.id for pod in pods], [container.id for container in containers]))
        return [edits.update("c1", cpu_resources("1"))]

    async def configure(request: nri.ConfigureRequest) -> None:
        received.append(request.config)

    def make(path: Path) -> NriPlugin:
        handlers = {NriEvent.CREATE_CONTAINER: _nothing, NriEvent.STOP_CONTAINER: _nothing}
        return NriPlugin("x", "10", handlers, socket=path, synchronize=synchronize, configure=configure)

    async def scenario(runtime: Runtime, plugin: NriPlugin) -> None:
        answer = await runtime.call(
            "Configure",
            nri.ConfigureRequest(config="a: b", runtime_name="containerd", runtime_version="2.3.4"),
        )
        assert answer.events == NriEvent.CREATE_CONTAINER.bit | NriEvent.STOP_CONTAINER.bit
        assert plugin.nri_version == (0, 12, 0)
        before = plugin.synchronized
        # In parts: nothing is answered before the last one.
        pods = [nri.PodSandbox(id=f"p{number}") for number in range(2)]
        part = nri.SynchronizeRequest(pods=pods, more=True)
        assert await runtime.call("Synchronize", part) == nri.SynchronizeResponse(more=True)
        assert received == ["a: b"]
        last = nri.SynchronizeRequest(containers=[nri.Container(id="c1")])
        answer = await runtime.call("Synchronize", last)
        assert (len(answer.update), answer.more) == (1, False)
        assert received[1:] == [(["p0", "p1"], ["c1"])]
        assert (before, plugin.synchronized) == (False, True)
        request = runtime.registered[0]
        assert (request.plugin_name, request.plugin_idx) == ("x", "10")
        assert request.NRI_version

    _send(directory, make, scenario)


def test_one_handler_serves_both_generations_of_an_event(directory: Path) -> None:
    seen: list[tuple[str, str, str]] = []

    def handler(event: NriEvent) -> Any:
        async def handle(request: Any) -> None:
            assert isinstance(request, event.request)
            container = request.container.id if "container" in request.DESCRIPTOR.fields_by_name else ""
            seen.append((event.name, request.pod.id, container))

        return handle

    def make(path: Path) -> NriPlugin:
        return NriPlugin("x", "10", {event: handler(event) for event in NriEvent}, socket=path)

    async def scenario(runtime: Runtime, plugin: NriPlugin) -> None:
        for event in sorted(NOTIFICATIONS):
            request = event.request(pod=nri.PodSandbox(id="p"))
            if "container" in request.DESCRIPTOR.fields_by_name:
                request.container.id = "c"
            assert await runtime.call(event.method, request) == event.response()
            change = nri.StateChangeEvent(event=int(event), pod=nri.PodSandbox(id="p"))  # type: ignore[arg-type]
            change.container.id = "c"
            assert await runtime.call("StateChange", change) == nri.Empty()
            assert len(seen) == 2
            assert seen[0] == seen[1]
            seen.clear()
        # What is no news, or not known, is not for StateChange.
        for number in (int(NriEvent.CREATE_CONTAINER), 0, 99):
            change = nri.StateChangeEvent(event=number)  # type: ignore[arg-type]
            assert await runtime.call("StateChange", change) == nri.Empty()
        assert seen == []

    _send(directory, make, scenario)


def test_results_and_errors_of_handlers_reach_the_runtime(directory: Path) -> None:
    async def create(request: nri.CreateContainerRequest) -> nri.CreateContainerResponse | TtrpcFault:
        return pin("0-3", "0") if request.container.name == "good" else TtrpcFault(2, "no room")

    async def remove(request: Any) -> TtrpcFault:
        return TtrpcFault(5, "who?")

    def make(path: Path) -> NriPlugin:
        handlers = {NriEvent.CREATE_CONTAINER: create, NriEvent.REMOVE_CONTAINER: remove}
        return NriPlugin("x", "10", handlers, socket=path)

    async def scenario(runtime: Runtime, plugin: NriPlugin) -> None:
        request = nri.CreateContainerRequest(container=nri.Container(name="good"))
        answer = await runtime.call("CreateContainer", request)
        assert answer.adjust.linux.resources.cpu.cpus == "0-3"
        request.container.name = "bad"
        assert await runtime.call("CreateContainer", request) == TtrpcFault(2, "no room")
        change = nri.StateChangeEvent(event=nri.REMOVE_CONTAINER)
        assert await runtime.call("StateChange", change) == TtrpcFault(5, "who?")
        # Events without a handler are answered with nothing.
        assert await runtime.call("UpdateContainer", nri.UpdateContainerRequest()) == (
            nri.UpdateContainerResponse()
        )
        assert await runtime.call("Shutdown", nri.Empty()) == nri.Empty()

    _send(directory, make, scenario)


def test_updates_at_any_time(directory: Path) -> None:
    def make(path: Path) -> NriPlugin:
        return NriPlugin("x", "10", {}, socket=path)

    async def scenario(runtime: Runtime, plugin: NriPlugin) -> None:
        updates = [edits.update(id, cpu_resources("1")) for id in ("a", "b")]
        failed = await plugin.update_containers(updates, [nri.ContainerEviction(container_id="z")])
        assert failed == (updates[0],)
        assert [update.container_id for update in runtime.updates[0].update] == ["a", "b"]
        assert runtime.updates[0].evict[0].container_id == "z"
        assert (await runtime.call("Configure", nri.ConfigureRequest())).events != 0

    _send(directory, make, scenario)


def test_a_plugin_reconnects_to_a_restarted_runtime(directory: Path) -> None:
    def make(path: Path) -> NriPlugin:
        return NriPlugin("x", "10", {}, socket=path)

    async def scenario(runtime: Runtime, plugin: NriPlugin) -> None:
        for times in range(1, 4):
            await runtime.connected.wait()
            await runtime.call("Synchronize", nri.SynchronizeRequest())
            while not plugin.synchronized:
                await asyncio.sleep(0)
            assert len(runtime.registered) == times
            runtime.hang_up()
            while plugin.synchronized:
                await asyncio.sleep(0)
        # Half of a synchronisation is forgotten with the connection.
        await runtime.connected.wait()
        part = nri.SynchronizeRequest(pods=[nri.PodSandbox(id="old")], more=True)
        await runtime.call("Synchronize", part)
        runtime.hang_up()
        while runtime.connected.is_set():
            await asyncio.sleep(0)
        await runtime.connected.wait()
        await runtime.call("Synchronize", nri.SynchronizeRequest())
        assert plugin.pods == []

    _send(directory, make, scenario)


async def test_a_refused_plugin_reports_the_reason(directory: Path) -> None:
    plugin = NriPlugin("x", "10", {}, socket=directory / "s")
    fault = await plugin.run()
    assert fault is not None
    assert fault.kind == "closed"
    assert await plugin.update_containers([]) == CLOSED
    runtime = Runtime(directory / "s", refuse=TtrpcFault(2, "invalid plugin index: x"))
    await runtime.start()
    assert await plugin.run() == TtrpcFault(2, "invalid plugin index: x")
    await runtime.stop()


def test_edits() -> None:
    adjust = edits.adjustment(
        env={"A": "1"}, unset=["B"], cdi=["v/c=d"], annotations={"k": "v"}, resources=cpu_resources("1")
    )
    assert [(variable.key, variable.value) for variable in adjust.env] == [("-B", ""), ("A", "1")]
    assert adjust.CDI_devices[0].name == "v/c=d"
    assert adjust.annotations == {"k": "v"}
    update = edits.update("c", cpu_resources("2"), ignore_failure=True)
    answer = edits.creation(adjust, [update])
    assert answer.adjust.linux.resources.cpu.cpus == "1"
    assert answer.update[0].ignore_failure
