"""Several drivers on several nodes in one process.

`Place` holds the socket paths of a node; `PluginServers` runs one `PluginServer` for each driver on each
node. Promises: all have registered and published when `ready` returns; who fails to start leaves nothing of
the others behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from plimsoll.client import Client
from plimsoll.drivers.plugin import Driver, PluginServer
from plimsoll.drivers.plugin.plugin_server import CDI_FOLDER, KUBELET_ROOT
from plimsoll.errors import ConfigError

#: Servers that start at a time, and how long the next one waits for the one before: nodes on the same loop
#: have a second to get an answer, and must not be kept from it by what else goes on.
_AT_ONCE = 4
_TURN_SECONDS = 5.0
_LOOK_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Place:
    """A node, the root folder of its kubelet or agent, and the folder of its CDI files.

    Without a root there are no sockets: devices on such a node are published and nothing else.
    """

    node: str
    root: Path | None = KUBELET_ROOT
    cdi: Path | None = None

    @property
    def cdi_folder(self) -> Path:
        """A kubelet's runtime looks into the usual folder, an agent of ours below its root as well."""
        if self.cdi is not None:
            return self.cdi
        return CDI_FOLDER if self.root in (None, KUBELET_ROOT) else Path(self.root or "") / "cdi"


class PluginServers:
    """PluginServers that begin and end together."""

    def __init__(self) -> None:
        self.all: list[PluginServer] = []

    def add(self, driver: Driver, client: Client, place: Place) -> PluginServer:
        """Have a station for a driver on a node with sockets; `start` starts it."""
        assert place.root is not None, "a node without sockets has no station"
        station = PluginServer(driver, client, place.node, root=place.root, cdi=place.cdi_folder)
        self.all.append(station)
        return station

    async def start(self) -> None:
        slots = asyncio.Semaphore(_AT_ONCE)

        async def begin(station: PluginServer) -> None:
            async with slots:
                await station.start()
                if len(self.all) > _AT_ONCE:
                    await station.wait_registered(_TURN_SECONDS)

        results = await asyncio.gather(*map(begin, self.all), return_exceptions=True)
        failures = [result for result in results if isinstance(result, BaseException)]
        if failures:
            await self.stop()
            raise failures[0]

    async def stop(self, *, withdraw: bool = False) -> None:
        await asyncio.gather(*(station.stop(withdraw=withdraw) for station in self.all))

    async def ready(self, timeout: float) -> None:
        """Wait until all are registered and published; ConfigError says which are not, and why."""
        try:
            async with asyncio.timeout(timeout):
                while self.missing():
                    await asyncio.sleep(_LOOK_SECONDS)
        except TimeoutError:
            raise ConfigError(f"not ready after {timeout:g} s: {'; '.join(self.missing()[:3])}") from None

    def missing(self) -> list[str]:
        """What is not as it should be now."""
        return [problem for station in self.all if (problem := _problem(station))]


def _problem(station: PluginServer) -> str:
    who = f"{station.driver.name} on {station.node}"
    if not station.registered:
        return f"{who} is not registered: {station.registration_error or 'the node has not found it yet'}"
    if not station.published:
        return f"{who} has not published its devices: {'; '.join(station.publish_errors) or 'not yet'}"
    return ""


def check_names(drivers: Sequence[str]) -> None:
    """ConfigError if two drivers have the same name."""
    for name in drivers:
        if drivers.count(name) > 1:
            raise ConfigError(f"drivers: {name} is there twice: every driver has a name of its own")
