"""Runtime with plugins, through the lifecycle of containers."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from plimsoll.ledger.containers import ContainerRole
from plimsoll.node.containers import RuntimeFault
from plimsoll.node.nri import NriServer
from plimsoll.node.runtime import SimulatedRuntime
from plimsoll.protocols.messages import nri
from plimsoll.protocols.nri import NriEvent, NriPlugin, edits
from plimsoll.protocols.ttrpc import TtrpcFault
from tests.unit.node.nri.fixtures import PLAN, POD, SPEC
from tests.unit.protocols.nri.responses import cpu_resources, pin
from tests.waiting import until


class Pinning:
    """Plugin that gives each container an exclusive CPU, and the remaining CPUs to the others."""

    def __init__(self, socket: Path) -> None:
        self.free = ["0", "1"]
        self.given: dict[str, str] = {}
        self.shared: list[str] = []
        self.plugin = NriPlugin(
            "pin",
            "10",
            {
                NriEvent.CREATE_CONTAINER: self.create,
                NriEvent.STOP_CONTAINER: self.stop,
                NriEvent.REMOVE_CONTAINER: self.remove,
            },
            socket=socket,
            synchronize=self.synchronize,
        )

    async def synchronize(self, pods: Any, containers: Any) -> list[nri.ContainerUpdate]:
        updates = []
        for container in containers:
            self.given[container.id] = self.free.pop()
            updates.append(edits.update(container.id, cpu_resources(self.given[container.id])))
        return updates

    async def create(self, request: nri.CreateContainerRequest) -> nri.CreateContainerResponse | TtrpcFault:
        if not self.free:
            return TtrpcFault(2, "no CPU is left")
        self.given[request.container.id] = cpu = self.free.pop()
        return pin(cpu)

    async def stop(self, request: nri.StopContainerRequest) -> nri.StopContainerResponse:
        cpu = self.given.pop(request.container.id, None)
        if cpu is None:
            return nri.StopContainerResponse()
        self.free.append(cpu)
        wide = [
            edits.update(id, cpu_resources(",".join(sorted([own, cpu])))) for id, own in self.given.items()
        ]
        return nri.StopContainerResponse(update=wide)

    async def remove(self, request: nri.RemoveContainerRequest) -> None:
        assert request.container.id not in self.given


def test_containers_get_the_cpus_a_plugin_gives_them() -> None:
    async def scenario(directory: Path) -> None:
        runtime = SimulatedRuntime()
        server = NriServer(directory / "s", "none", "1", runtime.inventory, runtime.apply)
        runtime.hooks = server
        await server.start()
        await runtime.start(lambda uid: None)

        def cpus() -> dict[str, str]:
            return {state.id: state.cpus for state in runtime.containers()}

        assert await runtime.run_sandbox(POD) is None
        assert await runtime.create(replace(SPEC, id="early")) is None
        pinning = Pinning(server.socket)
        serving = asyncio.create_task(pinning.plugin.serve(shortest=0.01))
        # What ran before the plugin came is pinned when it comes.
        await until(lambda: cpus() == {"early": "1"})
        assert await runtime.create(replace(SPEC, id="second")) is None
        assert cpus() == {"early": "1", "second": "0"}
        full = await runtime.create(replace(SPEC, id="third"))
        assert full == RuntimeFault("CreateContainerError", "no CPU is left")
        assert cpus() == {"early": "1", "second": "0"}
        # A change that the plugin asks for by itself.
        assert await pinning.plugin.update_containers([edits.update("early", cpu_resources("3"))]) == ()
        assert cpus()["early"] == "3"
        # Who is left gets what becomes free; an update of the pod leaves it its CPUs.
        assert await runtime.start_container("second") is None
        await runtime.stop_container("early", 0)
        await until(lambda: cpus()["second"] == "0,1")
        plan = replace(PLAN, role=ContainerRole.REGULAR, cpu_shares=99)
        assert await runtime.update("second", plan) is None
        assert cpus()["second"] == "0,1"
        await runtime.remove_sandbox(POD.uid)
        assert pinning.given == {}
        assert (server.known, server.pending) == ({}, {})
        # The server comes back, and so does the plugin.
        await server.stop()
        again = NriServer(directory / "s", "none", "1", runtime.inventory, runtime.apply)
        await again.start()
        await until(lambda: len(again.plugins()) == 1)
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        await again.stop()
        await runtime.stop()

    path = Path(tempfile.mkdtemp(prefix="p-", dir="/tmp"))
    try:
        asyncio.run(scenario(path))
    finally:
        shutil.rmtree(path)
