"""Process of a DRA driver on a node, under a supervisor that starts it again when it dies."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from plimsoll.client import Client
from plimsoll.drivers.plugin import ClaimRef, PluginServer, prepared_claim_store
from tests.simulation.faults import Dice
from tests.simulation.loop import Process
from tests.simulation.node.driver import SimulatedDriver
from tests.simulation.node.environment import NodeEnvironment
from tests.simulation.node.hardware import Inventory

Tree = dict[str, Any]

#: The sockets of a process are not deleted by others.
_SOCKET_POLL_SECONDS = 3600.0
_RESTART_SECONDS = (0.5, 8.0)


class DriverHost:
    """Driver with its durable state: the plugin directory, and the hardware."""

    def __init__(self, node: NodeEnvironment, inventory: Inventory) -> None:
        self.inventory = inventory
        self.server: PluginServer | None = None
        self.process: Process | None = None
        self._node = node
        self._starts = 0
        node.hardware.inventories[inventory.driver] = inventory

    @property
    def plugin_dir(self) -> Path:
        return self._node.directory / "plugins" / self.inventory.driver

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.alive

    # -- life

    def start(self) -> None:
        """Start the process, if it does not run."""
        if self.running:
            return
        self._starts += 1
        node, name = self._node, self.inventory.driver
        process = self.process = node.loop.process(f"{name}@{node.name}#{self._starts}", **node.clock)
        node.history.note(process.name, "starts")
        process.start(self._run(process))

    def kill(self) -> None:
        """End the process at once."""
        if self.process is not None and self.process.alive:
            self._node.history.note(self.process.name, "is killed")
            self.process.kill()
        self.server = None

    def crash(self) -> None:
        """Kill the process; its supervisor starts it again."""
        name = f"{self.inventory.driver}@{self._node.name}/{self._starts}"
        seconds = Dice(self._node.faults.plan.seed, name)
        self.kill()
        loop = self._node.loop
        loop.call_at_global(loop.now + seconds.between(*_RESTART_SECONDS), self.start)

    def stop(self, *, withdraw: bool = False) -> None:
        """Stop the process in good order: its sockets are removed, and calls in progress end.

        `withdraw` deletes its slices.
        """
        server, process = self.server, self.process
        if server is None or process is None or not process.alive:
            self.kill()
            return
        self._node.history.note(process.name, "stops")

        async def stop() -> None:
            await server.stop(withdraw=withdraw)
            process.kill()

        process.start(stop())

    async def _run(self, process: Process) -> None:
        node = self._node
        user = f"system:serviceaccount:drivers:{self.inventory.driver}"
        client = Client(node.network.transport(process, user))
        driver = SimulatedDriver(
            process, node.hardware, self.inventory, node.faults, node.history, self.crash
        )
        # Read once, when the server is created.
        store: Any = prepared_claim_store
        store.read_boot_id = lambda: node.boot_id
        server = self.server = PluginServer(
            driver,
            client,
            node.name,
            root=node.directory,
            cdi=node.directory / "cdi",
            socket_poll=_SOCKET_POLL_SECONDS,
        )
        await server.run()

    def release_stale_claims(self, uids: Iterable[str]) -> None:
        """Unprepare claims that no pod uses, as a driver with a collector of stale claims does."""
        server, process = self.server, self.process
        if server is not None and process is not None and process.alive:
            for uid in uids:
                process.start(server.release(ClaimRef("", "", uid)))

    # -- devices

    def publish(self) -> None:
        """Publish the devices as they are now in the inventory."""
        server, process = self.server, self.process
        if server is not None and process is not None and process.alive:
            process.start(_call(server.publish))

    def republish(self) -> None:
        """Publish the pool with a new generation: it is split into slices of another size."""
        inventory = self.inventory
        inventory.per_slice = max(1, (len(inventory.devices) + 1) // 2) if inventory.per_slice == 128 else 128
        self._change("publishes a new generation")

    def add_device(self, tree: Tree) -> None:
        self.inventory.add(tree)
        self._change(f"has a new device {tree['name']}")

    def remove_device(self, name: str) -> None:
        """Remove a device from what is published; claims for which it is set up keep it."""
        self.inventory.remove(name)
        self._change(f"lacks device {name}")

    def taint(self, device: str, *taints: Tree) -> None:
        """Replace the taints of a device."""
        self.inventory.taints[device] = list(taints)
        self._change(f"taints {device}: {', '.join(each['effect'] for each in taints) or 'no more'}")

    def _change(self, what: str) -> None:
        self._node.history.note(f"{self.inventory.driver}@{self._node.name}", what)
        self.publish()


async def _call(function: Callable[[], None]) -> None:
    function()
