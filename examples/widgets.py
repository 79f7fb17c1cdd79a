"""A DRA driver, whole: every file in a folder is a widget, and a pod that claims one finds it as /widget.

python examples/widgets.py --node NODE
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from plimsoll.drivers.plugin import (
    AllocatedClaim,
    DeviceHealth,
    Driver,
    Health,
    InjectedDevice,
    PluginNotifier,
    Pool,
    Refusal,
)
from plimsoll.drivers.plugin import run_driver as run


class Widgets(Driver):
    name = "widgets.example.com"

    def __init__(self, folder: Path, node: str) -> None:
        self.folder, self.node = folder, node

    def sizes(self) -> dict[str, int]:
        return {path.name: path.stat().st_size for path in sorted(self.folder.iterdir())}

    def pools(self) -> Sequence[Pool]:
        devices = [{"name": name, "attributes": {"size": {"int": n}}} for name, n in self.sizes().items()]
        return [Pool(self.node, devices)]

    async def prepare(self, claim: AllocatedClaim) -> Sequence[InjectedDevice] | Refusal:
        handed = []
        for result in claim.results:
            path = self.folder / result.device
            if not path.exists():
                return Refusal(f"widget {result.device} is gone")
            env, mount = {"WIDGET": result.device}, (str(path), "/widget")
            handed.append(InjectedDevice([result.request], result.pool, result.device, env, [mount]))
        return handed

    def health(self) -> Sequence[DeviceHealth]:
        broken = [name for name, size in self.sizes().items() if not size]
        return [DeviceHealth(self.node, name, Health.UNHEALTHY, "it is empty") for name in broken]

    async def watch(self, server: PluginNotifier) -> None:
        before = self.sizes()
        while True:
            await asyncio.sleep(0.2)
            if before != (before := self.sizes()):
                server.publish()
                server.tell_health()


if __name__ == "__main__":
    sys.exit(run(lambda node: Widgets(Path("/var/lib/widgets"), node)))
