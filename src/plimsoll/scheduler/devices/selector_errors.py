"""Index of the nodes with devices on which a selector of a claim fails at run time.

kube-scheduler ends the attempt of a pod if a selector fails on a device of any node (KEP-4381,
docs/spec/api.md). Devices are searched on few nodes here, so the nodes on which that can happen must
be known: usually there are none. Results are cached by selectors and node until the devices of a node may
have changed.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from plimsoll.allocator import AllocationFault
from plimsoll.allocator.devices.node_devices import NodeDevices
from plimsoll.api.pod_claims import device_requests
from plimsoll.errors import CelCompileError, CelRuntimeError
from plimsoll.ledger.columns import Column, Mask
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.snapshot.index import SnapshotIndex
from plimsoll.scheduler.snapshot.snapshot import Snapshot

#: Selectors of a request: those of its class, then its own.
Selectors: TypeAlias = "tuple[tuple[str, ...], tuple[str, ...]]"
#: Maximum number of distinct selectors.
_MAX_SELECTORS = 256


class SelectorErrorIndex(SnapshotIndex):
    """Nodes with failing devices, by the selectors of a pod's claims."""

    def __init__(self) -> None:
        self._size = 0
        self._known: dict[tuple[Selectors, ...], tuple[Mask, Column]] = {}

    def resized(self, size: int) -> None:
        self._size = size
        self._known.clear()

    def failing_nodes(self, pod_info: PodInfo, snapshot: Snapshot) -> Mask:
        """Return the nodes with a device on which a selector of an unallocated claim fails."""
        key = pod_selectors(pod_info, snapshot)
        known = self._known.pop(key, None)
        if known is None:
            known = np.zeros(self._size, dtype=np.bool_), np.full(self._size, -1, dtype=np.int64)
        mask, checked_at = known
        stale = snapshot.alive & (checked_at < snapshot.node_generations)
        for row in np.flatnonzero(stale).tolist():
            devices = snapshot.inventory.devices_for(snapshot.node(row))
            mask[row] = not isinstance(devices, AllocationFault) and any(
                has_failing_device(devices, each) for each in key
            )
        checked_at[stale] = snapshot.node_generations[stale]
        self._known[key] = known  # least recently used first
        if len(self._known) > _MAX_SELECTORS:
            del self._known[next(iter(self._known))]
        return mask


def pod_selectors(pod_info: PodInfo, snapshot: Snapshot) -> tuple[Selectors, ...]:
    """Return the distinct selectors of a pod's unallocated claims."""
    found: dict[Selectors, None] = {}
    for claim in pod_info.unallocated_claims:
        for _, body in device_requests(claim):
            device_class = snapshot.classes.get(body.device_class_name)
            of_class = () if device_class is None else device_class.spec.selectors
            own, general = (
                tuple(each.cel.expression if each.cel is not None else "" for each in selectors)
                for selectors in (body.selectors, of_class)
            )
            found[general, own] = None
    return tuple(found)


def has_failing_device(devices: NodeDevices, selectors: Selectors) -> bool:
    """Return whether a selector fails on a device of a node."""
    failures = devices.select(*selectors).failures.values()
    return any(isinstance(failure.error, CelRuntimeError | CelCompileError) for failure in failures)
