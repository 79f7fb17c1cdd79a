"""Caches of an inventory are bounded, and evicting entries changes no result."""

from __future__ import annotations

import pytest

from plimsoll.allocator import AllocationFault, Inventory
from plimsoll.allocator.devices import inventory
from tests.build import device, node, resource_slice


def test_the_cache_drops_the_oldest_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory, "MAX_CACHED_DEVICES", 5)
    everywhere = resource_slice([device("d0"), device("d1")], allNodes=True)
    stock = Inventory([everywhere])
    first = stock.devices_for(node("a"))
    assert not isinstance(first, AllocationFault)
    assert stock.devices_for(node("a")) is first
    for name in "bcd":
        stock.devices_for(node(name))
    again = stock.devices_for(node("a"))
    assert not isinstance(again, AllocationFault)
    assert again is not first
    assert [entry.id for entry in again.entries] == [entry.id for entry in first.entries]


def test_changed_node_labels_invalidate_the_cache() -> None:
    local = resource_slice(
        [device("d0")],
        nodeSelector={
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z"]}]}]
        },
    )
    stock = Inventory([local])
    for zone, count in (("z", 1), ("y", 0), ("z", 1)):
        devices = stock.devices_for(node("a", labels={"zone": zone}))
        assert not isinstance(devices, AllocationFault)
        assert len(devices.entries) == count
