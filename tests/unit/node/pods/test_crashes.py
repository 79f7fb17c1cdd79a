"""Pod workers under crashes of the agent at every step, lost runtimes and random faults: nothing is lost or
leaked.
"""

from __future__ import annotations

import asyncio
import contextlib
from random import Random

import pytest

from plimsoll.api.core import Pod
from plimsoll.node.containers import ContainerPhase, RuntimeFault
from plimsoll.up.local_cluster import LocalCluster
from tests.coroutines import run_by
from tests.sizes import seeds
from tests.unit.node.pods.worker_harness import Node
from tests.unit.node.pods.worker_helpers import (
    gone,
    is_phase,
    restarted,
    run_scenario,
    with_claim,
)
from tests.waiting import until

# -- the agent dies at every step


LIFE = (
    "prepare",
    "prepared",
    "sandbox",
    "create",
    "start",
    "crashed",
    "create c 1",
    "stop c",
    "stopped c",
    "stop-sandbox",
    "unprepare",
    "unprepared",
    "remove-sandbox",
)


@pytest.mark.parametrize("step", LIFE)
@run_by(run_scenario, "cluster")
async def test_a_restarted_agent_resumes(node: Node, *, step: str) -> None:
    pod = await with_claim(node)
    died = asyncio.Event()

    def die(line: str) -> None:
        if line.startswith(step) and not died.is_set():
            died.set()
            node.kill()
            raise asyncio.CancelledError

    node.log.hook = die

    async def live() -> None:
        """Run a pod's lifecycle, resumed wherever the agent crashed."""
        await node.begin(pod)
        await until(lambda: died.is_set() or running(node, 0))
        if not died.is_set():
            await crash_once()
            await until(lambda: died.is_set() or running(node, 1))
        if not died.is_set():
            await node.delete()
            await until(lambda: died.is_set() or (node.worker is not None and node.worker.finished))

    async def crash_once() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await node.machine.crash(pod.metadata.uid, "c", 1)

    await live()
    await until(died.is_set)
    ran = [s.id for s in node.machine.containers() if s.phase is ContainerPhase.RUNNING]
    await node.crash()
    await node.begin(pod)
    if LIFE.index(step) < LIFE.index("stop c"):
        await until(lambda: is_phase(node, "Running"))
        await until(lambda: any(s.phase is ContainerPhase.RUNNING for s in node.machine.containers()))
        assert set(ran) <= {s.id for s in node.machine.containers() if s.phase is ContainerPhase.RUNNING}
        await node.delete()
    await gone(node)
    assert node.log.count("prepared") <= 2
    assert node.log.lines[-1] == "remove-sandbox"


async def running(node: Node, attempt: int) -> bool:
    states = node.machine.containers()
    ready = any(s.phase is ContainerPhase.RUNNING and s.attempt == attempt for s in states)
    return ready and await is_phase(node, "Running")


# -- the machine forgets


@pytest.mark.parametrize("policy", ["Always", "OnFailure", "Never"])
@run_by(run_scenario, "cluster")
async def test_a_runtime_that_lost_all_containers(node: Node, *, policy: str) -> None:
    pod = await with_claim(node, restartPolicy=policy)
    await node.begin(pod)
    await until(lambda: is_phase(node, "Running"))
    await node.crash()
    node.forget()
    await node.begin(pod)
    if policy == "Never":
        await until(lambda: is_phase(node, "Failed"))
        (own,) = (await node.status())["containerStatuses"]
        assert own["state"]["terminated"]["reason"] == "ContainerStatusUnknown"
        assert node.log.count("create") == 1, "what is to run once does not run twice"
        assert not node.gpus.held
    else:
        await until(lambda: restarted(node, 1))
        assert node.log.count("prepared") == 1
    await node.delete()
    await gone(node)


# -- any order


@pytest.mark.parametrize("seed", seeds(12))
def test_nothing_is_leaked_after_random_faults(cluster: LocalCluster, seed: int) -> None:
    dice = Random(seed)

    async def scenario(node: Node) -> None:
        node.machine.deaf = {"c"} if dice.random() < 0.5 else set()
        pod = await with_claim(node, restartPolicy=dice.choice(["Always", "OnFailure"]))
        await node.begin(pod)
        for _ in range(10):
            await one_event(node, pod)
            await asyncio.sleep(dice.choice([0, 0, 0.01, 0.05]))
        node.line.cut = False
        if dice.random() < 0.3:
            await until(lambda: node.machine.containers())
        await node.delete(grace=dice.choice([None, 0]))
        if dice.random() < 0.5:
            await asyncio.sleep(dice.choice([0, 0.02]))
            await node.crash()
            await node.begin(pod)
        await gone(node)

    async def one_event(node: Node, pod: Pod) -> None:
        kind = dice.choice(["die", "die", "crash", "cut", "join", "refuse", "hold", "fault", "wait"])
        running = [s for s in node.machine.containers() if s.phase is ContainerPhase.RUNNING]
        if kind == "die" and running:
            await node.machine.crash(pod.metadata.uid, "c", dice.choice([1, 137]))
        elif kind == "crash":
            await node.crash()
            await node.begin(pod)
        elif kind in ("cut", "join"):
            node.line.cut = kind == "cut"
        elif kind == "refuse":
            node.gpus.faults.append("no")
        elif kind == "hold":
            node.gpus.release_faults.append("busy")
        elif kind == "fault":
            step = dice.choice(["sandbox", "create", "start"])
            node.machine.faults.setdefault(step, []).append(RuntimeFault("RunContainerError", "no"))
        else:
            await until(lambda: node.worker is not None and node.worker.status)

    run_scenario(cluster, scenario)
