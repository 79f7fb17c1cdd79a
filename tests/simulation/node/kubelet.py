"""Kubelet of a node: what it keeps across restarts, and its process.

Durable are the checkpoint of its claim manager, the pods that it has admitted, and the containers that run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tests.simulation.faults import Dice
from tests.simulation.loop import Process
from tests.simulation.node.admission import PodLoad
from tests.simulation.node.environment import NodeEnvironment
from tests.simulation.node.kubelet_process import KubeletProcess

Tree = dict[str, Any]

PLACEHOLDERS = "plimsoll-placeholders"
_RESTART_SECONDS = (0.5, 10.0)


@dataclass
class KubeletOptions:
    """Behavior of a kubelet that the case decides."""

    #: Whether the charges of claims in the statuses of pods count (feature gate DRANodeAllocatableResources).
    counts_claims: bool = True
    #: Time until a driver's call fails (seconds).
    call_timeout: float = 45.0
    #: Reason for which a pod is rejected regardless of what it requests, or "".
    rejects: Callable[[Tree], str] = lambda pod: ""


class Kubelet:
    """Kubelet of a node."""

    def __init__(
        self, node: NodeEnvironment, allocatable: Mapping[str, str], options: KubeletOptions | None = None
    ) -> None:
        self.node = node
        #: Amounts for pods; the case may change them.
        self.allocatable = dict(allocatable)
        self.options = options or KubeletOptions()
        #: Admitted pods by UID, in the order of their admission.
        self.admitted: dict[str, PodLoad] = {}
        #: UIDs of the claims that were in a checkpoint which was lost.
        self.forgotten: dict[str, None] = {}
        self.current: KubeletProcess | None = None
        self._starts = 0

    @property
    def process(self) -> Process | None:
        return self.current.process if self.current is not None else None

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.alive

    def start(self) -> None:
        """Start the process, if it does not run."""
        if self.running:
            return
        self._starts += 1
        node = self.node
        process = node.loop.process(f"kubelet-{node.name}#{self._starts}", **node.clock)
        node.history.note(process.name, "starts")
        self.current = KubeletProcess(self, process)
        process.start(self.current.run())

    def kill(self) -> None:
        """End the process at once; containers go on."""
        process = self.process
        if process is not None and process.alive:
            self.node.history.note(process.name, "is killed")
            process.kill()

    def crash(self) -> None:
        """Kill the process; its supervisor starts it again."""
        dice = Dice(self.node.faults.plan.seed, f"kubelet-{self.node.name}/{self._starts}")
        self.kill()
        loop = self.node.loop
        loop.call_at_global(loop.now + dice.between(*_RESTART_SECONDS), self.start)

    def damage_checkpoint(self) -> None:
        """Truncate the checkpoint of the claim manager; call it while the process does not run."""
        path = self.node.directory / "claims.json"
        if path.exists():
            self.node.history.note(f"kubelet-{self.node.name}", "! loses its checkpoint of claims")
            content = path.read_bytes()
            with suppress(ValueError):  # it is damaged already
                self.forgotten |= dict.fromkeys(each["uid"] for each in json.loads(content)["body"]["claims"])
            path.write_bytes(content[:20])
