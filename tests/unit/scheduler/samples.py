"""Random nodes, pods and changes of a small cluster, for property tests of filters and scores.

Names, labels, taints and amounts are drawn from few values, so that they meet. Everything comes from one
seed, which a failing test prints: drawing a cluster piece by piece would take hypothesis a hundred times
longer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, TypeVar

from hypothesis import strategies as st

from plimsoll.api.core import Node, Pod
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from tests.build import container, node, pod
from tests.unit.scheduler.snapshots import snapshot_of

T = TypeVar("T")
SEEDS = st.integers(0, 2**32 - 1)
NODES = tuple(f"n{number}" for number in range(6))
LABELS = ("zone", "disk")
VALUES = ("a", "b", "7", "12")
EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")
RESOURCES = ("cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "example.com/gpu")
AMOUNTS = ("0", "1", "2", "3", "5", "9")
OPERATORS = ("In", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Near")


class Draws:
    """Random objects of a cluster."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def one(self, *values: T) -> T:
        return self.random.choice(values)

    def some(self, most: int, make: Callable[[], T], least: int = 0) -> list[T]:
        return [make() for _ in range(self.random.randint(least, most))]

    def mapping(self, keys: Sequence[str], values: Sequence[str], most: int) -> dict[str, str]:
        return {self.one(*keys): self.one(*values) for _ in range(self.random.randint(0, most))}

    def maybe(self, **fields: Any) -> dict[str, Any]:
        """Return some of these fields."""
        return {key: value for key, value in fields.items() if self.one(True, False)}

    # -- nodes

    def taint(self) -> dict[str, str]:
        return {"key": self.one("k", "l"), "value": self.one("", "v", "w"), "effect": self.one(*EFFECTS)}

    def node(self, name: str) -> Node:
        return node(
            name,
            pods=self.one("0", "1", "2", "9"),
            labels=self.mapping(LABELS, VALUES, 2),
            taints=self.some(2, self.taint),
            unschedulable=self.one(False, False, True),
            extended=self.mapping(RESOURCES, AMOUNTS, 4),
        )

    # -- pods

    def toleration(self) -> dict[str, str]:
        return self.maybe(
            key=self.one("", "k", "l", "node.kubernetes.io/unschedulable"),
            operator=self.one("", "Equal", "Exists", "Lt", "Near"),
            value=self.one("", "v", "w"),
            effect=self.one("", *EFFECTS),
        )

    def requirement(self) -> dict[str, Any]:
        """Return a label requirement; some are invalid."""
        values = self.some(2, lambda: self.one(*VALUES))
        return {"key": self.one(*LABELS), "operator": self.one(*OPERATORS), "values": values}

    def field(self) -> dict[str, Any]:
        operator = self.one("In", "In", "NotIn")
        return {"key": "metadata.name", "operator": operator, "values": [self.one(*NODES)]}

    def term(self) -> dict[str, Any]:
        return self.maybe(
            matchExpressions=self.some(2, self.requirement), matchFields=self.some(2, self.field)
        )

    def node_affinity(self) -> dict[str, Any]:
        return self.maybe(
            requiredDuringSchedulingIgnoredDuringExecution={"nodeSelectorTerms": self.some(3, self.term)},
            preferredDuringSchedulingIgnoredDuringExecution=self.some(
                3, lambda: {"weight": self.random.randint(0, 100), "preference": self.term()}
            ),
        )

    def port(self) -> dict[str, Any]:
        return {"containerPort": self.one(80, 81)} | self.maybe(
            hostPort=self.one(80, 81),
            hostIP=self.one("0.0.0.0", "10.0.0.1", "10.0.0.2"),
            protocol=self.one("TCP", "UDP"),
        )

    def container(self, name: str, **fields: Any) -> dict[str, Any]:
        ports = self.some(2, self.port)
        return container(name, host_ports=ports, **self.mapping(RESOURCES, AMOUNTS, 3)) | fields

    def pod(self, name: str, bound_to: str = "", **spec: Any) -> Pod:
        containers = [self.container(f"c{number}") for number in range(self.one(1, 2))]
        sidecar = self.maybe(restartPolicy="Always")
        drawn: dict[str, Any] = {
            "init": self.some(1, lambda: self.container("init", **sidecar)),
            "hostNetwork": self.one(True, False),
            "tolerations": self.some(2, self.toleration),
            "nodeSelector": self.mapping(LABELS, VALUES, 1),
            "affinity": self.one(None, {"nodeAffinity": self.node_affinity()}),
        }
        return pod(name, *containers, node=bound_to, **drawn | spec)

    # -- clusters

    def snapshot(self) -> Snapshot:
        """Return a snapshot after some changes."""
        made = snapshot_of(*(self.node(name) for name in NODES[: self.random.randint(0, 5)]))
        self.happen(made, self.random.randint(0, 5))
        return made

    def happen(self, snapshot: Snapshot, steps: int = 1) -> None:
        """Apply random changes: nodes and their pods are added, updated and removed."""
        for _ in range(steps):
            name = self.one(*NODES)
            match self.one("node", "node", "gone", "pod", "pod", "pod", "finished"):
                case "node":
                    snapshot.set(self.node(name))
                case "gone":
                    snapshot.remove(node(name))
                case "pod":
                    snapshot.set(self.pod(f"{self.one('p', 'q')}-{name}", bound_to=name))
                case _:
                    snapshot.remove(pod(f"{self.one('p', 'q')}-{name}"))
