"""Node of the simulation: its kubelet, its drivers, and the faults that a case can inject. START HERE."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.simulation.history import History
from tests.simulation.network import Network
from tests.simulation.node.driver_host import DriverHost
from tests.simulation.node.environment import NodeEnvironment
from tests.simulation.node.hardware import Hardware, Inventory
from tests.simulation.node.kubelet import Kubelet, KubeletOptions
from tests.simulation.node.sockets import Sockets
from tests.simulation.node.violations import HardwareChecker, NodeState, find_forgotten, find_leaks

Tree = dict[str, Any]


class SimulatedNode:
    """Node with all that runs on it; the case creates its Node object."""

    def __init__(
        self,
        name: str,
        directory: Path,
        network: Network,
        sockets: Sockets,
        history: History,
        checker: HardwareChecker,
        *,
        allocatable: Mapping[str, str],
        inventories: Iterable[Inventory] = (),
        options: KubeletOptions | None = None,
        lifetime: Callable[[Tree], tuple[float, str] | None] = lambda pod: None,
        clock: Mapping[str, float] | None = None,
    ) -> None:
        """Create a node whose processes do not run yet; `directory` is its disk.

        `lifetime` returns the seconds for which the containers of a pod run and the phase in which they end,
        None if they run until they are stopped. `clock` are keywords of `SimulationLoop.process`.
        """
        directory.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.hardware = Hardware(name)
        self.environment = NodeEnvironment(
            name,
            directory,
            network.loop,
            network,
            sockets,
            history,
            self.hardware,
            self._report,
            lifetime,
            clock or {},
        )
        self._checker = checker
        self.kubelet = Kubelet(self.environment, allocatable, options)
        self.drivers = {each.driver: DriverHost(self.environment, each) for each in inventories}
        self.hardware.on_change = self.environment.on_start = self._check

    # -- processes

    def start(self) -> None:
        """Start the processes that do not run."""
        for driver in self.drivers.values():
            driver.start()
        self.kubelet.start()

    def kill(self) -> None:
        """Kill all processes of the node."""
        self.kubelet.kill()
        for driver in self.drivers.values():
            driver.kill()

    def power_off(self) -> None:
        """Lose all but the disk: containers and devices are reset. `start` boots the node."""
        environment = self.environment
        self.kill()
        environment.history.note(self.name, "is powered off")
        environment.containers.clear()
        environment.boots += 1
        self.hardware.reset()

    def release_forgotten_claims(self) -> None:
        """Let drivers release claims that the kubelet has forgotten with its checkpoint and no pod uses."""
        stale = list(find_forgotten(self.state(), self._checker.pods, self._checker.claims))
        for driver in self.drivers.values():
            driver.release_stale_claims(stale)

    # -- checks

    def state(self) -> NodeState:
        environment = self.environment
        pods = {uid: each.pod for uid, each in environment.containers.items()}
        return NodeState(self.hardware, environment.directory, pods, self.kubelet.forgotten)

    def find_leaks(self) -> list[str]:
        """Return what is wrong when nothing changes any more."""
        return list(find_leaks(self.state(), self._checker.pods, self._checker.claims))

    def check_at_rest(self) -> None:
        """Report what is wrong when nothing changes any more."""
        self._checker.check_at_rest(self.state())

    def _check(self) -> None:
        self._checker.check(self.state())

    def _report(self, text: str, error: BaseException | None) -> None:
        self._checker.report(text)
