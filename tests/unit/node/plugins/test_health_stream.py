"""Health streams of drivers on real sockets."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from plimsoll.node.plugins import HealthStatus
from tests.coroutines import run_by
from tests.unit.node.plugins.peers import (
    DRIVER,
    HEALTH,
    HEALTH_ALPHA,
    QUICK,
    V1,
    Peer,
    claim,
    node,
    registered,
    run,
)
from tests.waiting import until


def report(health: int, message: str = "", device: str = "dev-0", **more: Any) -> dict[str, Any]:
    where = {"pool_name": "pool", "device_name": device}
    return {"device": where, "health": health, "message": message, **more}


@pytest.mark.parametrize("version", [HEALTH, HEALTH_ALPHA])
@run_by(run)
async def test_health_is_followed_in_both_versions(*, version: str) -> None:
    async with node() as (layout, plugins):
        changes: list[HealthStatus | None] = []
        plugins.on_change = lambda: changes.append(plugins.health(DRIVER, "pool", "dev-0"))
        peer = await Peer(layout, versions=[V1, version]).start()
        await peer.send_health(report(1))
        await until(lambda: plugins.health(DRIVER, "pool", "dev-0") == HealthStatus("Healthy"))
        await peer.send_health(report(2, "too hot"))
        hot = HealthStatus("Unhealthy", "too hot")
        await until(lambda: plugins.health(DRIVER, "pool", "dev-0") == hot)
        assert changes[-1] == hot
        assert plugins.health(DRIVER, "pool", "other") == HealthStatus("Unknown")
        assert plugins.health("other.example.com", "pool", "dev-0") is None
        notified = len(changes)
        await peer.send_health(report(2, "too hot"), report(1, device="dev-1"))
        await until(lambda: plugins.health(DRIVER, "pool", "dev-1") == HealthStatus("Healthy"))
        await peer.send_health(report(2, "too hot"))  # nothing new
        await asyncio.sleep(0.2)
        assert len(changes) == notified + 1
        await peer.stop()
        await until(lambda: plugins.health(DRIVER, "pool", "dev-0") is None)


@run_by(run)
async def test_a_stream_that_ends_is_reopened() -> None:
    async with node() as (layout, plugins):
        peer = await Peer(layout, versions=[V1, HEALTH]).start()
        await peer.send_health(report(1))
        for ending in (None, b"\xff\xff\xff\x01"):  # in good order; with what is no message
            (stream,) = await until(lambda: list(peer.streams))
            await until(lambda: plugins.health(DRIVER, "pool", "dev-0") == HealthStatus("Healthy"))
            stream.put_nowait(ending)
            await until(lambda: stream not in peer.streams)  # noqa: B023
        await until(lambda: plugins.health(DRIVER, "pool", "dev-0") == HealthStatus("Healthy"))
        # The driver restarts behind its registration.
        await peer.stop(peer.dra)
        await until(lambda: plugins.health(DRIVER, "pool", "dev-0") == HealthStatus("Unknown"))
        await peer.serve()
        await until(lambda: plugins.health(DRIVER, "pool", "dev-0") == HealthStatus("Healthy"))


@run_by(run)
async def test_health_that_is_not_renewed_expires() -> None:
    now = [0.0]
    async with node(monotonic=lambda: now[0]) as (layout, plugins):
        peer = await Peer(layout, versions=[V1, HEALTH]).start()
        await peer.send_health(report(1), report(1, device="slow", health_check_timeout_seconds=300))
        await until(lambda: plugins.health(DRIVER, "pool", "slow") == HealthStatus("Healthy"))
        changes: list[float] = []
        plugins.on_change = lambda: changes.append(now[0])
        now[0] = 29.0
        assert plugins.health(DRIVER, "pool", "dev-0") == HealthStatus("Healthy")
        now[0] = 31.0
        assert plugins.health(DRIVER, "pool", "dev-0") == HealthStatus("Unknown")
        assert plugins.health(DRIVER, "pool", "slow") == HealthStatus("Healthy")
        await until(lambda: changes)
        assert changes == [31.0]


@run_by(run)
async def test_a_driver_without_a_health_service_is_not_called_again() -> None:
    async with node() as (layout, plugins):
        peer = Peer(layout, versions=[V1])
        await peer.serve()  # without the service
        peer.versions.append(HEALTH)
        await peer.register()
        await registered(plugins)
        await until(lambda: plugins.health(DRIVER, "pool", "dev-0") is None)
        await peer.stop()
        await until(lambda: not plugins.drivers())
        await peer.start()
        await peer.send_health(report(1))
        await until(lambda: plugins.health(DRIVER, "pool", "dev-0") == HealthStatus("Healthy"))


@run_by(run)
async def test_the_end_of_one_stream_keeps_the_health_of_other_drivers() -> None:
    async with node() as (layout, plugins):
        old = await Peer(layout, versions=[V1, HEALTH], instance="old").start()
        await old.send_health(report(2, "old"), report(2, "old", device="dev-1"))
        await until(lambda: plugins.health(DRIVER, "pool", "dev-0") == HealthStatus("Unhealthy", "old"))
        new = await Peer(layout, versions=[V1, HEALTH], instance="new").start()
        await new.send_health(report(1))
        await until(lambda: plugins.health(DRIVER, "pool", "dev-0") == HealthStatus("Healthy"))
        assert plugins.health(DRIVER, "pool", "dev-1") == HealthStatus("Unhealthy", "old")
        await old.stop()
        await registered(plugins)
        assert plugins.health(DRIVER, "pool", "dev-0") == HealthStatus("Healthy")
        assert plugins.health(DRIVER, "pool", "dev-1") == HealthStatus("Unknown")


@run_by(run)
async def test_a_flood_of_health_reports_does_not_block_calls() -> None:
    async with node(QUICK) as (layout, plugins):
        peer = await Peer(layout, versions=[V1, HEALTH]).start()
        await registered(plugins)
        await until(lambda: peer.streams)
        many = [report(1 + place % 2, "x" * 900, f"dev-{place}") for place in range(1000)]

        async def flood() -> None:
            while True:
                await peer.send_health(*many)
                await asyncio.sleep(0.01)

        flooding = asyncio.create_task(flood())
        for _ in range(3):
            assert await plugins.unprepare(DRIVER, [claim("a")]) == {"uid-a": None}
        flooding.cancel()
