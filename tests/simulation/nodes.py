"""Nodes of a case: kubelets with their claim managers, drivers of the plugin framework, and their faults."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plimsoll.client.endpoints import NODES
from tests.chaos.scheduler_faults.small_cluster import ALLOCATABLE, slices
from tests.simulation.faults import Dice
from tests.simulation.node.call_faults import NodeFaults
from tests.simulation.node.hardware import Inventory
from tests.simulation.node.kubelet import KubeletOptions
from tests.simulation.node.simulated_node import SimulatedNode
from tests.simulation.node.sockets import Sockets
from tests.simulation.node.violations import HardwareChecker
from tests.simulation.workload import Mode

if TYPE_CHECKING:
    from tests.simulation.case import Case

Tree = dict[str, Any]
Action = Callable[[Dice], str]

#: Time until a driver's call fails (seconds): 45 s in a kubelet.
_CALL_TIMEOUT = 10.0


class Nodes:
    """Simulated nodes of a case, by name."""

    def __init__(self, case: Case, *, counts_claims: bool) -> None:
        self._case = case
        place = "/dev/shm" if Path("/dev/shm").is_dir() else None
        self._directory = tempfile.TemporaryDirectory(prefix="plimsoll-simulation-", dir=place)
        self.sockets = Sockets(case.loop, NodeFaults(case.faults), case.history)
        self.sockets.install()
        self.checker = HardwareChecker(case.report)
        options = KubeletOptions(counts_claims, _CALL_TIMEOUT, self._rejects)
        self.by_name = {
            name: SimulatedNode(
                name,
                Path(self._directory.name) / name,
                case.network,
                self.sockets,
                case.history,
                self.checker,
                allocatable=ALLOCATABLE,
                inventories=inventories,
                options=options,
                lifetime=self._lifetime,
            )
            for name, inventories in find_inventories().items()
        }

    def start(self) -> None:
        for node in self.by_name.values():
            node.start()

    def end(self) -> None:
        """Remove the disks."""
        self._directory.cleanup()

    def find_leaks(self) -> list[str]:
        """Return what is wrong at rest."""
        return [f"node {name}: {each}" for name, node in self.by_name.items() for each in node.find_leaks()]

    def release_forgotten_claims(self) -> None:
        for node in self.by_name.values():
            node.release_forgotten_claims()

    def _rejects(self, pod: Tree) -> str:
        key = f"{pod['metadata']['name']}/{pod['metadata']['uid']}/rejected"
        if self._case.at_rest or self._case.dice(key).random() > 0.03 or not self._case.faults.permits(key):
            return ""
        self._case.faults.note(key, "pod rejected by its kubelet")
        return "OutOfpods"

    def _lifetime(self, pod: Tree) -> tuple[float, str] | None:
        dice = self._case.dice(f"{pod['metadata']['uid']}/lifetime")
        if dice.random() < 0.7 or pod["metadata"]["namespace"] == "plimsoll-placeholders":
            return None
        return dice.between(1, 30), "Succeeded" if dice.random() < 0.7 else "Failed"

    # -- faults

    def actions(self) -> Iterator[tuple[str, int, Action]]:
        """Yield kinds of faults, how often they happen, and what does them."""
        yield "kubelet crashed", 4, self._crash_kubelet
        yield "driver crashed", 4, self._crash_driver
        yield "driver stopped", 2, self._stop_driver
        yield "slices republished", 4, self._republish
        yield "device removed for a while", 2, self._remove_device
        if self._case.mode is Mode.NODES:
            yield "device tainted", 4, self._taint
        yield "node powered off", 2, self._power_off
        yield "node vanished", 1, self._vanish
        yield "node paused", 2, self._pause

    def _pick(self, dice: Dice) -> SimulatedNode:
        return dice.choice(list(self.by_name.values()))

    def _later(self, seconds: float, callback: Callable[[], None]) -> None:
        self._case.loop.call_at_global(self._case.loop.now + seconds, callback)

    def _crash_kubelet(self, dice: Dice) -> str:
        node = self._pick(dice)
        node.kubelet.crash()
        return f"kubelet of {node.name} crashes"

    def _crash_driver(self, dice: Dice) -> str:
        driver = dice.choice(list(self._pick(dice).drivers.values()))
        driver.crash()
        return f"driver {driver.inventory.driver} of {driver.inventory.pool} crashes"

    def _stop_driver(self, dice: Dice) -> str:
        driver = dice.choice(list(self._pick(dice).drivers.values()))
        driver.stop()
        self._later(dice.between(0.5, 10), driver.start)
        return f"driver {driver.inventory.driver} of {driver.inventory.pool} stops"

    def _republish(self, dice: Dice) -> str:
        driver = dice.choice(list(self._pick(dice).drivers.values()))
        driver.republish()
        return f"driver {driver.inventory.driver} of {driver.inventory.pool} publishes a new generation"

    def _remove_device(self, dice: Dice) -> str:
        driver = dice.choice(list(self._pick(dice).drivers.values()))
        if len(driver.inventory.devices) < 2:
            return ""
        tree = driver.inventory.devices[dice.choice(list(driver.inventory.devices))]
        driver.remove_device(tree["name"])
        self._later(dice.between(0.5, 10), lambda: driver.add_device(tree))
        return f"device {tree['name']} of {driver.inventory.pool} is gone for a while"

    def _taint(self, dice: Dice) -> str:
        driver = dice.choice(list(self._pick(dice).drivers.values()))
        name = dice.choice(list(driver.inventory.devices))
        taint = {"key": "broken", "effect": dice.choice(("NoSchedule", "NoExecute"))}
        driver.taint(name, *(() if driver.inventory.taints.get(name) else (taint,)))
        return f"taint or untaint {name} of {driver.inventory.pool}"

    def _power_off(self, dice: Dice) -> str:
        node = self._pick(dice)
        node.power_off()
        self._later(dice.between(0.5, 10), node.start)
        return f"{node.name} is powered off"

    def _vanish(self, dice: Dice) -> str:
        """Power a node off and delete its object; it comes back later."""
        node, admin = self._pick(dice), self._case.admin
        node.power_off()
        admin.send("DELETE", NODES.path(None, node.name))

        def come_back() -> None:
            admin.create_node(node.name)
            node.start()

        self._later(dice.between(1, 15), come_back)
        return f"{node.name} vanishes"

    def _pause(self, dice: Dice) -> str:
        node, seconds = self._pick(dice), dice.between(0.5, 10)
        for process in (node.kubelet.process, *(each.process for each in node.drivers.values())):
            if process is not None:
                process.pause(seconds)
        return f"{node.name} is paused for {seconds:.2f} s"


def find_inventories() -> dict[str, list[Inventory]]:
    """Return the devices of the small cluster by node; those that all nodes share have no driver there."""
    found: dict[str, dict[str, Inventory]] = {}
    for each in slices():
        spec = each["spec"]
        if node := spec.get("nodeName"):
            drivers = found.setdefault(node, {})
            inventory = drivers.setdefault(
                spec["driver"], Inventory(spec["driver"], spec["pool"]["name"], {})
            )
            for device in spec.get("devices", ()):
                inventory.add(device)
            inventory.counters += tuple(spec.get("sharedCounters", ()))
    return {node: list(drivers.values()) for node, drivers in found.items()}
