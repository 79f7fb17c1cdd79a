"""In-place resize of running pods."""

from __future__ import annotations

from typing import Any

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.client.endpoints import PODS
from plimsoll.node.admission.allocation import PodAllocation
from plimsoll.node.admission.resize import ACCEPTED, ResizeDecision, ResizeOutcome
from plimsoll.node.containers import ContainerPhase, RuntimeFault, SandboxSpec
from tests.coroutines import run_by
from tests.unit.node.pods.worker_harness import Node
from tests.unit.node.pods.worker_helpers import (
    condition,
    has_reason,
    is_phase,
    restarted,
    run_scenario,
)
from tests.waiting import until


class Room:
    """Resizer that accepts a resize on demand."""

    def __init__(self) -> None:
        self.allocations: dict[str, PodAllocation] = {}
        self.answer: ResizeDecision | None = ResizeDecision(
            ResizeOutcome.DEFERRED, "Node didn't have enough capacity: cpu"
        )

    def allocated(self, pod: Pod) -> Pod:
        return self.allocations.setdefault(pod.metadata.uid, PodAllocation.from_spec(pod)).apply_to(pod)

    async def check(self, pod: Pod) -> ResizeDecision | None:
        if self.answer is not None and self.answer.accepted:
            self.allocations[pod.metadata.uid] = PodAllocation.from_spec(pod)
        return self.answer


RESIZABLE = {
    "containers": [
        {
            "name": "c",
            "image": "i",
            "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}},
            "resizePolicy": [{"resourceName": "memory", "restartPolicy": "RestartContainer"}],
        }
    ],
    "restartPolicy": "OnFailure",
}


async def resize(node: Node, **resources: Any) -> None:
    patch = {"spec": {"containers": [{"name": "c", "resources": resources}]}}
    await node.admin.patch(PODS, node.name, patch, "default", subresource="resize", type="strategic")


@run_by(run_scenario, "cluster")
async def test_a_resize_waits_and_is_then_applied(node: Node) -> None:
    room = node.deps.resizer = Room()
    pod = await node.create(RESIZABLE)
    await node.begin(pod)
    await until(lambda: is_phase(node, "Running"))
    await resize(node, requests={"cpu": "2"})
    waiting = await until(lambda: condition(node, "PodResizePending"))
    assert (waiting["reason"], waiting["message"]) == (
        "Deferred",
        "Node didn't have enough capacity: cpu",
    )
    (own,) = (await node.status())["containerStatuses"]
    assert own["allocatedResources"]["cpu"] == "1"
    room.answer = ACCEPTED
    assert node.worker is not None
    node.worker.notify()

    async def has_status() -> bool:
        (own,) = (await node.status())["containerStatuses"]
        return bool(own["allocatedResources"]["cpu"] == own["resources"]["requests"]["cpu"] == "2")

    await until(has_status)
    assert await condition(node, "PodResizePending") is None
    assert await condition(node, "PodResizeInProgress") is None
    (held,) = node.machine.inventory().containers
    assert held.resources.cpu_shares == 2048
    assert node.log.count("create") == 1, "nothing was restarted"
    await until(lambda: has_reason(node, "ResizeCompleted"))


@run_by(run_scenario, "cluster")
async def test_a_resize_that_requires_a_restart(node: Node) -> None:
    room = node.deps.resizer = Room()
    room.answer = ACCEPTED
    await node.begin(await node.create(RESIZABLE))
    await until(lambda: is_phase(node, "Running"))
    await resize(node, limits={"memory": "2Gi"})
    await until(lambda: restarted(node, 1))
    (own,) = (await node.status())["containerStatuses"]
    assert own["resources"]["limits"]["memory"] == "2Gi"
    assert own["lastState"]["terminated"]["exitCode"] == 0, "it succeeded, and runs again all the same"
    running = [h for h in node.machine.inventory().containers if h.state.phase is ContainerPhase.RUNNING]
    assert [h.resources.memory_limit for h in running] == [2 * 2**30]


@run_by(run_scenario, "cluster")
async def test_a_pod_shrinks_after_the_container_that_had_more_was_restarted(node: Node) -> None:
    room = node.deps.resizer = Room()
    room.answer = ACCEPTED
    updates: list[int | None] = []
    update = node.machine.update_sandbox

    async def noted(spec: SandboxSpec) -> RuntimeFault | None:
        updates.append(spec.plan.memory)
        running = [h for h in node.machine.inventory().containers if h.state.phase is ContainerPhase.RUNNING]
        assert all((h.resources.memory_limit or 0) <= (spec.plan.memory or 0) for h in running)
        return await update(spec)

    node.machine.update_sandbox = noted  # type: ignore[method-assign]
    await node.begin(await node.create(RESIZABLE))
    await until(lambda: is_phase(node, "Running"))
    await resize(node, requests={"memory": "512Mi"}, limits={"memory": "512Mi"})
    await until(lambda: restarted(node, 1))
    await until(lambda: 2**29 in updates)
    assert updates[-1] == 2**29


@run_by(run_scenario, "cluster")
async def test_a_granted_resize_is_applied_after_an_agent_restart(node: Node) -> None:
    room = node.deps.resizer = Room()
    pod = await node.create(RESIZABLE)
    await node.begin(pod)
    await until(lambda: is_phase(node, "Running"))
    await node.crash()
    await resize(node, requests={"cpu": "2"})
    tree = await node.get()
    room.allocations[pod.metadata.uid] = PodAllocation.from_spec(codec.decode(codec.encode(tree), Pod))
    node.deps.resizer = room
    await node.begin(pod)
    await until(lambda: node.machine.inventory().containers[0].resources.cpu_shares == 2048)
