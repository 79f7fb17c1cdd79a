"""What the CPU driver sends to a runtime, byte by byte, in two fixed conversations.

`python -m tests.golden.nri_talk` writes the recording anew; look at the difference before you keep it.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from plimsoll.drivers.cpu.pinning.nri import NriEnforcer
from plimsoll.protocols.messages import nri
from plimsoll.protocols.nri.names import NRI_VERSION
from tests.unit.drivers.cpu.pinning.parts import Book, env, hold, machine, settings
from tests.unit.drivers.cpu.pinning.runtimes import Scripted, container, folder, sandbox

RECORDING = Path(__file__).with_name("nri_talk.json")

OLD = {"name": "containerd", "release": "v2.0.0", "version": ""}
NEW = {"name": "containerd", "release": "v2.4.0", "version": "v0.12.1"}


class Listening(Scripted):
    """A runtime that keeps every byte it is sent."""

    def __init__(self, path: Path, **told: str) -> None:
        super().__init__(path, **told)
        self.heard = bytearray()
        self._pump: asyncio.Task[None] | None = None

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        copy = asyncio.StreamReader()
        self._pump = asyncio.create_task(self._copy(reader, copy))
        await super()._accept(copy, writer)
        await self._pump

    async def _copy(self, reader: asyncio.StreamReader, copy: asyncio.StreamReader) -> None:
        while data := await reader.read(65536):
            self.heard += data
            copy.feed_data(data)
        copy.feed_eof()

    def take(self) -> str:
        """What was heard since the last time."""
        heard, self.heard = bytes(self.heard), bytearray()
        return heard.hex()


async def talk(told: dict[str, str]) -> list[tuple[str, str]]:
    """A conversation: what was said to the plugin, and the bytes that came back."""
    said: list[tuple[str, str]] = []
    a, b = hold("0a", "0-1"), hold("0b", "x=2;y=3", mix=True)
    async with folder() as path:
        runtime = Listening(path / "s", **told)
        book = Book(machine(8), a)
        enforcer = NriEnforcer(
            book, lambda: book.topology, settings(path, mems=True, lift_quota=True), socket=runtime.path
        )
        await runtime.start()
        await enforcer.start()
        try:
            async with asyncio.timeout(20):
                await runtime.configure()
                said.append(("RegisterPlugin, Configure", runtime.take()))
                shared = container("c-shared", pod="s", cpus="0-7")
                own = container("c-own", env(a), pod="p", cpus="0-1")
                own.linux.resources.cpu.quota.value = 150_000

                async def step(method: str, request: Any) -> None:
                    await runtime.call(method, request)
                    # What the driver says by itself comes after its answer.
                    await enforcer.apply()
                    said.append((method, runtime.take()))

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
                book.hold(b)
                await enforcer.apply()
                said.append(("a claim is prepared", runtime.take()))
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
                book.release("0b")
                await enforcer.apply()
                said.append(("a claim is released", runtime.take()))
                await step(
                    "RemoveContainer",
                    nri.RemoveContainerRequest(pod=sandbox("r"), container=container("c-3", pod="r")),
                )
        finally:
            await enforcer.stop()
            await runtime.stop()
    return said


def record() -> dict[str, Any]:
    return {
        "nri": NRI_VERSION,
        "old": asyncio.run(talk(OLD)),
        "new": asyncio.run(talk(NEW)),
    }


if __name__ == "__main__":
    RECORDING.write_text(json.dumps(record(), indent=1) + "\n")
