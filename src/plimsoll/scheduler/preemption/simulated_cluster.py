"""Simulation of a cluster without some of its pods; see `simulated_node`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import ExitStack

from plimsoll.api.core import Pod
from plimsoll.scheduler.preemption.simulated_node import NodeSimulation, SimulatedClaims
from plimsoll.scheduler.snapshot.snapshot import Snapshot


class ClusterSimulation:
    """Changes to any nodes of a snapshot for the duration of a `with` block.

    The devices of a claim are free once all its consumers, on whatever node, are removed. With `invalidates`,
    results that were cached in the simulation do not hold afterwards.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        kept: Collection[str] = (),
        *,
        frees_devices: bool = True,
        invalidates: bool = True,
    ) -> None:
        self._snapshot = snapshot
        self._kept = kept
        self._frees_devices = frees_devices
        self._invalidates = invalidates
        self._claims = SimulatedClaims()
        self._stack = ExitStack()
        self._nodes: dict[int, NodeSimulation] = {}

    def __enter__(self) -> ClusterSimulation:
        self._stack.__enter__()
        return self

    def __exit__(self, *details: object) -> None:
        highest = self._snapshot.generations.last
        self._stack.close()
        if self._invalidates:
            self._snapshot.generations.last = highest
            self._snapshot.generations.bump(None)

    def remove(self, pods: Iterable[tuple[int, Pod]]) -> None:
        for row, own in _by_row(pods).items():
            self.node(row).remove_pods(own)
        if self._invalidates:
            self._snapshot.generations.bump(None)  # what did not fit may fit now

    def restore(self, pods: Iterable[tuple[int, Pod]]) -> None:
        for row, own in _by_row(pods).items():
            self.node(row).restore_pods(own)

    def node(self, row: int) -> NodeSimulation:
        """Return the simulation of a node."""
        node = self._nodes.get(row)
        if node is None:
            node = NodeSimulation(
                self._snapshot, row, self._kept, frees_devices=self._frees_devices, claims=self._claims
            )
            self._nodes[row] = node
            self._stack.enter_context(node)
        return node


def _by_row(pods: Iterable[tuple[int, Pod]]) -> dict[int, list[Pod]]:
    found: dict[int, list[Pod]] = {}
    for row, pod in pods:
        found.setdefault(row, []).append(pod)
    return found
