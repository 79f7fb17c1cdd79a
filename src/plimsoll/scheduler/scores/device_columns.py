"""Columns of extended resources that devices serve: the devices of the class, and those not allocated.

For scores by such a resource on nodes that do not advertise it (KEP-5004). Counted for each attempt, and only
if a profile weighs the resource and the pod requests it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from plimsoll.allocator import AllocationFault
from plimsoll.allocator.devices.usage import DeviceUsage
from plimsoll.api.resource import expressions_of
from plimsoll.ledger.columns import Column, Mask, NodeColumns
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.snapshot.snapshot import Snapshot


class DeviceColumns(NodeColumns):
    """Columns of the ledgers in which some resources are replaced."""

    __slots__ = ("_base", "_left", "_line")

    def __init__(self, base: NodeColumns, line: Mapping[str, Column], left: Mapping[str, Column]) -> None:
        super().__init__(size=base.size)
        self._base = base
        self._line = line
        self._left = left

    def allocatable(self, name: str) -> Column:
        return self._line[name] if name in self._line else self._base.allocatable(name)

    def free(self, name: str) -> Column:
        return self._left[name] if name in self._left else self._base.free(name)

    def non_zero_free(self, name: str) -> Column:
        return self._left[name] if name in self._left else self._base.non_zero_free(name)


def count_devices(
    pod_info: PodInfo, snapshot: Snapshot, feasible: Mask, names: Collection[str]
) -> DeviceColumns:
    """Return columns in which these resources are counted in devices on nodes that do not advertise them."""
    base = snapshot.columns
    line = {name: base.allocatable(name).copy() for name in names}
    left = {name: base.free(name).copy() for name in names}
    for row in np.flatnonzero(feasible).tolist():
        absent = [name for name in names if not line[name][row]]
        devices = snapshot.inventory.devices_for(snapshot.node(row)) if absent else None
        if devices is None or isinstance(devices, AllocationFault):
            continue
        usage = DeviceUsage(devices, snapshot.state)
        for name in absent:
            found = snapshot.classes.get(pod_info.extended_classes[name])
            selectors = found.spec.selectors if found is not None else ()
            expressions = expressions_of(selectors)
            matching = devices.select(expressions, ()).mask
            line[name][row] = matching.bit_count()
            left[name][row] = (matching & ~(usage.taken | usage.shared)).bit_count()
    return DeviceColumns(base, line, left)
