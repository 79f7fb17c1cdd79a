"""Cluster with one node, a CPU driver and a fake machine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, cast

from plimsoll.drivers.cpu.driver import CpuDriver
from plimsoll.drivers.cpu.settings import CpuSettings
from plimsoll.node.agent import Agent
from plimsoll.node.containers import ContainerPhase
from plimsoll.node.runtime.simulated import SimulatedRuntime
from plimsoll.up.local_cluster import LocalCluster
from tests.directories import short_directory
from tests.unit.drivers.cpu.machines import make_machine, write_sysfs
from tests.waiting import DEADLINE, until

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
    """Cluster with one node and its driver."""

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
        """Return the cpusets in the runtime, by pod and container."""

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
            await asyncio.to_thread(
                self.cluster.wait_for, "pods", name, "default", is_running, timeout=DEADLINE
            )

    async def end(self, name: str) -> None:
        await asyncio.to_thread(self.cluster.client.delete, self.cluster.find("pods"), name, "default")
        await asyncio.to_thread(self.cluster.wait_for, "pods", name, gone=True, timeout=DEADLINE)


@contextmanager
def running_cluster(*templates: str) -> Iterator[DriverHarness]:
    """Yield a harness with claim templates."""
    with short_directory() as directory, LocalCluster(scheduler=True, nodes=1) as cluster:
        write_sysfs(MACHINE, directory)
        cluster.apply(CLASS, *templates)
        yield DriverHarness(cluster, directory)
