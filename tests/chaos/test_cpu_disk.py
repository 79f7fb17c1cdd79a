"""Full, read-only and foreign file systems under a running CPU driver.

Small file systems in memory are mounted where the driver writes, so the errors are the kernel's own. No
allocation is lost, none is granted that cannot be recorded, users see the reason, and once the disk works
again everything continues without a restart.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from plimsoll.client import Client, ClientConfig
from plimsoll.client.endpoints import EVENTS
from plimsoll.drivers.cpu.driver import CpuDriver
from plimsoll.drivers.cpu.process.run import CpuDriverProcess
from plimsoll.drivers.cpu.settings import CpuSettings
from plimsoll.drivers.cpu.state.claim_allocation import ClaimAllocation
from plimsoll.drivers.cpu.state.cpu_state import CPUState
from plimsoll.drivers.plugin import ClaimError
from plimsoll.errors import ConfigError
from tests.chaos.small_disk import mount, mounted, unmount
from tests.coroutines import run_by
from tests.unit.drivers.cpu.driver_harness import (
    DriverHarness,
    pod,
    running_cluster,
    template,
)
from tests.unit.drivers.cpu.machines import make_machine
from tests.unit.drivers.cpu.state.fixtures import AllocationSpec, CPUStateFixture, make_claim, uid_of
from tests.waiting import until

UNPRIVILEGED_UID = 65534


def cannot_mount() -> str:
    """Return why no file system can be mounted here, or an empty string."""
    if os.geteuid() != 0:
        return "needs root"
    with tempfile.TemporaryDirectory() as directory:
        if not mount("-t", "tmpfs", "-o", "size=16k", "none", directory):
            return "needs file systems that can be mounted"
        unmount(Path(directory))
    return ""


needs_mounts = pytest.mark.skipif(bool(cannot_mount()), reason=cannot_mount() or "-")


@pytest.fixture
def harness() -> Iterator[DriverHarness]:
    with running_cluster(template("two", "2")) as harness:
        yield harness


def messages(harness: DriverHarness, name: str) -> str:
    """Return the events of a pod."""
    events = harness.cluster.client.list(EVENTS, "default")
    return "\n".join(each["message"] for each in events if each["involvedObject"]["name"] == name)


@asynccontextmanager
async def refused(harness: DriverHarness, driver: CpuDriver, name: str, *texts: str) -> AsyncIterator[None]:
    """Check that a pod does not start while this lasts, and then runs."""
    before = dict(driver.state.allocations)
    await asyncio.to_thread(harness.cluster.apply, pod(name, "two"))
    await until(lambda: all(text in messages(harness, name) for text in texts))
    assert driver.state.allocations == before
    yield
    await harness.run(pod(name, "two"))


def run_scenario(harness: DriverHarness, scenario: Callable[[CpuDriver], Any]) -> None:
    async def whole() -> None:
        async with harness.driver(files_interval=0.1) as driver:
            await scenario(driver)

    asyncio.run(whole())


@needs_mounts
@run_by(run_scenario, "harness")
async def test_a_read_only_cdi_directory(driver: CpuDriver, *, harness: DriverHarness) -> None:
    with mounted(harness.settings.cdi) as disk:
        await harness.run(pod("first", "two"))
        (uid,) = driver.state.allocations
        disk.lock()
        async with refused(harness, driver, "second", "failed to write CDI spec", "Read-only file system"):
            # What is released meanwhile keeps its CPUs until its file is gone.
            await asyncio.to_thread(
                harness.cluster.client.delete, harness.cluster.find("pods"), "first", "default"
            )
            await until(lambda: driver.plugin_server.metrics.calls.kept > 0)
            assert uid in driver.state.allocations
            disk.unlock()
        await until(lambda: uid not in driver.state.allocations)
        assert len(driver.state.allocations) == 1
        assert CPUState.open(driver.settings, driver.topology, driver.state.layout).allocations.keys() == (
            driver.state.allocations.keys()
        )
        await harness.end("second")
        await until(lambda: not list(harness.settings.cdi.iterdir()))


@needs_mounts
def test_a_full_disk_for_the_checkpoint(harness: DriverHarness) -> None:
    with mounted(harness.settings.plugin_dir) as disk:

        async def scenario(driver: CpuDriver) -> None:
            await harness.run(pod("first", "two"))
            record = harness.settings.checkpoint_path.read_bytes()
            disk.fill()
            # Known before the first claim fails.
            await until(lambda: any("No space left" in problem for problem in driver.problems()))
            async with refused(harness, driver, "second", "cannot be recorded", "No space left on device"):
                assert harness.settings.checkpoint_path.read_bytes() == record, (
                    "what was promised stays on record"
                )
                assert len(list(harness.settings.cdi.glob("dra.k8s.io-*"))) == 1
                disk.empty()
                await until(driver.problems, lambda found: not found)
            assert len(driver.state.allocations) == 2
            disk.fill()
            await asyncio.to_thread(
                harness.cluster.client.delete, harness.cluster.find("pods"), "first", "default"
            )
            await until(lambda: driver.plugin_server.metrics.calls.kept > 0)
            assert len(driver.state.allocations) == 2, "it keeps its CPUs until that is on record"
            disk.empty()
            await until(lambda: len(driver.state.allocations) == 1)
            await harness.end("second")
            await until(lambda: not driver.state.allocations)

        run_scenario(harness, scenario)


@contextmanager
def unprivileged() -> Iterator[None]:
    """Run as an unprivileged user: root may write everywhere."""
    os.seteuid(UNPRIVILEGED_UID)
    try:
        yield
    finally:
        os.seteuid(0)


async def run_process(settings: CpuSettings) -> None:
    async with Client.connect(ClientConfig(server="http://127.0.0.1:1")) as client:
        await CpuDriverProcess(client, settings).run()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to change the user")
def test_directories_without_permission() -> None:
    root = Path(tempfile.mkdtemp(prefix="p-", dir="/tmp"))
    try:
        root.chmod(0o755)
        fixture = CPUStateFixture(root, make_machine(numa=2, cores=4))
        state = fixture.open()
        first, second = (
            make_claim(1, AllocationSpec("cpudevnuma000", "2")),
            make_claim(2, AllocationSpec("cpudevnuma000", "1")),
        )
        held = state.prepare(first)
        assert isinstance(held, ClaimAllocation)
        with unprivileged():
            answer = state.prepare(second)
            assert isinstance(answer, ClaimError)
            assert "Permission denied" in answer.message
            assert str(fixture.settings.checkpoint_path) in answer.message
            kept = state.release(first.ref)
            assert isinstance(kept, ClaimError)
            assert "Permission denied" in kept.message
            assert state.allocations == {uid_of(1): held}
            # A record that cannot be read is an error, not a missing record.
            other = fixture.open()
            assert any("Permission denied" in finding.what for finding in other.findings)
            assert isinstance(other.prepare(second), ClaimError)
            with pytest.raises(
                ConfigError, match=r"plugins/dra\.cpu: cannot be used: Permission denied; choose another with"
            ):
                asyncio.run(run_process(fixture.settings))
        assert fixture.open().allocations == state.allocations
        assert isinstance(state.prepare(second), ClaimAllocation)
        assert state.release(first.ref) is None
    finally:
        shutil.rmtree(root)
