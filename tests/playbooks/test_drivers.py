"""Health and slices of drivers, drivers that are late, and the lock on an agent's directory."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from plimsoll.client.endpoints import RESOURCE_SLICES
from plimsoll.errors import ConfigError
from plimsoll.node.process.run import NodeProcess
from tests.playbooks.invariants import quiet
from tests.playbooks.script import clear
from tests.playbooks.test_room import tell
from tests.playbooks.world import INTERVALS, NODE, World, running


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


def test_the_health_of_a_device_is_shown_as_it_changes() -> None:
    async def story(world: World) -> None:
        world.driver.publish_health(device("dev-a", 1))
        await world.pod("p", "a")
        await world.runs("p")
        await world.sees("p", lambda tree: shown_health(tree) == "Healthy", "healthy")
        world.driver.publish_health(device("dev-a", 2, "it smokes"))
        tree = await world.sees("p", lambda tree: shown_health(tree) == "Unhealthy", "unhealthy")
        assert tree is not None
        status = tree["status"]["containerStatuses"][0]
        assert status["ready"], "health is told; what to do about it is for others"
        assert status["allocatedResourcesStatus"][0]["name"] == "claim:a"
        await world.driver.die()
        await world.sees("p", lambda tree: shown_health(tree) == "Unknown", "unknown")
        await world.driver.come()
        await world.sees("p", lambda tree: shown_health(tree) == "Unhealthy", "unhealthy")
        await world.kill_agent()
        world.driver.publish_health(device("dev-a", 1))
        await world.start_agent()
        await world.sees("p", lambda tree: shown_health(tree) == "Healthy", "healthy")

    tell(story)


async def publish(world: World, driver: str) -> None:
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
    await world.admin.create(RESOURCE_SLICES, tree)


async def publishers(world: World) -> set[str]:
    listing = await world.admin.list(RESOURCE_SLICES)
    return {json.loads(item)["spec"]["driver"] for item in listing.items}


async def only(world: World, *drivers: str) -> None:
    async with asyncio.timeout(15):
        while await publishers(world) != set(drivers):
            await asyncio.sleep(0.02)


def test_slices_of_drivers_that_are_gone_are_removed() -> None:
    async def story(world: World) -> None:
        await publish(world, world.driver.name)
        await world.driver.die()
        await world.driver.come()  # soon enough
        await asyncio.sleep(0.5)
        await only(world, world.driver.name)
        await world.driver.die()
        await only(world)
        await world.driver.come()
        await publish(world, world.driver.name)
        await world.stop_agent()
        await publish(world, "other.example.com")  # nobody will come to serve it
        await world.start_agent()
        await only(world, world.driver.name)
        await world.driver.go()
        world.cut()
        await asyncio.sleep(0.5)
        assert await publishers(world) == {world.driver.name}
        world.mend()
        await only(world)
        await world.driver.come()

    tell(story)


def test_a_driver_that_is_late_is_asked_again() -> None:
    async def story(world: World) -> None:
        world.driver.gate.clear()
        await world.pod("p", "a")
        await world.until(lambda: world.driver.count("prepare", "a") >= 2, "a second call")
        texts = [text for _, text in await world.events("p")]
        assert any("DeadlineExceeded" in text for text in texts), texts
        tree = await world.get("p")
        assert tree is not None
        assert tree["status"]["phase"] == "Pending"
        world.driver.gate.set()
        await world.runs("p")
        await quiet(world)
        asked = world.driver.count("prepare", "a")
        world.driver.gate.clear()
        await world.delete("p")
        await world.until(lambda: world.driver.count("unprepare", "a") >= 2, "a second call")
        assert await world.get("p") is not None
        world.driver.gate.set()
        await world.gone("p")
        assert world.driver.count("prepare", "a") == asked

    tell(story, intervals=replace(INTERVALS, plugins=replace(INTERVALS.plugins, call=0.2)))


def test_a_second_agent_in_the_same_folder_is_refused() -> None:
    async def story(world: World) -> None:
        await world.pod("p", "a")
        await world.runs("p")
        second = NodeProcess(world.server.client(), replace(world.settings, name="n2"))
        with pytest.raises(ConfigError, match="uses this directory"):
            await second.run()
        await quiet(world)
        await world.runs("p")

    tell(story)


def test_a_thousand_looks_cost_no_driver_a_call() -> None:
    """Tidying up, heartbeats and statuses ask drivers for nothing."""

    async def story() -> None:
        async with running() as world:
            await world.pod("p", "a")
            await world.runs("p")
            for _ in range(1000):
                await world.agent.clean_up_orphans()
            assert [call[:2] for call in world.driver.calls] == [("prepare", "a")]
            await clear(world)

    asyncio.run(story())
