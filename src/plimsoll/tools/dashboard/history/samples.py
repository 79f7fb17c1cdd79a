"""`take_sample`: ledgers of all nodes, availability of all classes and pending pods at one time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from plimsoll.tools.amounts import resource_order
from plimsoll.tools.availability import Availability
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.top.node_reports import totals_of
from plimsoll.tools.top.nodes import NodeRow, ResourceRow

#: Resource -> allocatable, requests, claims, overhead and not counted, in ledger units.
Amounts = Mapping[str, tuple[int, ...]]
COLUMNS = ("line", "requests", "claims", "overhead", "uncounted")


@dataclass(frozen=True, slots=True)
class Sample:
    """State of a cluster at one time."""

    time: int  #: seconds since the epoch
    pods: int
    pending: int
    totals: Amounts
    #: Class -> devices that can still be allocated; class and capacity -> what is left of it.
    classes: Mapping[str, int] = field(default_factory=dict)
    nodes: Mapping[str, Amounts] = field(default_factory=dict)


def take_sample(cluster_state: ClusterState, rows: Iterable[NodeRow], time: int) -> Sample:
    """Return the state of a cluster; resources that a node neither has nor uses are left out."""
    known = list(rows)
    return Sample(
        time,
        len(cluster_state.pods),
        len(cluster_state.pending),
        _amounts(totals_of(known)),
        dict(_availability(cluster_state)),
        {node.name: _amounts(node.rows) for node in known},
    )


def _availability(cluster_state: ClusterState) -> Iterator[tuple[str, int]]:
    """Yield each class with the devices that can still be allocated; for shareable devices, what is left of
    each capacity as `CLASS CAPACITY`.
    """
    for each in Availability(cluster_state.snapshot).all_classes():
        shared = {} if each.total else each.capacity
        for capacity, amount in shared.items():
            yield f"{each.device_class} {capacity.rpartition('/')[2]}", amount.left.nano // 10**9
        if not shared:
            yield each.device_class, each.total


def _amounts(rows: Iterable[ResourceRow]) -> dict[str, tuple[int, ...]]:
    amounts = {row.resource: tuple(getattr(row, column) for column in COLUMNS) for row in rows}
    return {resource: parts for resource, parts in amounts.items() if any(parts)}


def series_json(points: Iterable[tuple[int, Mapping[str, Any]]]) -> dict[str, Any]:
    """Return the series of points (time and values) as arrays of equal length; what is unknown is null.

    A point has `resources` and, for a whole cluster, `pods`, `pending` and `classes`.
    """
    known = list(points)
    resources = sorted({name for _, point in known for name in point["resources"]}, key=resource_order)
    classes = sorted({name for _, point in known for name in point.get("classes", {})})
    tree: dict[str, Any] = {
        "times": [time for time, _ in known],
        "resources": {
            name: {
                column: [_at(point["resources"].get(name), index) for _, point in known]
                for index, column in enumerate(COLUMNS)
            }
            for name in resources
        },
    }
    if any("pending" in point for _, point in known):
        tree["pods"] = [point.get("pods") for _, point in known]
        tree["pending"] = [point.get("pending") for _, point in known]
        tree["classes"] = {name: [point["classes"].get(name) for _, point in known] for name in classes}
    return tree


def _at(parts: Any, index: int) -> int | None:
    return parts[index] if isinstance(parts, list | tuple) and index < len(parts) else None
