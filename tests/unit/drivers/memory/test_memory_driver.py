"""Memory driver next to the CPU driver in a cluster: one pod gets CPUs and memory of one NUMA node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from plimsoll.api.cpuset import CpuSet
from plimsoll.drivers.memory.driver import MemoryDriver
from plimsoll.drivers.memory.settings import MemorySettings
from plimsoll.node.agent import Agent
from plimsoll.node.containers import ContainerPhase
from plimsoll.node.runtime.simulated import SimulatedRuntime
from tests.unit.drivers.cpu.driver_harness import MACHINE, DriverHarness, running_cluster
from tests.unit.drivers.memory.sysfs_memory import write_memory
from tests.waiting import DEADLINE, until

HOME = Path(__file__).parents[4]
GI = 1 << 30
#: Class and template of the example, without its pod.
EXAMPLE = (HOME / "examples/numa-memory/pod.yaml").read_text().partition("---\napiVersion: v1\nkind: Pod")[0]


def pod(name: str, *, template: str = "", memory: str = "") -> dict[str, Any]:
    container: dict[str, Any] = {"name": "app", "image": "any", "resources": {}}
    spec: dict[str, Any] = {"containers": [container], "terminationGracePeriodSeconds": 0}
    if template:
        spec["resourceClaims"] = [{"name": "both", "resourceClaimTemplateName": template}]
        container["resources"] = {"claims": [{"name": "both"}]}
    if memory:
        container["resources"]["requests"] = {"memory": memory}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


@asynccontextmanager
async def memory_driver(harness: DriverHarness) -> AsyncIterator[MemoryDriver]:
    of_cpus = harness.settings
    settings = MemorySettings(
        node=of_cpus.node,
        host_root=of_cpus.host_root,
        kubelet_root=of_cpus.kubelet_root,
        cdi=of_cpus.cdi,
        nri=of_cpus.nri,
    )
    async with harness.cluster.connect() as client:
        driver = MemoryDriver(client, settings, read_interval=0.05)
        await driver.start()
        try:
            await until(lambda: not driver.problems())
            yield driver
        finally:
            await driver.stop()


def placements(harness: DriverHarness) -> dict[str, tuple[str, str]]:
    """Return cpuset and memory nodes of the running containers, by pod."""

    def ask(agent: Any) -> dict[str, tuple[str, str]]:
        runtime = cast(SimulatedRuntime, cast(Agent, agent).components.runtime)
        inventory = runtime.inventory()
        names = {each.uid: each.name for each in inventory.pods}
        return {
            names[each.spec.pod]: (each.resources.cpus, each.resources.mems)
            for each in inventory.containers
            if each.state.phase is ContainerPhase.RUNNING and each.spec.pod in names
        }

    return harness.cluster.ask_node("node-0", ask)


def is_unschedulable(tree: dict[str, Any]) -> bool:
    conditions = tree["status"].get("conditions", ())
    return any(each["type"] == "PodScheduled" and each["status"] == "False" for each in conditions)


def test_pods_get_cpus_and_memory_of_one_numa_node() -> None:
    async def scenario(harness: DriverHarness) -> None:
        async with harness.driver(), memory_driver(harness) as driver:
            await harness.run(pod("first", template="aligned"), pod("second", template="aligned"))
            placed = placements(harness)
            nodes = {name: MACHINE.numa_of(CpuSet.parse(cpus)) for name, (cpus, _) in placed.items()}
            # 6Gi of 8Gi: the second pod must be on the other node.
            assert sorted(nodes.values()) == [(0,), (1,)]
            assert {name: mems for name, (_, mems) in placed.items()} == {
                name: str(node) for name, (node,) in nodes.items()
            }
            assert driver.allocated == {"memory-numa000": 6 * GI, "memory-numa001": 6 * GI}
            assert placements(harness).keys() == {"first", "second"}
            # The claims are booked as memory of the node (32Gi): 21Gi do not fit anymore, 19Gi do.
            await asyncio.to_thread(harness.cluster.apply, pod("large", memory="21Gi"))
            await asyncio.to_thread(
                harness.cluster.wait_for, "pods", "large", "default", is_unschedulable, timeout=DEADLINE
            )
            await harness.run(pod("small", memory="19Gi"))
            assert placements(harness)["small"][1] == ""
        async with memory_driver(harness) as again:
            assert again.allocated == {"memory-numa000": 6 * GI, "memory-numa001": 6 * GI}
            await harness.end("first")
            await until(lambda: sum(again.allocated.values()) == 6 * GI)

    with running_cluster(EXAMPLE) as harness:
        for node in (0, 1):
            write_memory(harness.sysfs, node, 8 * GI)
        asyncio.run(scenario(harness))


def test_changes_of_huge_pages_are_published() -> None:
    async def scenario(harness: DriverHarness) -> None:
        async with memory_driver(harness) as driver:
            write_memory(harness.sysfs, 0, 8 * GI, {2 << 20: 1024})
            endpoint = harness.cluster.find("resourceslices")

            def published() -> list[str]:
                slices = harness.cluster.client.list(endpoint)
                return [each["name"] for one in slices for each in one["spec"].get("devices", ())]

            await until(lambda: asyncio.to_thread(published), lambda names: "hugepages-2mi-numa000" in names)
            assert driver.devices["memory-numa000"].size == 6 * GI
            assert {each.device: each.health.value for each in driver.health()} == {
                "memory-numa000": "Healthy",
                "hugepages-2mi-numa000": "Healthy",
            }

    with running_cluster() as harness:
        write_memory(harness.sysfs, 0, 8 * GI)
        asyncio.run(scenario(harness))
