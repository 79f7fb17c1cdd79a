"""Recording of the bytes that the CPU driver sends to a container runtime, in two fixed NRI conversations.

`python -m tests.golden.nri_conversation` rewrites the recording; review the diff before committing it.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from plimsoll.drivers.cpu.pinning.nri import NriEnforcer
from plimsoll.protocols.messages import nri
from plimsoll.protocols.nri.names import NRI_VERSION
from tests.directories import short_directory
from tests.unit.drivers.cpu.pinning.builders import FakeCPUState, env, hold, machine, settings
from tests.unit.drivers.cpu.pinning.runtimes import Scripted, container, sandbox
from tests.waiting import DEADLINE

RECORDING = Path(__file__).with_name("nri_conversation.json")

OLD = {"name": "containerd", "release": "v2.0.0", "version": ""}
NEW = {"name": "containerd", "release": "v2.4.0", "version": "v0.12.1"}


class RecordingRuntime(Scripted):
    """A runtime that records every byte it receives."""

    def __init__(self, path: Path, **runtime_info: str) -> None:
        super().__init__(path, **runtime_info)
        self.received = bytearray()
        self._pump: asyncio.Task[None] | None = None

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        copy = asyncio.StreamReader()
        self._pump = asyncio.create_task(self._copy(reader, copy))
        await super()._accept(copy, writer)
        await self._pump

    async def _copy(self, reader: asyncio.StreamReader, copy: asyncio.StreamReader) -> None:
        while data := await reader.read(65536):
            self.received += data
            copy.feed_data(data)
        copy.feed_eof()

    def take(self) -> str:
        """Return the bytes received since the last call."""
        received, self.received = bytes(self.received), bytearray()
        return received.hex()


async def run_conversation(runtime_info: dict[str, str]) -> list[tuple[str, str]]:
    """Run a conversation; returns each message to the plugin with the bytes it sent in response."""
    messages: list[tuple[str, str]] = []
    a, b = hold("0a", "0-1"), hold("0b", "x=2;y=3", include_shared=True)
    with short_directory() as path:
        runtime = RecordingRuntime(path / "s", **runtime_info)
        cpu_state = FakeCPUState(machine(8), a)
        enforcer = NriEnforcer(
            cpu_state,
            lambda: cpu_state.topology,
            settings(path, mems=True, lift_quota=True),
            socket=runtime.path,
        )
        await runtime.start()
        await enforcer.start()
        try:
            async with asyncio.timeout(DEADLINE):
                await runtime.configure()
                messages.append(("RegisterPlugin, Configure", runtime.take()))
                shared = container("c-shared", pod="s", cpus="0-7")
                own = container("c-own", env(a), pod="p", cpus="0-1")
                own.linux.resources.cpu.quota.value = 150_000

                async def step(method: str, request: Any) -> None:
                    await runtime.call(method, request)
                    # Unsolicited updates of the driver follow its response.
                    await enforcer.apply()
                    messages.append((method, runtime.take()))

                await step(
                    "Synchronize",
                    nri.SynchronizeRequest(pods=[sandbox("s"), sandbox("p")], containers=[shared], more=True),
                )
                await step("Synchronize", nri.SynchronizeRequest(containers=[own]))
                await step(
                    "CreateContainer",
                    nri.CreateContainerRequest(pod=sandbox("q"), container=container("c-2", pod="q")),
                )
                await step(
                    "PostCreateContainer",
                    nri.PostCreateContainerRequest(
                        pod=sandbox("q"), container=container("c-2", pod="q", cpus="2-7")
                    ),
                )
                cpu_state.hold(b)
                await enforcer.apply()
                messages.append(("a claim is prepared", runtime.take()))
                await step(
                    "CreateContainer",
                    nri.CreateContainerRequest(pod=sandbox("r"), container=container("c-3", env(b), pod="r")),
                )
                await step(
                    "CreateContainer",
                    nri.CreateContainerRequest(pod=sandbox("t"), container=container("c-4", env(a), pod="t")),
                )
                resize = nri.UpdateContainerRequest(pod=sandbox("p"), container=own)
                resize.linux_resources.cpu.cpus = "0-7"
                await step("UpdateContainer", resize)
                await step(
                    "StopContainer",
                    nri.StopContainerRequest(pod=sandbox("r"), container=container("c-3", pod="r")),
                )
                cpu_state.release("0b")
                await enforcer.apply()
                messages.append(("a claim is released", runtime.take()))
                await step(
                    "RemoveContainer",
                    nri.RemoveContainerRequest(pod=sandbox("r"), container=container("c-3", pod="r")),
                )
        finally:
            await enforcer.stop()
            await runtime.stop()
    return messages


def record() -> dict[str, Any]:
    return {
        "nri": NRI_VERSION,
        "old": asyncio.run(run_conversation(OLD)),
        "new": asyncio.run(run_conversation(NEW)),
    }


if __name__ == "__main__":
    RECORDING.write_text(json.dumps(record(), indent=1) + "\n")
