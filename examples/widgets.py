"""A complete DRA driver: every file in a directory is a widget, mounted as /widget into pods that claim it.

python examples/widgets.py --node NODE
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from plimsoll.drivers import plugin
from plimsoll.drivers.plugin import AllocatedClaim, ClaimError, DeviceHealth, DevicePool, InjectedDevice


class Widgets(plugin.Driver):
    name = "widgets.example.com"

    def __init__(self, directory: Path, node: str) -> None:
        self.directory, self.node = directory, node

    def sizes(self) -> dict[str, int]:
        return {path.name: path.stat().st_size for path in sorted(self.directory.iterdir())}

    def pools(self) -> Sequence[DevicePool]:
        devices = [{"name": name, "attributes": {"size": {"int": n}}} for name, n in self.sizes().items()]
        return [DevicePool(self.node, devices)]

    async def prepare(self, claim: AllocatedClaim) -> Sequence[InjectedDevice] | ClaimError:
        injected = []
        for result in claim.results:
            path = self.directory / result.device
            if not path.exists():
                return ClaimError(f"widget {result.device} does not exist")
            env, mount = {"WIDGET": result.device}, (str(path), "/widget")
            injected.append(InjectedDevice([result.request], result.pool, result.device, env, [mount]))
        return injected

    def health(self) -> Sequence[DeviceHealth]:
        broken = [name for name, size in self.sizes().items() if not size]
        return [DeviceHealth(self.node, name, plugin.Health.UNHEALTHY, "file is empty") for name in broken]

    async def watch(self, server: plugin.PluginNotifier) -> None:
        before = self.sizes()
        while True:
            await asyncio.sleep(0.2)
            if before != (before := self.sizes()):
                server.publish()
                server.publish_health()


if __name__ == "__main__":
    sys.exit(plugin.run_driver(lambda node: Widgets(Path("/var/lib/widgets"), node)))
