"""Machine of a node: what its processes share, and what outlives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.simulation.history import History
from tests.simulation.loop import SimulationLoop
from tests.simulation.network import Network
from tests.simulation.node.call_faults import NodeFaults
from tests.simulation.node.hardware import Hardware
from tests.simulation.node.sockets import Sockets

Tree = dict[str, Any]


class RunningPod(NamedTuple):
    """Containers of a pod; they end in `phase` at a time of the simulation, or when they are stopped."""

    name: str
    pod: Tree
    ends_at: float | None = None
    phase: str = ""


@dataclass
class NodeEnvironment:
    """Machine of a node: its disk, sockets, devices and containers, and its network."""

    name: str
    directory: Path
    loop: SimulationLoop
    network: Network
    sockets: Sockets
    history: History
    hardware: Hardware
    #: Called with a violation, and the exception if there is one.
    report: Callable[[str, BaseException | None], None]
    #: Seconds for which the containers of a pod run, and the phase in which they end; None: until they are
    #: stopped.
    lifetime: Callable[[Tree], tuple[float, str] | None] = lambda pod: None
    #: Keywords of `SimulationLoop.process`: rate and offset of the clocks.
    clock: Mapping[str, float] = field(default_factory=dict)
    boots: int = 1
    #: Containers that run, by the UID of their pod: they outlive the kubelet.
    containers: dict[str, RunningPod] = field(default_factory=dict)
    #: Phase of pods whose containers have ended, by UID: a runtime keeps exited containers.
    ended: dict[str, str] = field(default_factory=dict)
    #: Called after containers have started.
    on_start: Callable[[], None] = lambda: None

    @property
    def faults(self) -> NodeFaults:
        return self.sockets.faults

    @property
    def boot_id(self) -> str:
        return f"boot-{self.name}-{self.boots}"

    def start_containers(self, uid: str, pod: Tree, who: str) -> None:
        meta = pod["metadata"]
        name, end = f"{meta['namespace']}/{meta['name']}", self.lifetime(pod)
        self.containers[uid] = RunningPod(
            name, pod, *((None, "") if end is None else (self.loop.now + end[0], end[1]))
        )
        self.history.note(who, "starts containers of", name)
        self.on_start()

    def stop_containers(self, uid: str, who: str, phase: str = "Failed") -> None:
        running = self.containers.pop(uid, None)
        if running is not None:
            self.ended[uid] = phase
            self.history.note(who, "stopped containers of", running.name)
