"""ResourceSlices of simulated nodes, which have no sockets.

`SimulatedSlices` publishes the devices of one driver on any number of nodes with one list request. Changes by
other clients are not noticed before the next publish.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from plimsoll.api import codec
from plimsoll.client import Client
from plimsoll.client.endpoints import NODES, RESOURCE_SLICES
from plimsoll.drivers.fake.driver import FakeDriver
from plimsoll.drivers.plugin.slices import PoolError, build_slices
from plimsoll.errors import ConfigError

_MAX_CONCURRENT = 32


class SimulatedSlices:
    """Slices of one driver on nodes without sockets."""

    def __init__(self, client: Client, drivers: Iterable[FakeDriver]) -> None:
        self._client = client
        self._drivers = {driver.node: driver for driver in drivers}
        self._name = next(iter(self._drivers.values())).name if self._drivers else ""
        self._owners: dict[str, str] = {}

    async def publish(self) -> None:
        """Bring all slices to the drivers' current state."""
        if not self._drivers:
            return
        listing = await self._client.list(RESOURCE_SLICES, fields=f"spec.driver={self._name}")
        existing: dict[str, dict[str, dict[str, Any]]] = {node: {} for node in self._drivers}
        for raw in listing.items:
            tree = codec.decode_tree(raw)
            node = tree["spec"].get("nodeName")
            if node in existing:
                existing[node][tree["metadata"]["name"]] = tree
        slots = asyncio.Semaphore(_MAX_CONCURRENT)

        async def one(driver: FakeDriver) -> None:
            async with slots:
                await self._publish(driver, existing[driver.node])

        await asyncio.gather(*map(one, self._drivers.values()))

    async def withdraw(self) -> None:
        for node in self._drivers:
            fields = f"spec.driver={self._name},spec.nodeName={node}"
            await self._client.delete_collection(RESOURCE_SLICES, fields=fields)

    async def _publish(self, driver: FakeDriver, existing: Mapping[str, dict[str, Any]]) -> None:
        if driver.node not in self._owners:
            node = await self._client.get(NODES, driver.node)
            self._owners[driver.node] = node["metadata"]["uid"]
        desired = self._build_slices(driver)
        if {name: _content(tree) for name, tree in desired.items()} == {
            name: _content(tree) for name, tree in existing.items()
        }:
            return
        generation = max((tree["spec"]["pool"]["generation"] for tree in existing.values()), default=0) + 1
        for name, tree in desired.items():
            tree["spec"]["pool"]["generation"] = generation
            before = existing.get(name)
            if before is None:
                await self._client.create(RESOURCE_SLICES, tree)
            else:
                await self._client.update(RESOURCE_SLICES, {**before, "spec": tree["spec"]})
        for name in set(existing) - set(desired):
            await self._client.delete(RESOURCE_SLICES, name)

    def _build_slices(self, driver: FakeDriver) -> dict[str, dict[str, Any]]:
        found = {}
        node = driver.node
        owner = self._owners.get(node)
        for pool in driver.pools():
            parts = build_slices(pool)
            if isinstance(parts, PoolError):
                raise ConfigError(f"{driver.plan.where}: {parts}")
            for part in parts:
                name = f"{node}-{self._name}-{part.index}"
                metadata: dict[str, Any] = {"name": name}
                if owner is not None:
                    reference = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": owner}
                    metadata["ownerReferences"] = [{**reference, "controller": True}]
                head = {"name": pool.name, "generation": 1, "resourceSliceCount": len(parts)}
                found[name] = {
                    "apiVersion": RESOURCE_SLICES.api_version,
                    "kind": RESOURCE_SLICES.kind,
                    "metadata": metadata,
                    "spec": {"driver": self._name, "nodeName": node, "pool": head, **part.content},
                }
        return found


def _content(tree: Mapping[str, Any]) -> tuple[Any, Any, int]:
    spec = tree["spec"]
    return spec.get("devices"), spec.get("sharedCounters"), spec["pool"]["resourceSliceCount"]
