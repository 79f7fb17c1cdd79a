"""CPU driver in a cluster: scheduler, node agent and driver, on a fake machine."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from plimsoll.api.cpuset import CpuSet
from plimsoll.client.endpoints import RESOURCE_CLAIMS, RESOURCE_SLICES
from plimsoll.drivers.cpu import driver as driver_module
from plimsoll.drivers.cpu.driver import CpuDriver
from plimsoll.drivers.cpu.settings import PinEnforcement, PinSettings
from plimsoll.drivers.cpu.stale_claims import StaleClaimTracker
from plimsoll.drivers.cpu.state.shared_cpus_file import SharedCpusFile
from plimsoll.drivers.plugin import Health
from tests.unit.drivers.cpu.driver_harness import (
    MACHINE,
    DriverHarness,
    is_running,
    pod,
    running_cluster,
    template,
)
from tests.unit.drivers.cpu.machines import switch_off, write_sysfs
from tests.waiting import DEADLINE, until


@pytest.fixture
def harness() -> Iterator[DriverHarness]:
    with running_cluster(template("two", "2"), template("most", "4")) as harness:
        yield harness


async def test_claimed_cpus_are_exclusive_until_released(harness: DriverHarness) -> None:
    async with harness.driver() as driver:
        await harness.run(pod("neighbour"))
        await until(lambda: harness.cpus() == {"neighbour/app": "0-7"})
        await harness.run(pod("pinned", "two", beside=True))
        (allocation,) = driver.state.allocations.values()
        assert len(allocation.assigned) == 2
        rest = str(driver.topology.all - allocation.assigned)
        expected = {
            "neighbour/app": rest,
            "pinned/app": str(allocation.assigned),
            "pinned/beside": rest,
        }
        assert harness.cpus() == expected
        assert driver.describe()["shared"] == rest
        await harness.end("pinned")
        await until(lambda: harness.cpus() == {"neighbour/app": "0-7"})
        assert not driver.state.allocations
        await until(lambda: not list(harness.settings.cdi.glob("*")))


async def test_a_restarted_driver_keeps_its_allocations(harness: DriverHarness) -> None:
    async with harness.driver() as driver:
        await harness.run(pod("neighbour"), pod("pinned", "two"))
        before, allocations = harness.cpus(), dict(driver.state.allocations)
    slices = harness.cluster.client.list(RESOURCE_SLICES)
    async with harness.driver() as driver:
        assert dict(driver.state.allocations) == allocations
        assert harness.cpus() == before
        assert harness.cluster.client.list(RESOURCE_SLICES) == slices, "nothing was written"
        await harness.end("pinned")
        await until(lambda: harness.cpus() == {"neighbour/app": "0-7"})


async def test_cpus_that_go_offline_and_come_back(harness: DriverHarness) -> None:
    async with harness.driver() as driver:
        await harness.run(pod("pinned", "two"), pod("neighbour"))
        (allocation,) = driver.state.allocations.values()
        gone = CpuSet([min(allocation.assigned), 7])
        write_sysfs(switch_off(MACHINE, gone), harness.sysfs)
        left = str(allocation.assigned - gone)
        shared = str(MACHINE.all - allocation.assigned - gone)
        await until(lambda: harness.cpus() == {"pinned/app": left, "neighbour/app": shared})
        health = {each.device: each.health for each in driver.health()}
        assert health == {"cpudevnuma000": Health.UNHEALTHY, "cpudevnuma001": Health.HEALTHY}
        await until(lambda: capacities(harness)["cpudevnuma001"] == "3")
        write_sysfs(MACHINE, harness.sysfs)
        whole = {
            "pinned/app": str(allocation.assigned),
            "neighbour/app": str(MACHINE.all - allocation.assigned),
        }
        await until(lambda: harness.cpus() == whole)
        await until(lambda: capacities(harness)["cpudevnuma001"] == "4")
        assert all(each.health is Health.HEALTHY for each in driver.health())


async def test_a_restarted_driver_keeps_the_same_cpu_shared(harness: DriverHarness) -> None:
    """Another choice would take a CPU from a device that the scheduler may have allocated in full."""
    file = SharedCpusFile(harness.settings)
    async with harness.driver() as driver:
        await harness.run(pod("neighbour"))
        await until(lambda: sorted(capacities(harness).values()) == ["3", "4"])
        before = capacities(harness)
        assert file.load() == tuple(driver.state.layout.always_shared)
    (chosen,) = file.load()
    node = MACHINE.by_id[chosen].numa
    other = next(cpu.id for cpu in MACHINE.cpus if cpu.numa != node)
    file.save((other, chosen))
    async with harness.driver() as driver:
        assert tuple(driver.state.layout.always_shared) == (other,)
        await until(lambda: capacities(harness) != before)
        assert sorted(capacities(harness).values()) == ["3", "4"]


def capacities(harness: DriverHarness) -> dict[str, str]:
    return {
        device["name"]: device["capacity"]["dra.cpu/cpu"]["value"]
        for tree in harness.cluster.client.list(RESOURCE_SLICES)
        for device in tree["spec"]["devices"]
    }


async def test_no_claim_is_prepared_while_pinning_is_down(
    harness: DriverHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_module, "LINK_SECONDS", 0.1)
    pin = PinSettings(enforcement=PinEnforcement.NRI)
    settings = replace(harness.settings, nri=harness.sysfs / "missing.sock", pin=pin)
    async with harness.cluster.connect() as client:
        driver = CpuDriver(client, settings)
        await driver.start()
        try:
            await asyncio.to_thread(harness.cluster.apply, pod("pinned", "two"))
            await until(lambda: driver.plugin_server.metrics.calls.refused > 0)
            assert not driver.state.allocations
            assert any("not pinned" in problem for problem in driver.problems())
        finally:
            await driver.stop()
    async with harness.driver():
        await asyncio.to_thread(
            harness.cluster.wait_for, "pods", "pinned", "default", is_running, timeout=DEADLINE
        )


async def test_a_claim_released_by_another_driver_is_dropped(harness: DriverHarness) -> None:
    async with harness.driver() as driver:
        await harness.run(pod("pinned", "two"))
        assert len(driver.state.allocations) == 1
    # Meanwhile another driver releases it: the claim is deleted, our record stays.
    record = harness.settings.checkpoint_path.read_bytes()
    files = {path: path.read_bytes() for path in harness.settings.cdi.glob("dra.k8s.io-cpu_*")}
    async with harness.driver() as driver:
        await harness.end("pinned")
        await until(lambda: not driver.state.allocations)
    await until(lambda: not harness.cluster.client.list(RESOURCE_CLAIMS, "default"))
    harness.settings.checkpoint_path.write_bytes(record)
    async with harness.driver() as driver:  # its file is gone, too: nothing to wait for
        await until(lambda: not driver.state.allocations)
        assert driver.state.shared == MACHINE.all
    harness.settings.checkpoint_path.write_bytes(record)
    for path, contents in files.items():
        path.write_bytes(contents)
    more: dict[str, Any] = {"stale": StaleClaimTracker(grace_seconds=0.2), "stale_interval": 0.05}
    async with harness.driver(**more) as driver:
        await until(lambda: not driver.state.allocations)
        assert driver.state.shared == MACHINE.all
        assert not list(harness.settings.cdi.glob("*"))


async def test_deleted_cdi_files_are_written_again(harness: DriverHarness) -> None:
    async with harness.driver(files_interval=0.05) as driver:
        await harness.run(pod("pinned", "two"))
        before = {path: path.read_bytes() for path in harness.settings.cdi.glob("*.json")}
        assert len(before) == 2, "environment and metadata of the container"
        for path in before:
            path.unlink()
        await until(
            lambda: {path: path.read_bytes() for path in harness.settings.cdi.glob("*.json")} == before
        )
        assert not driver.state.has_missing_cdi_files
        await harness.end("pinned")
        await until(lambda: not list(harness.settings.cdi.iterdir()))


async def test_a_deleted_node_is_noticed(harness: DriverHarness) -> None:
    async with harness.driver() as driver:
        await until(lambda: driver.plugin_server.health_watched)
        assert driver.problems() == ()
        await asyncio.to_thread(harness.cluster.stop_node, "node-0")
        await until(lambda: any("the kubelet is gone" in problem for problem in driver.problems()))
        await until(lambda: any("not pinned" in problem for problem in driver.problems()))
        await asyncio.to_thread(harness.cluster.start_node, "node-0")
        await until(lambda: driver.problems() == ())
