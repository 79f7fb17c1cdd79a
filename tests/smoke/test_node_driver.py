"""Driver built from the public `.proto` files only, in its own process, with the agent's plugin manager."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from plimsoll.node.claim_info import ClaimRef, DriverFault, PreparedDevice
from plimsoll.node.layout import Layout
from plimsoll.node.plugins import HealthStatus, PluginManager
from tests.node_peers import DriverProcess, make_stubs
from tests.unit.node.plugins.peers import QUICK, registered, run
from tests.waiting import DEADLINE, until

SHARE = "6b0c4c5e-2b6e-4c7d-a2f3-1d2c3b4a5968"
A, B = ClaimRef("default", "a", "uid-a"), ClaimRef("other", "b", "uid-b")
TIMES = replace(QUICK, gone=0.3)


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_stubs(tmp_path_factory.mktemp("stubs"))


def test_a_driver_process_registers_prepares_and_releases(root: Path, stubs: Path, tmp_path: Path) -> None:
    cdi = root / "cdi"
    versions = "v1.DRAPlugin,v1beta1.DRAPlugin,v1.DRAResourceHealth"
    driver = DriverProcess(
        root, stubs, tmp_path, f"--cdi={cdi}", f"--share-id={SHARE}", f"--versions={versions}"
    )

    async def scenario() -> None:
        plugins = PluginManager(Layout(root), times=TIMES)
        await plugins.start()
        await asyncio.to_thread(driver.start)
        await registered(plugins)
        await until(
            lambda: driver.events("registered"), seconds=DEADLINE
        )  # it is notified after it counts as registered here
        assert [event["event"] for event in driver.events("info", "registered")] == ["info", "registered"]
        (start,) = driver.events("start")
        assert "grpc" in start["modules"]
        assert "plimsoll" not in start["modules"]  # it knows nothing of ours

        found = await plugins.prepare(driver.name, [A, B])
        device = found["uid-a"]
        assert isinstance(device, tuple)
        assert device == (
            PreparedDevice("pool", device[0].device, (), (f"{driver.name}/claim=uid-a",), SHARE),
        )
        assert len(list(cdi.iterdir())) == 2
        assert await plugins.prepare(driver.name, [A, B]) == found  # again, and the same

        driver.behave(fail=["a"], omit=["b"])
        found = await plugins.prepare(driver.name, [A, B])
        assert found == {
            "uid-a": DriverFault(driver.name, "refused", "no device for a"),
            "uid-b": DriverFault(driver.name, "skipped", "NodePrepareResources skipped 1 ResourceClaims"),
        }
        for behaviour, kind in (({"stray": True}, "malformed"), ({"broken": True}, "malformed")):
            driver.behave(**behaviour)
            fault = (await plugins.prepare(driver.name, [A]))["uid-a"]
            assert isinstance(fault, DriverFault)
            assert fault.kind == kind
        driver.behave()

        name = device[0].device
        driver.set_health([{"pool": "pool", "device": name, "health": "Unhealthy", "message": "hot"}])
        await until(lambda: plugins.health(driver.name, "pool", name) == HealthStatus("Unhealthy", "hot"))

        assert await plugins.unprepare(driver.name, [A, B]) == {"uid-a": None, "uid-b": None}
        assert list(cdi.iterdir()) == []
        assert await asyncio.to_thread(driver.stop) == 0
        await until(lambda: not plugins.drivers())
        await plugins.stop()

    try:
        run(scenario)
    finally:
        driver.stop(signal.SIGKILL)


def test_a_killed_driver_process_registers_again(root: Path, stubs: Path, tmp_path: Path) -> None:
    driver = DriverProcess(root, stubs, tmp_path)
    gone: list[str] = []

    async def on_gone(name: str) -> None:
        gone.append(name)

    async def scenario() -> None:
        plugins = PluginManager(Layout(root), times=TIMES)
        plugins.on_gone = on_gone
        await plugins.start()
        await asyncio.to_thread(driver.start)
        await registered(plugins)
        # The agent counts a driver as registered before it notifies the driver.
        await until(lambda: len(driver.events("registered")) == 1, seconds=DEADLINE)
        driver.behave(crash=["a"])
        fault = (await plugins.prepare(driver.name, [A]))["uid-a"]
        assert isinstance(fault, DriverFault)
        assert fault.kind == "broken"
        await registered(plugins, 1, 0)  # its socket is left behind
        await until(lambda: gone == [driver.name])
        driver.stop()
        driver.behave()
        await asyncio.to_thread(driver.start)
        await registered(plugins)
        assert isinstance((await plugins.prepare(driver.name, [A]))["uid-a"], tuple)
        await until(lambda: len(driver.events("registered")) == 2, seconds=DEADLINE)
        await plugins.stop()

    try:
        run(scenario)
    finally:
        driver.stop(signal.SIGKILL)


def test_a_driver_process_is_replaced_in_a_rolling_update(root: Path, stubs: Path, tmp_path: Path) -> None:
    """No call fails or is lost between the first driver and the second."""
    old = DriverProcess(root, stubs, tmp_path / "old", "--instance=old", "--pool=old")
    new = DriverProcess(root, stubs, tmp_path / "new", "--instance=new", "--pool=new")
    pools: list[str] = []

    async def scenario() -> None:
        plugins = PluginManager(Layout(root), times=TIMES)
        await plugins.start()
        await asyncio.to_thread(old.start)
        await registered(plugins)
        old.behave(delay=0.1)

        async def load() -> None:
            while True:
                found = (await plugins.prepare(old.name, [A]))["uid-a"]
                assert isinstance(found, tuple), found
                pools.append(found[0].pool)

        async with asyncio.TaskGroup() as group:
            callers = [group.create_task(load()) for _ in range(4)]
            await until(lambda: len(pools) >= 4)
            await asyncio.to_thread(new.start)
            await until(lambda: "new" in pools)
            await asyncio.to_thread(old.stop)  # calls under way end
            await registered(plugins, 1)
            count = len(pools)
            await until(lambda: len(pools) > count + 8)
            for caller in callers:
                caller.cancel()
        assert set(pools[-4:]) == {"new"}
        await plugins.stop()

    try:
        run(scenario)
    finally:
        old.stop(signal.SIGKILL)
        new.stop(signal.SIGKILL)
