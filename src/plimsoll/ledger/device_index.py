"""Index of published devices, to look up the device of an allocation result.

A device is identified by driver, pool and name on a node, and only the newest generation of its pool counts
(docs/spec/accounting.md, "Accounting policies"). The profile of Kubernetes 1.36 looks up pool and name only
and takes the first match in any slice.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from plimsoll.api.core import Node
from plimsoll.api.forms import device_forms
from plimsoll.api.node_selection import node_matches
from plimsoll.api.resource import Device, DeviceRequestAllocationResult, ResourceSlice, ResourceSliceSpec
from plimsoll.ledger.profile import AccountingProfile

_Piece: TypeAlias = "tuple[ResourceSliceSpec, dict[str, Device]]"


def _by_name(devices: tuple[Device, ...]) -> dict[str, Device]:
    return {device.name: device for device in reversed(devices)}


class DeviceIndex:
    """Devices of ResourceSlices by name; slices are searched in the given order."""

    __slots__ = ("_exact", "_mapped", "_pieces", "_pools")

    def __init__(
        self,
        slices: Iterable[ResourceSlice],
        profile: AccountingProfile | None = None,
        last: DeviceIndex | None = None,
    ) -> None:
        """Index the slices; `last` is an earlier index whose entries for unchanged slices are reused."""
        self._exact = (profile or AccountingProfile.default()).exact_devices
        self._pools: dict[tuple[str, str], list[_Piece]] = {}
        #: By the identity of the slice's spec, which the piece keeps alive.
        self._pieces: dict[int, _Piece] = {}
        #: Drivers of devices that have mappings.
        self._mapped: set[str] = set()
        known = last._pieces if last is not None else {}
        shared: dict[int, dict[str, Device]] = {}  # machines of one type share their devices
        plain: set[tuple[str, int]] = set()  # devices that have been searched for mappings
        for each in slices:
            spec = each.spec
            piece = known.get(id(spec))
            if piece is None:
                names = shared.get(id(spec.devices))
                if names is None:
                    names = shared[id(spec.devices)] = _by_name(spec.devices or ())
                piece = spec, names
            if spec.driver not in self._mapped and (spec.driver, id(piece[1])) not in plain:
                if any(map(device_forms, piece[1].values())):
                    self._mapped.add(spec.driver)
                plain.add((spec.driver, id(piece[1])))
            self._pieces[id(spec)] = piece
            owner = spec.driver if self._exact else ""
            self._pools.setdefault((owner, spec.pool.name), []).append(piece)

    def may_be_mapped(self, result: DeviceRequestAllocationResult) -> bool:
        """Return whether the device of a result may have mappings; False is certain."""
        return result.driver in self._mapped or not self._exact

    def find(self, result: DeviceRequestAllocationResult, node: Node | None = None) -> Device | None:
        """Return the device of a result, on this node if given; None if it is not published."""
        if not self._exact:
            return self._find_first(result)
        pieces = self._pools.get((result.driver, result.pool))
        if pieces is None:
            return None
        if node is not None:
            if len(pieces) == 1 and pieces[0][0].node_name == node.metadata.name:  # most pools
                spec, devices = pieces[0]
                device = devices.get(result.device)
                return device if device is None or _is_on(spec, device, node) else None
            pieces = [piece for piece in pieces if _is_for(piece[0], node)]
        if len(pieces) == 1:
            spec, devices = pieces[0]
            device = devices.get(result.device)
            return device if device is None or node is None or _is_on(spec, device, node) else None
        newest = max((spec.pool.generation for spec, _ in pieces), default=0)
        for spec, devices in pieces:
            device = devices.get(result.device) if spec.pool.generation == newest else None
            if device is not None and (node is None or _is_on(spec, device, node)):
                return device
        return None

    def _find_first(self, result: DeviceRequestAllocationResult) -> Device | None:
        for _, devices in self._pools.get(("", result.pool), []):
            if result.device in devices:
                return devices[result.device]
        return None


def _is_for(spec: ResourceSliceSpec, node: Node) -> bool:
    """Return whether a slice may have devices on a node; a malformed selector matches no node."""
    if spec.per_device_node_selection:
        return True
    return node_matches(node, spec.node_name, spec.all_nodes, spec.node_selector) is True


def _is_on(spec: ResourceSliceSpec, device: Device, node: Node) -> bool:
    if not spec.per_device_node_selection:
        return True
    return node_matches(node, device.node_name, device.all_nodes, device.node_selector) is True
