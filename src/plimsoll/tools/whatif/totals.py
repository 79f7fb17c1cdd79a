"""Cluster totals before and after, and the nodes that changed; amounts in ledger units."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from plimsoll.scheduler.filters.mixed_advertisers import claimed_driver
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.tools.amounts import format_amount, resource_order
from plimsoll.tools.availability import closed_reason
from plimsoll.tools.cluster_state import ClusterState


@dataclass(frozen=True, slots=True)
class ClusterTotals:
    """Cluster totals."""

    nodes: int
    placed: int
    pending: int
    line: Mapping[str, int]
    free: Mapping[str, int]  #: on nodes that take pods; negative where nodes are past their line

    def as_json(self) -> dict[str, Any]:
        names = sorted(self.line, key=resource_order)
        return {
            "nodes": self.nodes,
            "placed": self.placed,
            "pending": self.pending,
            "line": {name: format_amount(name, self.line[name]) for name in names},
            "free": {name: format_amount(name, self.free[name]) for name in names},
        }


#: Node -> resource -> free amount.
FreeByNode = Mapping[str, Mapping[str, int]]


def free_by_node(snapshot: Snapshot, known: FreeByNode | None = None) -> FreeByNode:
    """Return the free amounts of every node, of which some are known; negative means past the line. Units of
    device plugins that claims may hold are not free.
    """
    known = known or {}
    names = ((row, snapshot.node(row).metadata.name) for row in snapshot.rows())
    return {name: known[name] if name in known else _free_amounts(snapshot, row) for row, name in names}


def _free_amounts(snapshot: Snapshot, row: int) -> Mapping[str, int]:
    free = snapshot.ledger(row).headroom()
    held = [name for name, units in free.items() if units > 0 and claimed_driver(snapshot, row, name)]
    return {**free, **dict.fromkeys(held, 0)} if held else free


def sum_totals(cluster_state: ClusterState, free_amounts: FreeByNode) -> ClusterTotals:
    """Return the totals of a cluster; `free_amounts` are those of its nodes."""
    snapshot = cluster_state.snapshot
    placed = sum(bool(pod.spec.node_name) for pod in cluster_state.pods)
    line, free = Counter[str](), Counter[str]()
    for row in snapshot.rows():
        node = snapshot.node(row)
        amounts, is_closed = free_amounts[node.metadata.name], bool(closed_reason(node))
        line.update({**dict.fromkeys(amounts, 0), **snapshot.ledger(row).allocatable})
        free.update(dict.fromkeys(amounts, 0) if is_closed else amounts)
    return ClusterTotals(len(snapshot), placed, len(cluster_state.pending), line, free)


@dataclass(frozen=True, slots=True)
class NodeChange:
    """Node whose free amounts changed; None on the side where the node does not exist."""

    node: str
    before: Mapping[str, int] | None
    after: Mapping[str, int] | None

    def as_json(self) -> dict[str, Any]:
        def texts(free: Mapping[str, int] | None) -> dict[str, str] | None:
            if free is None:
                return None
            return {name: format_amount(name, free[name]) for name in sorted(free, key=resource_order)}

        return {"node": self.node, "freeBefore": texts(self.before), "freeAfter": texts(self.after)}


def changed_nodes(before: FreeByNode, after: FreeByNode) -> tuple[NodeChange, ...]:
    """Return the nodes whose free amounts differ, by name."""
    return tuple(
        NodeChange(node, before.get(node), after.get(node))
        for node in sorted({*before, *after})
        if before.get(node) != after.get(node)
    )
