"""Health and slices of drivers, slow drivers, and the lock on an agent's directory."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from plimsoll.client.endpoints import RESOURCE_SLICES
from plimsoll.errors import ConfigError
from plimsoll.node.process.run import NodeProcess
from tests.coroutines import run_by
from tests.playbooks.invariants import quiet
from tests.playbooks.node_harness import INTERVALS, NODE, NodeHarness, running
from tests.playbooks.scenarios import run_scenario
from tests.playbooks.script import clear
from tests.waiting import until


def device(name: str, health: int, message: str = "") -> dict[str, Any]:
    return {
        "device": {"pool_name": "pool", "device_name": name},
        "health": health,
        "last_updated_time": 1,
        "message": message,
    }


def shown_health(tree: dict[str, Any] | None) -> str:
    assert tree is not None
    found = tree["status"]["containerStatuses"][0]["allocatedResourcesStatus"][0]["resources"][0]
    return str(found["health"])


@run_by(run_scenario)
async def test_device_health_changes_are_reported(harness: NodeHarness) -> None:
    harness.driver.publish_health(device("dev-a", 1))
    await harness.pod("p", "a")
    await harness.runs("p")
    await harness.sees("p", lambda tree: shown_health(tree) == "Healthy", "healthy")
    harness.driver.publish_health(device("dev-a", 2, "it smokes"))
    tree = await harness.sees("p", lambda tree: shown_health(tree) == "Unhealthy", "unhealthy")
    assert tree is not None
    status = tree["status"]["containerStatuses"][0]
    assert status["ready"], "health is only reported"
    assert status["allocatedResourcesStatus"][0]["name"] == "claim:a"
    await harness.driver.die()
    await harness.sees("p", lambda tree: shown_health(tree) == "Unknown", "unknown")
    await harness.driver.come()
    await harness.sees("p", lambda tree: shown_health(tree) == "Unhealthy", "unhealthy")
    await harness.kill_agent()
    harness.driver.publish_health(device("dev-a", 1))
    await harness.start_agent()
    await harness.sees("p", lambda tree: shown_health(tree) == "Healthy", "healthy")


async def publish(harness: NodeHarness, driver: str) -> None:
    tree = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"slice-{driver}"},
        "spec": {
            "driver": driver,
            "nodeName": NODE,
            "pool": {"name": "pool", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "dev-a"}],
        },
    }
    await harness.admin.create(RESOURCE_SLICES, tree)


async def publishers(harness: NodeHarness) -> set[str]:
    listing = await harness.admin.list(RESOURCE_SLICES)
    return {json.loads(item)["spec"]["driver"] for item in listing.items}


async def only(harness: NodeHarness, *drivers: str) -> None:
    await until(lambda: publishers(harness), lambda found: found == set(drivers))


def test_slices_of_unregistered_drivers_are_removed() -> None:
    gone = 1.0  # a driver restarts faster, even on a busy machine

    async def scenario(harness: NodeHarness) -> None:
        await publish(harness, harness.driver.name)
        await harness.driver.die()
        await harness.driver.come()  # soon enough
        await asyncio.sleep(1.5 * gone)
        await only(harness, harness.driver.name)
        await harness.driver.die()
        await only(harness)
        await harness.driver.come()
        await publish(harness, harness.driver.name)
        await harness.stop_agent()
        await publish(harness, "other.example.com")  # no driver will serve it
        await harness.start_agent()
        await only(harness, harness.driver.name)
        await harness.driver.go()
        harness.cut()
        await asyncio.sleep(1.5 * gone)
        assert await publishers(harness) == {harness.driver.name}
        harness.restore()
        await only(harness)
        await harness.driver.come()

    run_scenario(scenario, intervals=replace(INTERVALS, plugins=replace(INTERVALS.plugins, gone=gone)))


def test_a_slow_driver_is_called_again() -> None:
    async def scenario(harness: NodeHarness) -> None:
        harness.driver.gate.clear()
        await harness.pod("p", "a")
        await harness.until(lambda: harness.driver.count("prepare", "a") >= 2, "a second call")
        await until(
            lambda: harness.events("p"), lambda events: any("DeadlineExceeded" in text for _, text in events)
        )
        tree = await harness.get("p")
        assert tree is not None
        assert tree["status"]["phase"] == "Pending"
        harness.driver.gate.set()
        await harness.runs("p")
        await quiet(harness)
        asked = harness.driver.count("prepare", "a")
        harness.driver.gate.clear()
        await harness.delete("p")
        await harness.until(lambda: harness.driver.count("unprepare", "a") >= 2, "a second call")
        assert await harness.get("p") is not None
        harness.driver.gate.set()
        await harness.gone("p")
        assert harness.driver.count("prepare", "a") == asked

    run_scenario(scenario, intervals=replace(INTERVALS, plugins=replace(INTERVALS.plugins, call=0.2)))


@run_by(run_scenario)
async def test_a_second_agent_in_the_same_directory_is_refused(harness: NodeHarness) -> None:
    await harness.pod("p", "a")
    await harness.runs("p")
    second = NodeProcess(harness.server.client(), replace(harness.settings, name="n2"))
    with pytest.raises(ConfigError, match="uses this directory"):
        await second.run()
    await quiet(harness)
    await harness.runs("p")


async def test_housekeeping_does_not_call_drivers() -> None:
    """Housekeeping, heartbeats and statuses do not call drivers."""
    async with running() as harness:
        await harness.pod("p", "a")
        await harness.runs("p")
        for _ in range(1000):
            await harness.agent.clean_up_orphans()
        assert [call[:2] for call in harness.driver.calls] == [("prepare", "a")]
        await clear(harness)
