"""Pools of the cluster, independent of a node."""

from __future__ import annotations

from typing import Any

from plimsoll.allocator import Inventory
from plimsoll.allocator.devices.pools import PoolStatus
from plimsoll.api import codec
from plimsoll.api.identity import PoolId
from plimsoll.api.resource import ResourceSlice


def piece(name: str, node: str, generation: int, count: int, *devices: str) -> ResourceSlice:
    pool = {"name": "pool", "generation": generation, "resourceSliceCount": count}
    spec: dict[str, Any] = {"driver": "d.example.com", "pool": pool, "nodeName": node}
    spec["devices"] = [{"name": device} for device in devices]
    return codec.convert({"metadata": {"name": name}, "spec": spec}, ResourceSlice)


def test_pools_have_the_devices_of_all_nodes() -> None:
    inventory = Inventory([piece("a", "n1", 1, 2, "x"), piece("b", "n2", 1, 2, "y")])
    ((whole, views),) = inventory.cluster_pools()
    assert [entry.id.device for entry in whole.entries] == ["x", "y"]
    assert len(views) == 2


def test_the_newest_generation_counts() -> None:
    inventory = Inventory([piece("a", "n1", 1, 1, "x"), piece("b", "n1", 2, 2, "y")])
    ((whole, views),) = inventory.cluster_pools()
    (pool,) = whole.pools
    assert pool.status is PoolStatus.INCOMPLETE
    assert not whole.entries
    assert len(views) == 2


def test_an_unknown_pool_has_no_slices() -> None:
    assert Inventory([]).slices_of(PoolId("d", "p")) == ()
    assert [*Inventory([]).cluster_pools()] == []
