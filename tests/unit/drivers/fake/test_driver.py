"""Fake driver from a file: published devices, prepared claims, injected failures."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import Mock

import pytest

from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import DeviceRequestAllocationResult, ResourceClaim
from plimsoll.drivers.fake.device_file import find_drivers, parse_drivers
from plimsoll.drivers.fake.driver import FakeDriver
from plimsoll.drivers.fake.fault_injection import parse_control
from plimsoll.drivers.plugin import (
    AllocatedClaim,
    ClaimError,
    ClaimRef,
    Health,
    InjectedDevice,
    PluginServer,
    PreparedDevice,
)
from plimsoll.drivers.plugin.prepared_claim_store import PreparedClaimRecord
from tests.waiting import DEADLINE


class Clock:
    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def ref(name: str) -> ClaimRef:
    return ClaimRef("default", name, f"uid-{name}")


def claim(name: str, *devices: str, **more: Any) -> AllocatedClaim:
    results = tuple(
        DeviceRequestAllocationResult(
            request=f"r{i}", driver="gpu.example.com", pool="n", device=device, **more
        )
        for i, device in enumerate(devices)
    )
    return AllocatedClaim(ref(name), ResourceClaim(), results)


def gpus() -> FakeDriver:
    return FakeDriver(find_drivers("gpus")[0], "n")


def set_faults(driver: FakeDriver, **orders: Any) -> None:
    driver.apply_control(parse_control({"drivers": [orders]}).faults(driver.name, driver.node))


def test_devices_are_injected_with_their_container_edits() -> None:
    answer = asyncio.run(gpus().prepare(claim("c", "gpu-0-1g-5gb-3")))
    assert not isinstance(answer, ClaimError)
    (handed,) = answer
    assert isinstance(handed, InjectedDevice)
    assert (handed.requests, handed.pool, handed.device) == (("r0",), "n", "gpu-0-1g-5gb-3")
    assert handed.env == {"EXAMPLE_GPU_R0": "gpu-0-1g-5gb-3", "EXAMPLE_GPU_MEMORY": "5Gi"}
    assert handed.metadata is None


def test_shares_have_their_consumed_capacity() -> None:
    driver = FakeDriver(find_drivers("nics")[0], "n")
    amounts = {"bandwidth": Quantity.parse("25G"), "queues": Quantity.parse("2")}
    result = DeviceRequestAllocationResult(
        request="net/fast",
        driver=driver.name,
        pool="n",
        device="nic-1",
        share_id="s1",
        consumed_capacity=amounts,
    )
    answer = asyncio.run(driver.prepare(AllocatedClaim(ref("c"), ResourceClaim(), (result,))))
    assert not isinstance(answer, ClaimError)
    (handed,) = answer
    assert isinstance(handed, InjectedDevice)
    assert handed.env == {"EXAMPLE_NIC_NET": "nic-1", "EXAMPLE_NIC_NET_BANDWIDTH": "25G"}
    assert handed.share_id == "s1"
    assert handed.requests == ("net",)


async def test_a_conflicting_claim_fails_until_the_device_is_released() -> None:
    driver = gpus()
    assert not isinstance(await driver.prepare(claim("a", "gpu-0-1g-5gb-0")), ClaimError)
    assert not isinstance(await driver.prepare(claim("a", "gpu-0-1g-5gb-0")), ClaimError)  # once more
    refused = await driver.prepare(claim("b", "gpu-0"))
    assert isinstance(refused, ClaimError)
    assert refused.code == "Conflict"
    assert "held" not in driver.allocated
    looking = await driver.prepare(claim("admin", "gpu-0", admin_access=True))
    assert not isinstance(looking, ClaimError)
    assert await driver.unprepare(ref("a")) is None
    assert await driver.unprepare(ref("never")) is None
    assert not isinstance(await driver.prepare(claim("b", "gpu-0")), ClaimError)


async def test_devices_prepared_by_a_former_run_are_not_prepared_again() -> None:
    driver = gpus()
    device = PreparedDevice("n", "gpu-0")
    driver.known = lambda: {"uid-old": PreparedClaimRecord(ref("old"), (device,), None)}
    assert isinstance(await driver.prepare(claim("new", "gpu-0")), ClaimError)
    assert not isinstance(await driver.prepare(claim("old", "gpu-0")), ClaimError)
    asked: list[ClaimRef] = []

    async def read_claim(desired: ClaimRef) -> AllocatedClaim | ClaimError:
        asked.append(desired)
        return claim("old", "gpu-0", admin_access=True)

    other = gpus()
    other.known, other.read_claim = driver.known, read_claim
    assert not isinstance(await other.prepare(claim("new", "gpu-0")), ClaimError)
    assert not isinstance(await other.prepare(claim("newer", "gpu-1")), ClaimError)
    assert asked == [ref("old")]


@pytest.mark.parametrize(
    ("pool", "device"),
    [("n", "gpu-9"), ("other", "gpu-0"), ("n", "gpu-1")],
    ids=["unknown", "pool", "absent"],
)
def test_an_unknown_device_is_refused(pool: str, device: str) -> None:
    driver = gpus()
    set_faults(driver, absent=["gpu-1*"])
    result = DeviceRequestAllocationResult(request="r", driver=driver.name, pool=pool, device=device)
    answer = asyncio.run(driver.prepare(AllocatedClaim(ref("c"), ResourceClaim(), (result,))))
    assert answer == ClaimError(f"device {pool}/{device} of gpu.example.com is not on node n")


async def test_calls_are_delayed_and_fail_as_configured() -> None:
    clock = Clock()
    tree = {
        "drivers": [
            {
                "name": "gpu.example.com",
                "devices": [{"name": "gpu-{i}", "count": 3}],
                "prepare": {"delay": "2s", "failFirst": 1, "message": "warming up"},
                "unprepare": {"failClaims": ["sticky"]},
            }
        ]
    }
    driver = FakeDriver(parse_drivers(tree)[0], "n", clock=clock, sleep=clock.sleep)
    assert await driver.prepare(claim("a", "gpu-0")) == ClaimError("warming up")
    assert driver.allocated == {}
    assert not isinstance(await driver.prepare(claim("a", "gpu-0")), ClaimError)
    assert await driver.prepare(claim("b", "gpu-1")) == ClaimError("warming up")
    assert clock.slept == [2.0, 2.0, 2.0]
    set_faults(driver, prepare={})
    assert not isinstance(await driver.prepare(claim("sticky", "gpu-2")), ClaimError)
    assert clock.slept == [2.0, 2.0, 2.0]
    assert await driver.unprepare(ref("sticky")) == ClaimError("claim sticky is set to fail")
    assert "uid-sticky" in driver.allocated
    set_faults(driver, unprepare={})
    assert await driver.unprepare(ref("sticky")) is None


def test_claim_status_data_is_filled_in() -> None:
    status = {"slot": "{i}", "who": "{namespace}/{claim}", "spare": False, "firmware": 3}
    tree = {
        "drivers": [
            {"name": "gpu.example.com", "devices": [{"name": "gpu-{i}", "count": 2, "status": status}]}
        ]
    }
    answer = asyncio.run(FakeDriver(parse_drivers(tree)[0], "n").prepare(claim("c", "gpu-1")))
    assert not isinstance(answer, ClaimError)
    (handed,) = answer
    assert isinstance(handed, InjectedDevice)
    assert handed.data == {"slot": 1, "who": "default/c", "spare": False, "firmware": 3}


def test_devices_change_and_are_tainted() -> None:
    driver = gpus()
    changes: list[str] = []
    driver.on_devices = lambda: changes.append("devices")
    driver.on_health = lambda: changes.append("health")
    (pool,) = driver.pools()
    assert len(pool.devices) == 28
    set_faults(driver, absent=["gpu-1*"], taints=[{"key": "example.com/x", "devices": ["gpu-0"]}])
    (pool,) = driver.pools()
    assert len(pool.devices) == 14
    tainted = [device for device in pool.devices if isinstance(device, dict) and "taints" in device]
    assert [device["name"] for device in tainted] == ["gpu-0"]
    assert changes == ["devices", "health"]
    set_faults(driver, absent=["gpu-1*"], taints=[{"key": "example.com/x", "devices": ["gpu-0"]}])
    assert changes == ["devices", "health"]
    set_faults(driver)
    assert len(driver.pools()[0].devices) == 28


async def test_health_changes_are_reported_at_their_time() -> None:
    tree = {
        "drivers": [
            {
                "name": "gpu.example.com",
                "devices": [{"name": "gpu-{i}", "count": 2}],
                "health": [{"devices": "gpu-1", "after": "20ms", "message": "hot"}],
            }
        ]
    }
    now = 0.0
    driver = FakeDriver(parse_drivers(tree)[0], "n", clock=lambda: now)
    health_changed = asyncio.Event()
    driver.on_health = health_changed.set
    server = Mock(spec=PluginServer, publish_health=health_changed.set)
    assert {each.health for each in driver.health()} == {Health.HEALTHY}
    running = asyncio.create_task(driver.watch(server))
    await asyncio.sleep(0)
    now = 1.0
    async with asyncio.timeout(DEADLINE):
        await health_changed.wait()
        assert [(each.device, each.health, each.message) for each in driver.health()] == [
            ("gpu-0", Health.HEALTHY, ""),
            ("gpu-1", Health.UNHEALTHY, "hot"),
        ]
        health_changed.clear()
        set_faults(driver, health=[])
        await health_changed.wait()
        assert {each.health for each in driver.health()} == {Health.HEALTHY}
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
