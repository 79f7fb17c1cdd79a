"""Server that the suite runs against."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import TypeAlias
from urllib.parse import urlsplit

from plimsoll.client import Client, ClientConfig
from plimsoll.client.endpoints import NAMESPACES
from tests.cluster.cutter import Cutter
from tests.waiting import DEADLINE

Scenario: TypeAlias = Callable[[Client, str], Awaitable[None]]
CutScenario: TypeAlias = Callable[[Client, Client, Cutter, str], Awaitable[None]]


async def _aged(client: Client) -> None:
    """Do nothing: a kube-apiserver reports versions from before its start as too old."""


@dataclass(frozen=True)
class Target:
    """Server; `config` is None if it is called without HTTP."""

    name: str
    open: Callable[[], AbstractAsyncContextManager[Client]]
    config: ClientConfig | None = None
    #: Makes the server forget its first versions, where it has not yet.
    age: Callable[[Client], Awaitable[None]] = _aged

    def run_scenario(self, scenario: Scenario, seconds: float = DEADLINE) -> None:
        """Run a scenario with a client and its own namespace."""

        async def run() -> None:
            async with asyncio.timeout(seconds), self.open() as client:
                await scenario(client, await new_namespace(client))

        asyncio.run(run())

    def run_with_cutter(self, scenario: CutScenario, seconds: float = DEADLINE) -> None:
        """Run a scenario with a second client, whose connections a `Cutter` can break."""
        assert self.config is not None
        config = self.config

        async def run() -> None:
            parts = urlsplit(config.server)
            cutter = Cutter(parts.hostname or "", parts.port or 443)
            async with asyncio.timeout(seconds), self.open() as client, cutter:
                server = f"{parts.scheme}://127.0.0.1:{cutter.port}"
                async with Client.connect(replace(config, server=server)) as cut:
                    await scenario(client, cut, cutter, await new_namespace(client))

        asyncio.run(run())


async def new_namespace(client: Client) -> str:
    name = f"t-{secrets.token_hex(5)}"
    await client.create(NAMESPACES, {"metadata": {"name": name}})
    return name
