"""A machine whose containers are states, and which outlives its agents."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from plimsoll.node.containers import ContainerSpec, ContainerState, Phase, RuntimeFault
from plimsoll.node.runtime.none import NoneRuntime
from plimsoll.wire.cdi import CdiFolders


class Machine(NoneRuntime):
    """Tells `watch` of every container that is about to run, and counts them."""

    def __init__(self, cdi: Path, watch: Callable[[ContainerState], None]) -> None:
        super().__init__(cdi=CdiFolders((cdi,)))
        self._watch = watch
        #: How often the containers of a pod were started, by its UID.
        self.starts: dict[str, int] = {}
        #: Containers wait here before they are started.
        self.gate = asyncio.Event()
        self.gate.set()
        self.waiting = asyncio.Event()

    async def create(self, spec: ContainerSpec) -> RuntimeFault | None:
        fault = await super().create(spec)
        if fault is None:
            self._watch(next(state for state in self.containers(spec.pod) if state.id == spec.id))
        return fault

    async def start_container(self, id: str) -> RuntimeFault | None:
        if not self.gate.is_set():
            self.waiting.set()
            await self.gate.wait()
        state = next((each for each in self.containers() if each.id == id), None)
        if state is not None and state.phase is Phase.CREATED:
            self.starts[state.pod] = self.starts.get(state.pod, 0) + 1
        return await super().start_container(id)

    async def crash(self, uid: str, code: int) -> None:
        """All running containers of a pod end by themselves."""
        for state in self.containers(uid):
            if state.phase is Phase.RUNNING:
                container = self._containers[state.id]
                container.script = replace(container.script, exit_code=code)
                await self._end_itself(state.id)
