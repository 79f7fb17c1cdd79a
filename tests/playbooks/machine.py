"""Simulated machine that outlives its agents."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from plimsoll.node.containers import ContainerInfo, ContainerPhase, ContainerSpec, RuntimeFault, SandboxSpec
from plimsoll.node.runtime.simulated import SimulatedRuntime
from plimsoll.protocols.cdi import CdiCache


class Machine(SimulatedRuntime):
    """Simulated machine that notifies `watch` of every container about to run, and counts them."""

    def __init__(self, cdi: Path, watch: Callable[[ContainerInfo], None]) -> None:
        super().__init__(cdi=CdiCache((cdi,)))
        self._watch = watch
        #: How often the containers of a pod were started, by its UID.
        self.starts: dict[str, int] = {}
        #: Containers wait here before they are started.
        self.gate = asyncio.Event()
        self.gate.set()
        self.waiting = asyncio.Event()
        #: Nothing is done for an agent that was killed.
        self.frozen = False

    async def _thawed(self) -> None:
        while self.frozen:
            await asyncio.sleep(0.01)

    async def run_sandbox(self, spec: SandboxSpec) -> RuntimeFault | None:
        await self._thawed()
        return await super().run_sandbox(spec)

    async def stop_sandbox(self, uid: str) -> None:
        await self._thawed()
        await super().stop_sandbox(uid)

    async def remove_sandbox(self, uid: str) -> None:
        await self._thawed()
        await super().remove_sandbox(uid)

    async def stop_container(self, id: str, grace: float) -> None:
        await self._thawed()
        await super().stop_container(id, grace)

    async def remove_container(self, id: str) -> None:
        await self._thawed()
        await super().remove_container(id)

    async def create(self, spec: ContainerSpec) -> RuntimeFault | None:
        await self._thawed()
        fault = await super().create(spec)
        if fault is None:
            self._watch(next(state for state in self.containers(spec.pod) if state.id == spec.id))
        return fault

    async def start_container(self, id: str) -> RuntimeFault | None:
        if not self.gate.is_set():
            self.waiting.set()
            await self.gate.wait()
        await self._thawed()
        state = next((each for each in self.containers() if each.id == id), None)
        if state is not None and state.phase is ContainerPhase.CREATED:
            self.starts[state.pod] = self.starts.get(state.pod, 0) + 1
        return await super().start_container(id)

    async def crash(self, uid: str, code: int) -> None:
        """Let all running containers of a pod exit."""
        for state in self.containers(uid):
            if state.phase is ContainerPhase.RUNNING:
                container = self._containers[state.id]
                container.script = replace(container.script, exit_code=code)
                await self._exit_by_script(state.id)
