"""Pods, containers and a runtime's inventory for tests of NRI."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from plimsoll.ledger.containers import ContainerRole
from plimsoll.node.cgroup_plans.containers import ContainerPlan, RuntimeResources
from plimsoll.node.cgroup_plans.pods import PodPlan, SandboxPlan
from plimsoll.node.containers import ContainerInfo, ContainerPhase, ContainerSpec, RuntimeFault, SandboxSpec
from plimsoll.node.hooks import RuntimeContainer, RuntimeState
from plimsoll.node.nri import EvictionRequest, NriServer
from plimsoll.node.resources import LinuxResources
from plimsoll.protocols.nri import NriEvent, NriPlugin
from tests.waiting import DEADLINE, until

POD = SandboxSpec(
    uid="u1",
    name="web",
    namespace="default",
    qos="Burstable",
    labels={"app": "x"},
    annotations={"note": "y"},
    plan=PodPlan(cpu_shares=512),
    sandbox=SandboxPlan(resources=RuntimeResources(cpu_shares=512)),
)
PLAN = ContainerPlan(name="app", role=ContainerRole.REGULAR, oom_score_adj=900)
SPEC = ContainerSpec(
    id="c1", pod="u1", name="app", command=("sleep", "1"), env={"A": "1", "B": "2"}, plan=PLAN
)
RESOURCES = LinuxResources(cpu_shares=512, memory_limit=1 << 20)


def state(
    spec: ContainerSpec = SPEC, phase: ContainerPhase = ContainerPhase.RUNNING, **changes: Any
) -> ContainerInfo:
    return ContainerInfo(
        id=spec.id, pod=spec.pod, name=spec.name, attempt=spec.attempt, phase=phase, **changes
    )


def held(
    id: str, phase: ContainerPhase = ContainerPhase.RUNNING, env: Mapping[str, str] | None = None
) -> RuntimeContainer:
    spec = replace(SPEC, id=id, name=id, env=env or {})
    return RuntimeContainer(spec, state(spec, phase), RESOURCES)


class FakeRuntime:
    """Runtime side of NRI: its containers, and the requested updates."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.pods: list[SandboxSpec] = [POD]
        self.containers: dict[str, RuntimeContainer] = {}
        self.applied: list[tuple[str, LinuxResources]] = []
        self.faults: dict[str, RuntimeFault] = {}
        self.evicted: list[EvictionRequest] = []
        self.before_apply: Callable[[], Any] | None = None
        self.server: NriServer
        self._serving: list[asyncio.Task[None]] = []

    def inventory(self) -> RuntimeState:
        return RuntimeState(tuple(self.pods), tuple(self.containers.values()))

    async def apply(self, id: str, resources: LinuxResources) -> RuntimeFault | None:
        if self.before_apply is not None:
            await self.before_apply()
        self.applied.append((id, resources))
        return self.faults.get(id)

    async def add(self, name: str, index: str, handlers: Mapping[NriEvent, Any], **options: Any) -> NriPlugin:
        """Connect a plugin."""
        plugin = NriPlugin(name, index, handlers, socket=self.server.socket, **options)
        before = len(self.server.plugins())
        self._serving.append(asyncio.create_task(self._run(plugin)))
        await until(lambda: len(self.server.plugins()) > before)
        return plugin

    @staticmethod
    async def _run(plugin: NriPlugin) -> None:
        await plugin.run()

    async def end(self) -> None:
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        await self.server.stop()


@asynccontextmanager
async def fake_runtime(**options: Any) -> AsyncIterator[FakeRuntime]:
    directory = Path(tempfile.mkdtemp(prefix="p-", dir="/tmp"))
    here = FakeRuntime(directory)
    here.server = NriServer(
        directory / "nri" / "nri.sock",
        "plimsoll",
        "1.0",
        here.inventory,
        here.apply,
        on_evict=here.evicted.append,
        **options,
    )
    await here.server.start()
    try:
        async with asyncio.timeout(DEADLINE):
            yield here
    finally:
        await here.end()
        shutil.rmtree(directory)
