"""Class rows: devices of each DeviceClass, and how many of them claims can still get (`tools/availability`).

Partitions of devices have rows of their own, by the attribute that names their type: the one that the slice
declares (`partitionTypeAttribute`), else one called `profile`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from plimsoll.allocator.devices.node_devices import bit_numbers
from plimsoll.api.identity import DeviceId
from plimsoll.tools.availability import (
    Availability,
    CapacityLeft,
    ClassAvailability,
    DevicesOnNodes,
    select_offered,
)
from plimsoll.tools.cluster_state import ClusterState


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """Partitions of one type in a class; "" for devices without a type."""

    type: str
    devices: int
    held: int  #: in use by claims
    free: int  #: that can be allocated if no other partition is
    most: int  #: on one node

    def as_json(self) -> dict[str, Any]:
        return {
            "type": self.type or None,
            "devices": self.devices,
            "held": self.held,
            "free": self.free,
            "mostOnOneNode": self.most,
        }


@dataclass(frozen=True, slots=True)
class ClassRow:
    """Devices of one class."""

    device_class: str
    devices: int = 0  #: offered devices that the class selects
    held: int = 0  #: of these, in use by claims
    free: int = 0  #: that can still be allocated, on all nodes
    nodes: Mapping[str, int] = field(default_factory=dict)  #: node -> devices that one pod can get there
    capacity: Mapping[str, CapacityLeft] = field(default_factory=dict)
    partitions: tuple[PartitionRow, ...] = ()
    is_exact: bool = True  #: False if more may be free
    tainted: Mapping[str, DevicesOnNodes] = field(default_factory=dict)  #: by node taints: part of `free`
    closed: Mapping[str, DevicesOnNodes] = field(default_factory=dict)  #: by reason: not in `free`
    device_taints: Mapping[str, int] = field(default_factory=dict)  #: free if claims tolerate the taint
    problem: str = ""  #: reason why the class selects nothing

    @property
    def most(self) -> int:
        return max(self.nodes.values(), default=0)

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.device_class,
            "devices": self.devices,
            "held": self.held,
            "free": self.free,
            "mostOnOneNode": self.most,
            "nodes": [{"node": node, "free": count} for node, count in sorted(self.nodes.items())],
            "capacity": [
                {
                    "name": name,
                    "whole": str(each.total),
                    "left": str(each.left),
                    "mostOnOneDevice": str(each.most),
                }
                for name, each in self.capacity.items()
            ],
            "partitions": [each.as_json() for each in self.partitions],
            "exact": self.is_exact,
            "nodeTaints": _counts(self.tainted),
            "leftOut": _counts(self.closed),
            "deviceTaints": dict(sorted(self.device_taints.items())),
            "problem": self.problem or None,
        }


def _counts(counts: Mapping[str, DevicesOnNodes]) -> dict[str, Any]:
    return {text: each.as_json() for text, each in sorted(counts.items())}


def class_rows(cluster_state: ClusterState, name: str = "") -> list[ClassRow]:
    """Return the rows of all classes, or of one, by name."""
    availability = Availability(cluster_state.snapshot)
    names = sorted(cluster_state.snapshot.classes)
    return [_row(availability.of_class(each)) for each in names if not name or each == name]


def devices_of_class(cluster_state: ClusterState, name: str) -> set[DeviceId]:
    """Return the offered devices that a class selects; none if there is no such class."""
    snapshot = cluster_state.snapshot
    device_class = snapshot.classes.get(name)
    if device_class is None:
        return set()
    return {
        devices.entries[number].id
        for devices, _ in snapshot.inventory.cluster_pools()
        for number in bit_numbers(select_offered(device_class, devices))
    }


def free_by_class(
    cluster_state: ClusterState, names: Iterable[str] | None = None
) -> dict[str, dict[str, int]]:
    """Return {node: {class: devices that one pod can get there}} of all nodes or of some, without zeros."""
    snapshot = cluster_state.snapshot
    found: dict[str, dict[str, int]] = {}
    if not snapshot.classes:
        return found
    rows = None if names is None else [row for row in map(snapshot.row_of, names) if row is not None]
    for each in Availability(snapshot, rows).all_classes():
        for node, count in each.nodes.items():
            found.setdefault(node, {})[each.device_class] = count
    return found


def _row(found: ClassAvailability) -> ClassRow:
    partitions = tuple(
        PartitionRow(kind.value, each.devices, each.held, each.total, each.most)
        for kind, each in sorted(found.types.items(), key=lambda item: (not item[0].value, item[0]))
    )
    return ClassRow(
        found.device_class,
        found.devices,
        found.held,
        found.total,
        found.nodes,
        found.capacity,
        partitions if len(partitions) > 1 else (),
        found.is_exact,
        found.tainted,
        found.closed,
        found.device_taints,
        found.problem,
    )
