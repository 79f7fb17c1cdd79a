"""Index of the nodes with devices on which a selector or derived attribute of a claim fails at run time.

kube-scheduler ends the attempt of a pod if an expression fails on a device of any node (KEP-4381, KEP-6080,
docs/spec/api.md). Devices are searched on few nodes here, so the nodes on which that can happen must
be known: usually there are none. Results are cached by selectors and node until the devices of a node may
have changed.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from plimsoll.allocator import AllocationFault
from plimsoll.allocator.devices.node_devices import NodeDevices
from plimsoll.api.core import Node
from plimsoll.api.pod_claims import device_requests
from plimsoll.api.resource import expressions_of
from plimsoll.errors import CelCompileError, CelRuntimeError
from plimsoll.ledger.columns import Column, Mask
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.snapshot.index import SnapshotIndex
from plimsoll.scheduler.snapshot.snapshot import Snapshot

#: Expressions of a request: the selectors of its class, its own, and its derived attributes.
Selectors: TypeAlias = "tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]"
#: Maximum number of resource signatures.
_MAX_SELECTORS = 256


class _KnownNodes:
    """Nodes with failing devices for some selectors, and the generation at which each was checked."""

    __slots__ = ("any", "checked_at", "generation", "mask", "selectors")

    def __init__(self, size: int, selectors: tuple[Selectors, ...]) -> None:
        self.selectors = selectors
        self.generation = -1
        self.mask: Mask = np.zeros(size, dtype=np.bool_)
        self.checked_at: Column = np.full(size, -1, dtype=np.int64)
        self.any = False

    def update(self, snapshot: Snapshot) -> None:
        """Check the nodes whose devices may have changed."""
        stale = snapshot.alive & (self.checked_at < snapshot.generations.device_rows)
        checked: dict[tuple[object, ...], bool] = {}  # machines of one type have equal devices
        inventory = snapshot.inventory
        for row in np.flatnonzero(stale).tolist() if self.selectors else ():
            devices = inventory.devices_for(snapshot.node(row))
            if isinstance(devices, AllocationFault):
                self.mask[row] = False
                continue
            signature = devices.signature or (row,)
            if signature not in checked:
                checked[signature] = any(has_failing_device(devices, each) for each in self.selectors)
            self.mask[row] = checked[signature]
        self.checked_at[stale] = snapshot.generations.device_rows[stale]
        self.any = bool((self.mask & snapshot.alive).any())
        self.generation = snapshot.generations.last


class SelectorErrorIndex(SnapshotIndex):
    """Nodes with failing devices, by the resource signature of a pod."""

    def __init__(self) -> None:
        self._size = 0
        self._known: dict[bytes, _KnownNodes] = {}

    def resized(self, size: int) -> None:
        self._size = size
        self._known.clear()

    def node_removed(self, row: int, node: Node) -> None:
        for known in self._known.values():
            known.mask[row] = False

    def failing_nodes(self, pod_info: PodInfo, snapshot: Snapshot) -> Mask | None:
        """Return the nodes with a device on which a selector of an unallocated claim fails; None if there
        are none.
        """
        key = pod_info.resource_signature
        known = self._known.pop(key, None)
        if known is None or known.generation != snapshot.generations.last:
            selectors = pod_selectors(pod_info, snapshot)
            if known is None or known.selectors != selectors:
                known = _KnownNodes(self._size, selectors)
            known.update(snapshot)
        self._known[key] = known  # least recently used first
        if len(self._known) > _MAX_SELECTORS:
            del self._known[next(iter(self._known))]
        return known.mask if known.any else None


def pod_selectors(pod_info: PodInfo, snapshot: Snapshot) -> tuple[Selectors, ...]:
    """Return the distinct selectors of a pod's unallocated claims."""
    found: dict[Selectors, None] = {}
    for claim in pod_info.unallocated_claims:
        for _, body in device_requests(claim):
            device_class = snapshot.classes.get(body.device_class_name)
            of_class = () if device_class is None else device_class.spec.selectors
            own, general = (expressions_of(selectors) for selectors in (body.selectors, of_class))
            found[general, own, tuple(each.expression for each in body.derived_attributes)] = None
    return tuple(found)


def has_failing_device(devices: NodeDevices, selectors: Selectors) -> bool:
    """Return whether an expression fails on a device of a node."""
    general, own, derived = selectors
    selection = devices.select(general, own)
    if derived and devices.features.derived_attributes:
        # Derived attributes are evaluated for the devices that were selected.
        tables = (devices.tables("", (expression,))[0] for expression in derived)
        if any(table.failed & selection.mask for table in tables):
            return True
    failures = selection.failures.values()
    return any(isinstance(failure.error, CelRuntimeError | CelCompileError) for failure in failures)
