"""Controllers of claims and garbage as a process of their own."""

from __future__ import annotations

import asyncio
from pathlib import Path

from plimsoll.client import Client
from plimsoll.client.kubeconfig import find_config
from plimsoll.controllers.manager import ControllerManager
from tests.chaos.forked import Forked
from tests.simulation.processes import CONTROLLERS


class ForkedControllers(Forked):
    """Controllers that can be killed and restarted."""

    def __init__(self, directory: Path, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig
        super().__init__(directory / "controllers.log")

    def start(self) -> None:
        self.run(str(self._kubeconfig), __name__)


def main(arguments: list[str]) -> None:
    asyncio.run(_run(Path(arguments[0])))


async def _run(kubeconfig: Path) -> None:
    async with Client.connect(find_config(kubeconfig)) as client:
        await ControllerManager(client, only=CONTROLLERS).run()
