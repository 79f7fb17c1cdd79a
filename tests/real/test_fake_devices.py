"""A real kube-apiserver accepts the bundled device files, their classes, and binding conditions."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from plimsoll.api import codec
from plimsoll.client import Client
from plimsoll.client.endpoints import DEVICE_CLASSES, NODES, RESOURCE_CLAIMS, RESOURCE_SLICES
from plimsoll.drivers.fake.device_file import BUILT_IN, parse_drivers
from plimsoll.drivers.fake.process import FakeDriverProcess, find_plans
from plimsoll.drivers.plugin.plugin_server_group import NodePaths
from tests.cluster.kube_apiserver import run_apiserver
from tests.real.programs import ASSETS, missing, skip_before
from tests.waiting import until

_MISSING = missing("kube-apiserver", "etcd")
pytestmark = pytest.mark.skipif(bool(_MISSING), reason=_MISSING)
NODE = "n1"
ATTACHED, BROKEN = "example.com/attached", "example.com/broken"
BINDING = {
    "drivers": [
        {
            "name": "late.example.com",
            "devices": [
                {
                    "name": "late-{i}",
                    "count": 2,
                    "binding": {"conditions": [ATTACHED], "failureConditions": [BROKEN], "after": "50ms"},
                }
            ],
        }
    ]
}


async def publish_all(client: Client) -> None:
    """Check that published slices and classes are kept unchanged, in the form that the server knows."""
    process = FakeDriverProcess(client, find_plans(BUILT_IN), [NodePaths(NODE, None)])
    await process.start()
    try:
        kept: dict[tuple[str, str], dict[str, Any]] = {}
        for raw in (await client.list(RESOURCE_SLICES)).items:
            spec = codec.decode_tree(raw)["spec"]
            kept |= {(spec["driver"], device["name"]): device for device in spec.get("devices", ())}
        desired = {
            (name, device.name): dict(device.tree)
            for (name, _), driver in process.drivers.items()
            for device in driver.inventory.devices.values()
        }
        assert kept == desired
        assert "nodeAllocatableResourceMappings" in kept["accelerator.example.com", "accelerator-0"]
        classes = [
            codec.decode_tree(raw)["metadata"]["name"] for raw in (await client.list(DEVICE_CLASSES)).items
        ]
        assert {"gpu.example.com", "nic.example.com", "engine.accelerator.example.com"} <= set(classes)
    finally:
        await process.end(withdraw=True)
    assert (await client.list(RESOURCE_SLICES)).items == []


async def attach(client: Client) -> None:
    """Check that conditions of two devices of a claim are set separately."""
    process = FakeDriverProcess(client, parse_drivers(BINDING), [NodePaths(NODE, None)])
    await process.start()
    try:
        exactly = {"deviceClassName": "late.example.com", "allocationMode": "ExactCount", "count": 2}
        await client.create(
            RESOURCE_CLAIMS,
            {
                "metadata": {"name": "c", "namespace": "default"},
                "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
            },
            "default",
        )
        results = [
            {
                "request": "r",
                "driver": "late.example.com",
                "pool": NODE,
                "device": f"late-{i}",
                "bindingConditions": [ATTACHED],
                "bindingFailureConditions": [BROKEN],
            }
            for i in range(2)
        ]
        allocation = {"status": {"allocation": {"devices": {"results": results}}}}
        await client.patch(RESOURCE_CLAIMS, "c", allocation, "default", subresource="status")

        async def devices_in_status() -> list[Any]:
            claim = await client.get(RESOURCE_CLAIMS, "c", "default")
            return list(claim["status"].get("devices", []))

        devices = await until(devices_in_status, lambda found: len(found) == 2)
        for device in devices:
            (condition,) = device["conditions"]
            assert (condition["type"], condition["status"]) == (ATTACHED, "True")
    finally:
        await process.end()


def test_a_real_server_accepts_devices_of_device_files(tmp_path: Path) -> None:
    skip_before(36, "which has the gates")
    with run_apiserver(ASSETS, tmp_path) as config:

        async def scenario() -> None:
            async with Client.connect(config) as client:
                await client.create(NODES, {"metadata": {"name": NODE}})
                await publish_all(client)
                await attach(client)

        asyncio.run(scenario())
