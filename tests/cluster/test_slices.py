"""Slice publisher on each server: slices are published, adopted without a write, restored, withdrawn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from plimsoll.api import codec
from plimsoll.client import Client
from plimsoll.client.endpoints import NODES, RESOURCE_SLICES
from plimsoll.drivers.plugin import DevicePool
from plimsoll.drivers.plugin.slice_publisher import SlicePublisher
from plimsoll.errors import ApiError
from tests.cluster.target import Target
from tests.coroutines import run_by
from tests.waiting import until

DRIVER, NODE = "slices.example.com", "slices-node"

#: Amounts in spellings that servers do not keep, times that they fill in, empty things that they leave out.
POOLS = [
    DevicePool(
        "rich",
        [
            {
                "name": f"d{number}",
                "attributes": {
                    "model": {"string": ""},
                    "ok": {"bool": False},
                    "version": {"version": "1.2.3"},
                    "n": {"int": number},
                },
                "capacity": {
                    "memory": {
                        "value": "1024Mi",
                        "requestPolicy": {"default": "1000m", "validRange": {"min": "1", "step": "1.0"}},
                    },
                    "slots": {"value": 4, "requestPolicy": {"default": "1", "validValues": ["1", "2000m"]}},
                },
                "allowMultipleAllocations": True,
                "taints": [{"key": "k", "value": "", "effect": "NoSchedule"}],
                "bindingConditions": [],
                "consumesCounters": [{"counterSet": "set", "counters": {"x": {"value": "0.5"}}}],
            }
            for number in range(70)
        ],
        [{"name": "set", "counters": {"x": {"value": "100000m"}}}],
    ),
    DevicePool("plain", [{"name": f"d{number}"} for number in range(300)]),
    DevicePool("empty"),
]


@asynccontextmanager
async def keeping(client: Client) -> AsyncIterator[SlicePublisher]:
    publisher = SlicePublisher(client, DRIVER, NODE, settle=0.05)
    task = asyncio.create_task(publisher.run())
    try:
        publisher.set_pools(POOLS)
        await until(lambda: publisher.published)
        yield publisher
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def listed(client: Client) -> list[dict[str, Any]]:
    found = await client.list(RESOURCE_SLICES, fields=f"spec.driver={DRIVER},spec.nodeName={NODE}")
    return [codec.decode_tree(raw) for raw in found.items]


@run_by(Target.run_scenario, "target")
async def test_a_driver_keeps_its_slices(client: Client, namespace: str) -> None:
    with suppress(ApiError):
        await client.create(NODES, {"metadata": {"name": NODE}})
    async with keeping(client) as first:
        assert first.counters.created == 7
        assert not first.problems
    sizes = sorted(len(tree["spec"].get("devices") or ()) for tree in await listed(client))
    assert sizes == [0, 0, 6, 44, 64, 128, 128]
    async with keeping(client) as second:
        assert not second.problems
        await asyncio.sleep(0.2)
        counters = second.counters
        assert (counters.created, counters.updated, counters.deleted) == (0, 0, 0)
        await client.delete_collection(RESOURCE_SLICES, fields=f"spec.driver={DRIVER}")
        await until(lambda: not (counters.created < 7 or not second.published))
        assert len(await listed(client)) == 7
    assert await second.withdraw() == ""
    assert await listed(client) == []
