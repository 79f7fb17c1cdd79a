"""CPU quota of containers that get exclusive CPUs while they are created."""

from __future__ import annotations

from dataclasses import replace

import pytest

from plimsoll.client.endpoints import PODS
from plimsoll.node.cgroup_planner import CgroupPlanner
from plimsoll.node.cgroup_plans import CgroupSettings
from plimsoll.node.containers import ContainerSpec, SandboxSpec
from plimsoll.node.exclusive_cpus import containers_with_claimed_cpus
from plimsoll.node.hooks import AdjustedContainer, RuntimeHooks
from plimsoll.node.resources import LinuxResources
from tests.coroutines import run_by
from tests.unit.node.pods.worker_harness import Node
from tests.unit.node.pods.worker_helpers import is_phase, run_scenario
from tests.waiting import until


class _Pinning(RuntimeHooks):
    """Hooks that give every new container two CPUs of its own."""

    async def create(
        self, pod: SandboxSpec, container: ContainerSpec, resources: LinuxResources
    ) -> AdjustedContainer:
        return AdjustedContainer(resources=replace(resources, cpus="2-3"))


@pytest.mark.parametrize(("cpu", "quota"), [("2", -1), ("1", 200_000)])
@run_by(run_scenario, "cluster")
async def test_the_quota_is_lifted_once_a_container_has_exclusive_cpus(
    node: Node, *, cpu: str, quota: int
) -> None:
    settings = CgroupSettings(memory_capacity=2**34)
    node.machine.hooks = _Pinning()
    node.deps.plans = CgroupPlanner(
        settings, exclusive=lambda pod: containers_with_claimed_cpus(pod, node.machine.containers())
    )
    limits = {"cpu": "1", "memory": "1Gi"}
    claim = f"cpus-{node.serial}"
    made = await node.create(
        {
            "containers": [{"name": "c", "image": "i", "resources": {"limits": limits}}],
            "resourceClaims": [{"name": "cpus", "resourceClaimName": claim}],
        }
    )
    entry = {"resourceClaimName": claim, "containers": ["c"]}
    charges = [{**entry, "mapping": [{"name": "cpu", "quantity": cpu}]}]
    patch = {"status": {"nodeAllocatableResourceClaimStatuses": charges}}
    await node.admin.patch(PODS, node.name, patch, "default", subresource="status", type="merge")
    await node.create_claim(made, claim)
    await node.begin(made)
    await until(lambda: is_phase(node, "Running"))
    (held,) = node.machine.inventory().containers
    (sandbox,) = node.machine.inventory().pods
    assert (held.resources.cpu_quota, held.resources.cpus) == (quota, "2-3")
    assert sandbox.plan.cpu_quota == quota
