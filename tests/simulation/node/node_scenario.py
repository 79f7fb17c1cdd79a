"""Case of two nodes under faults, with a scripted scheduler: the test of `tests.simulation.node`."""

from __future__ import annotations

import asyncio
import gc
import logging
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

from plimsoll.client.transport import Request  # noqa: F401  (the product is imported before a case runs)
from tests.simulation.api import ApiServer, Change
from tests.simulation.clocks import EPOCH
from tests.simulation.faults import Dice, FaultPlan, Weather
from tests.simulation.history import History
from tests.simulation.loop import SimulationLoop
from tests.simulation.network import Network
from tests.simulation.node.call_faults import NodeFaults
from tests.simulation.node.hardware import Inventory
from tests.simulation.node.kubelet import KubeletOptions
from tests.simulation.node.scripted_cluster import ScriptedCluster
from tests.simulation.node.simulated_node import SimulatedNode
from tests.simulation.node.sockets import Sockets
from tests.simulation.node.violations import HardwareChecker, results_of

Tree = dict[str, Any]

GPU, NIC = "gpu.example.com", "nic.example.com"
_ALLOCATABLE = {"cpu": "4", "memory": "8Gi", "pods": "12"}
#: Seconds of the simulation with faults, and without them at the end.
_STORMY, _REST = 300.0, 400.0
_WEATHERS = (Weather.CALM, Weather.SLOW, Weather.LOSSY, Weather.FAILING, Weather.MIXED, Weather.MIXED)
_TAINT = {"key": "broken", "effect": "NoExecute"}


class Outcome(NamedTuple):
    """Result of a case."""

    violations: list[str]
    counts: Counter[str]
    digest: str
    steps: int
    history: History


def inventories(node: str) -> list[Inventory]:
    """Return the devices of a node: exclusive ones, partitions that share counters, and a shared one."""
    gpus: dict[str, Tree] = {f"gpu-{number}": {"name": f"gpu-{number}"} for number in range(3)}
    for number, cores in enumerate(("2", "2", "4")):
        use = {"counterSet": "big", "counters": {"cores": {"value": cores}}}
        gpus[f"part-{number}"] = {"name": f"part-{number}", "consumesCounters": [use]}
    counters = ({"name": "big", "counters": {"cores": {"value": "4"}}},)
    port = {"name": "port", "allowMultipleAllocations": True, "capacity": {"slots": {"value": "10"}}}
    return [Inventory(GPU, node, gpus, counters), Inventory(NIC, f"{node}-nic", {"port": port})]


class NodeScenario:
    """One case."""

    def __init__(self, seed: int, directory: Path, allowed: frozenset[str] | None = None) -> None:
        self.loop = SimulationLoop(Random(seed), shuffled=seed % 3 == 0)
        self.plan = FaultPlan(seed, 15.0, allowed)
        self.history = History(self.loop)
        self.violations: list[str] = []
        self.counts: Counter[str] = Counter()
        self._dice = Random(seed ^ 0x5EED)
        uids = Random(seed + 1)
        self.api = ApiServer(
            now=lambda: EPOCH + self.loop.now, new_uid=lambda: str(UUID(int=uids.getrandbits(128), version=4))
        )
        self.cluster = ScriptedCluster(self.api, self.history)
        self.checker = HardwareChecker(self._report)
        self.api.on_write = self._on_write
        network = self.network = Network(self.loop, self.api, self.plan, self.history)
        sockets = self.sockets = Sockets(self.loop, NodeFaults(self.plan), self.history)
        sockets.install()
        self.nodes = []
        for name in ("node-a", "node-b"):
            self.cluster.create_node(name, _ALLOCATABLE)
            node = SimulatedNode(
                name,
                directory / name,
                network,
                sockets,
                self.history,
                self.checker,
                allocatable=_ALLOCATABLE,
                inventories=inventories(name),
                options=KubeletOptions(rejects=self._rejects),
                lifetime=self._lifetime,
            )
            self.nodes.append(node)
        self._pods = 0

    # -- parts of the world

    def _report(self, text: str) -> None:
        self.history.note("checker", "VIOLATION:", text)
        self.violations.append(f"{self.loop.now:.3f} {text}")

    def _on_write(self, change: Change) -> None:
        tree = change.new or change.old
        assert tree is not None
        self.history.note_write(change.type.lower(), tree)
        self.checker.on_change(change.resource, change.old, change.new)
        if change.resource == "pods" and change.new is not None:
            self.counts[f"pods {change.new['status'].get('phase')}"] += 1

    def _rejects(self, pod: Tree) -> str:
        dice = Dice(self.plan.seed, f"{pod['metadata']['name']}/rejected")
        return "OutOfpods" if dice.random() < 0.03 else ""

    def _lifetime(self, pod: Tree) -> tuple[float, str] | None:
        dice = Dice(self.plan.seed, f"{pod['metadata']['name']}/lifetime")
        if dice.random() < 0.5:
            return None
        return dice.between(1, 60), "Succeeded" if dice.random() < 0.7 else "Failed"

    # -- the case

    async def run(self) -> None:
        for node in self.nodes:
            node.start()
        await asyncio.sleep(3)
        for name in ("shared-0", "shared-1"):
            self.cluster.create_claim(name)
        while self.loop.now < _STORMY:
            await asyncio.sleep(self._dice.random() * 4)
            self._act()
            self.cluster.release_claims()
        self.plan.weather = Weather.CALM
        self.history.note("system", "faults stop")
        for node in self.nodes:
            for driver in node.drivers.values():
                driver.inventory.taints.clear()
                for tree in driver.inventory.known.values():
                    driver.inventory.add(tree)
        for number in range(int(_REST / 10)):
            for node in self.nodes:
                node.start()
                if number == 6:
                    node.release_forgotten_claims()
            await asyncio.sleep(10)
            self.cluster.release_claims()
        for node in self.nodes:
            node.check_at_rest()

    def _act(self) -> None:
        """Do one thing at random."""
        dice = self._dice
        choice = dice.random()
        node = dice.choice(self.nodes)
        pods = [pod for pod in self.cluster.pods() if not pod["metadata"].get("deletionTimestamp")]
        if choice < 0.45:
            self._create_pod(node)
        elif choice < 0.68:
            if pods:
                force = dice.random() < 0.3
                self.counts["force deletions" if force else "deletions"] += 1
                self.cluster.delete_pod(dice.choice(pods)["metadata"]["name"], force=force)
        else:
            self._disturb(node, choice)

    def _create_pod(self, node: SimulatedNode) -> None:
        dice, cluster = self._dice, self.cluster
        self._pods += 1
        name, claims = f"p{self._pods}", []
        for number in range(dice.choice((0, 1, 1, 2))):
            host = dice.choice(list(node.drivers.values()))
            amount = dice.choice(("2", "4", "7")) if host.inventory.driver == NIC else ""
            result = cluster.find_device(node.name, host.inventory, amount)
            if result is None:
                continue
            shared = f"shared-{dice.randrange(2)}"
            if dice.random() < 0.25 and self._is_free(shared):
                claim = shared
            else:
                claim = f"own-{name}-{number}"
                cluster.create_claim(claim)
            cluster.allocate(claim, result)
            claims.append(claim)
        shared = f"shared-{dice.randrange(2)}"
        if dice.random() < 0.4 and shared not in claims and self._is_on(shared, node):
            claims.append(shared)
        cluster.create_pod(name, dice.choice(("100m", "500m", "1")), claims, node.name)

    def _claim(self, name: str) -> Tree:
        return next(each for each in self.cluster.claims() if each["metadata"]["name"] == name)

    def _is_free(self, claim: str) -> bool:
        return not (self._claim(claim).get("status") or {}).get("allocation")

    def _is_on(self, claim: str, node: SimulatedNode) -> bool:
        return any(each["pool"].startswith(node.name) for each in results_of(self._claim(claim)))

    def _disturb(self, node: SimulatedNode, choice: float) -> None:
        dice = self._dice
        driver = dice.choice(list(node.drivers.values()))
        key = f"{node.name}/{self.loop.now:.6f}"
        kinds = (
            "weather", "weather", "weather", "kubelet crash", "kubelet crash", "driver crash", "driver stop",
            "republish", "taint", "device removed", "power off", "checkpoint lost", "API restart", "pause",
            "kubelet down",
        )  # fmt: skip
        kind = dice.choice(kinds)
        seconds = dice.uniform(0.5, 40)
        if kind == "weather":
            self.plan.weather = dice.choice(_WEATHERS)
            self.history.note("system", "weather:", self.plan.weather.value)
            return
        if not self.plan.permits(key):
            return
        self.plan.note(key, kind)
        self.history.note("system", f"! {kind} of {node.name}")
        names = list(driver.inventory.devices)
        match kind:
            case "kubelet crash":
                node.kubelet.crash()
            case "driver crash":
                driver.crash()
            case "driver stop":
                driver.stop()
                self._later(seconds, driver.start)
            case "republish":
                driver.republish()
            case "taint":
                device = dice.choice(names)
                driver.taint(device, *(() if driver.inventory.taints.get(device) else (_TAINT,)))
            case "device removed":
                if len(names) > 2:
                    tree = driver.inventory.devices[dice.choice(names)]
                    driver.remove_device(tree["name"])
                    self._later(seconds, lambda: driver.add_device(tree))
            case "power off":
                node.power_off()
                self._later(seconds, node.start)
            case "checkpoint lost":
                node.kubelet.kill()
                node.kubelet.damage_checkpoint()
                self._later(seconds, node.kubelet.start)
            case "API restart":
                self.network.restart(seconds / 10)
            case "pause":
                for process in (node.kubelet.process, driver.process):
                    if process is not None:
                        process.pause(seconds)
            case "kubelet down":
                node.kubelet.kill()
                self._later(seconds, node.kubelet.start)

    def _later(self, seconds: float, callback: Any) -> None:
        self.loop.call_at_global(self.loop.now + seconds, callback)


class _BugHandler(logging.Handler):
    """Handler that reports logged exceptions which no fault explains."""

    def __init__(self, scenario: NodeScenario) -> None:
        super().__init__(logging.ERROR)
        self._scenario = scenario

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, OSError):
            self._scenario._report(f"logged: {record.getMessage()}: {type(error).__name__}: {error}")


def run_case(seed: int, allowed: frozenset[str] | None = None) -> Outcome:
    """Run a case, in a process of its own: when the case is collected, its coroutines would run once more."""
    place = "/dev/shm" if Path("/dev/shm").is_dir() else None
    directory = Path(tempfile.mkdtemp(prefix="plimsoll-sim-", dir=place))
    gc.disable()
    try:
        scenario = NodeScenario(seed, directory, allowed)
        log = logging.getLogger("plimsoll")
        handler = _BugHandler(scenario)
        log.addHandler(handler)
        log.propagate = False
        try:
            scenario.loop.run_case(scenario.run())
        finally:
            log.removeHandler(handler)
            scenario.loop.end()
        history = scenario.history
        counts = scenario.counts + scenario.plan.counts + scenario.sockets.counts
        return Outcome(scenario.violations, counts, history.digest(), scenario.loop.steps, history)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        gc.enable()
