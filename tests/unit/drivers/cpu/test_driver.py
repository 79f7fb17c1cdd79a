"""The whole driver in a whole cluster: scheduler, node agent and driver, on a machine made of files."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from plimsoll.api.cpuset import CpuSet
from plimsoll.client.endpoints import RESOURCE_CLAIMS, RESOURCE_SLICES
from plimsoll.drivers.cpu import driver as driver_module
from plimsoll.drivers.cpu.driver import CpuDriver
from plimsoll.drivers.cpu.settings import CpuSettings, PinEnforcement, PinSettings
from plimsoll.drivers.cpu.stale_claims import StaleClaimTracker
from plimsoll.drivers.plugin import Health
from plimsoll.node.agent import Agent
from plimsoll.node.containers import ContainerPhase
from plimsoll.node.runtime.simulated import SimulatedRuntime
from plimsoll.up.local_cluster import LocalCluster
from tests.unit.drivers.cpu.machines import make_machine, switch_off, write_sysfs
from tests.waiting import DEADLINE

MACHINE = make_machine(sockets=1, numa=2, cores=4, threads=1)
CLASS = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: dra.cpu}
spec: {selectors: [{cel: {expression: 'device.driver == "dra.cpu"'}}]}
"""


def template(name: str, cpus: str) -> str:
    return f"""
    apiVersion: resource.k8s.io/v1
    kind: ResourceClaimTemplate
    metadata: {{name: {name}}}
    spec:
      spec:
        devices:
          requests:
          - name: cpu
            exactly: {{deviceClassName: dra.cpu, capacity: {{requests: {{dra.cpu/cpu: "{cpus}"}}}}}}
    """


def pod(name: str, claim: str = "", *, beside: bool = False) -> dict[str, Any]:
    containers: list[dict[str, Any]] = [{"name": "app", "image": "any"}]
    spec: dict[str, Any] = {"containers": containers, "terminationGracePeriodSeconds": 0}
    if claim:
        spec["resourceClaims"] = [{"name": "cpus", "resourceClaimTemplateName": claim}]
        containers[0]["resources"] = {"claims": [{"name": "cpus"}]}
    if beside:
        containers.append({"name": "beside", "image": "any"})
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def is_running(tree: dict[str, Any]) -> bool:
    return bool(tree["status"]["phase"] == "Running")


class DriverHarness:
    """A cluster with one node, and what its driver needs."""

    def __init__(self, cluster: LocalCluster, sysfs: Path) -> None:
        self.cluster = cluster
        root = cluster.node_root("node-0")
        self.sysfs = sysfs
        self.settings = CpuSettings(
            node="node-0",
            host_root=sysfs,
            kubelet_root=root,
            cdi=root / "cdi",
            nri=root / "nri" / "nri.sock",
        )

    @asynccontextmanager
    async def driver(self, settings: CpuSettings | None = None, **more: Any) -> AsyncIterator[CpuDriver]:
        async with self.cluster.connect() as client:
            driver = CpuDriver(client, settings or self.settings, watch_interval=0.05, **more)
            await driver.start()
            try:
                await until(lambda: driver.ready)
                yield driver
            finally:
                await driver.stop()

    def cpus(self) -> dict[str, str]:
        """Return what the runtime has set, by pod and container."""

        def ask(agent: Any) -> dict[str, str]:
            runtime = cast(SimulatedRuntime, cast(Agent, agent).components.runtime)
            inventory = runtime.inventory()
            names = {each.uid: each.name for each in inventory.pods}
            return {
                f"{names[each.spec.pod]}/{each.spec.name}": each.resources.cpus or "-"
                for each in inventory.containers
                if each.state.phase is ContainerPhase.RUNNING and each.spec.pod in names
            }

        return self.cluster.ask_node("node-0", ask)

    async def run(self, *pods: dict[str, Any]) -> None:
        await asyncio.to_thread(self.cluster.apply, *pods)
        for each in pods:
            name = each["metadata"]["name"]
            await asyncio.to_thread(self.cluster.wait_for, "pods", name, "default", is_running, timeout=20)

    async def end(self, name: str) -> None:
        await asyncio.to_thread(self.cluster.client.delete, self.cluster.find("pods"), name, "default")
        await asyncio.to_thread(self.cluster.wait_for, "pods", name, gone=True, timeout=20)


async def until(true: Callable[[], bool], timeout: float = DEADLINE) -> None:
    async with asyncio.timeout(timeout):
        while not true():
            await asyncio.sleep(0.02)


@pytest.fixture
def harness() -> Iterator[DriverHarness]:
    directory = Path(tempfile.mkdtemp(prefix="p-", dir="/tmp"))
    try:
        write_sysfs(MACHINE, directory)
        with LocalCluster(scheduler=True, nodes=1) as cluster:
            cluster.apply(CLASS, template("two", "2"), template("most", "4"))
            yield DriverHarness(cluster, directory)
    finally:
        shutil.rmtree(directory)


def run_scenario(scenario: Awaitable[None]) -> None:
    async def whole() -> None:
        await scenario

    asyncio.run(whole())


def test_claimed_cpus_are_left_by_all_others_and_given_back(harness: DriverHarness) -> None:
    async def scenario() -> None:
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

    run_scenario(scenario())


def test_a_driver_that_comes_back_knows_everything(harness: DriverHarness) -> None:
    async def scenario() -> None:
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

    run_scenario(scenario())


def test_cpus_that_go_offline_and_come_back(harness: DriverHarness) -> None:
    async def scenario() -> None:
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

    run_scenario(scenario())


def capacities(harness: DriverHarness) -> dict[str, str]:
    return {
        device["name"]: device["capacity"]["dra.cpu/cpu"]["value"]
        for tree in harness.cluster.client.list(RESOURCE_SLICES)
        for device in tree["spec"]["devices"]
    }


def test_no_claim_is_prepared_while_pinning_is_down(
    harness: DriverHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_module, "LINK_SECONDS", 0.1)

    async def scenario() -> None:
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
                harness.cluster.wait_for, "pods", "pinned", "default", is_running, timeout=20
            )

    run_scenario(scenario())


def test_a_claim_that_another_driver_released_is_given_up(harness: DriverHarness) -> None:
    async def scenario() -> None:
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

    run_scenario(scenario())


def test_cdi_files_that_are_deleted_come_back(harness: DriverHarness) -> None:
    async def scenario() -> None:
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

    run_scenario(scenario())


def test_a_node_that_is_gone_is_noticed(harness: DriverHarness) -> None:
    async def scenario() -> None:
        async with harness.driver() as driver:
            await until(lambda: driver.plugin_server.health_watched)
            assert driver.problems() == ()
            await asyncio.to_thread(harness.cluster.stop_node, "node-0")
            await until(lambda: any("the kubelet is gone" in problem for problem in driver.problems()))
            await until(lambda: any("not pinned" in problem for problem in driver.problems()))
            await asyncio.to_thread(harness.cluster.start_node, "node-0")
            await until(lambda: driver.problems() == ())

    run_scenario(scenario())
