"""Slice cleaner: slices of unregistered drivers are deleted."""

from __future__ import annotations

import asyncio
from typing import Any

from plimsoll.client.endpoints import RESOURCE_SLICES
from plimsoll.node.slice_cleaner import SliceCleaner
from plimsoll.up.local_cluster import LocalCluster


def slice_of(driver: str, node: str) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-{driver.replace('.', '-')}"},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "d"}],
        },
    }


def left(cluster: LocalCluster) -> set[tuple[str, str]]:
    found = cluster.client.list(RESOURCE_SLICES)
    return {(item["spec"]["driver"], item["spec"]["nodeName"]) for item in found}


def test_slices_of_one_driver_and_node_are_removed() -> None:
    with LocalCluster(controllers=False) as cluster:
        for driver, node in (("a.example.com", "n"), ("b.example.com", "n"), ("a.example.com", "m")):
            cluster.apply(slice_of(driver, node))

        async def scenario() -> None:
            async with cluster.connect() as client:
                await SliceCleaner(client, "n").remove("a.example.com")

        asyncio.run(scenario())
        assert left(cluster) == {("b.example.com", "n"), ("a.example.com", "m")}


def test_slices_stay_while_drivers_come_back() -> None:
    with LocalCluster(controllers=False) as cluster:
        for driver in ("back.example.com", "gone.example.com"):
            cluster.apply(slice_of(driver, "n"))

        async def scenario() -> None:
            async with cluster.connect() as client:
                remove_orphaned = asyncio.create_task(
                    SliceCleaner(client, "n", grace_seconds=0.2).remove_orphaned(lambda: ["back.example.com"])
                )
                assert len(left(cluster)) == 2
                await remove_orphaned

        asyncio.run(scenario())
        assert left(cluster) == {("back.example.com", "n")}
