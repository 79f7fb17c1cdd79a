"""Pods live and die on a node with an API server, a runtime and a driver: conversations, in every order."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.cluster.client.endpoints import CONFIG_MAPS, EVENTS, PODS
from plimsoll.node.allocation import Allocation
from plimsoll.node.containers import Phase, RuntimeFault, SandboxSpec
from plimsoll.node.pods.commands import HostCommands
from plimsoll.node.pods.situation import Order
from plimsoll.node.pods.worker import reject
from plimsoll.node.resize import ACCEPTED, Outcome, Resize
from plimsoll.run.local import LocalCluster
from tests.unit.node.pods.world import DRIVER, Node, node_of, until

PLAIN = {"containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 1}
WITH_CLAIM = {
    "containers": [{"name": "c", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}],
    "resourceClaims": [{"name": "gpu", "resourceClaimName": "PLACEHOLDER"}],
    "terminationGracePeriodSeconds": 1,
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(controllers=False) as running:
        yield running


def play(cluster: LocalCluster, story: Callable[[Node], Awaitable[None]]) -> None:
    async def tell() -> None:
        async with asyncio.timeout(30), node_of(cluster) as node:
            await story(node)
            check_nothing_is_leaked(node)

    asyncio.run(tell())


def check_nothing_is_leaked(node: Node) -> None:
    """A pod that is gone left nothing behind."""
    if node.worker is not None and node.worker.finished:
        assert node.machine.sandboxes() == []
        assert node.machine.containers() == []
        assert node.book.claims() == ()
        assert not node.gpus.held


async def is_phase(node: Node, phase: str) -> bool:
    return bool((await node.status()).get("phase") == phase)


async def has_reason(node: Node, reason: str) -> bool:
    events = await node.admin.list(EVENTS, "default")
    return any(f'"{reason}"'.encode() in raw and node.name.encode() in raw for raw in events.items)


async def with_claim(node: Node, **rest: Any) -> Any:
    spec = {
        **WITH_CLAIM,
        **rest,
        "resourceClaims": [{"name": "gpu", "resourceClaimName": f"claim-{node.serial}"}],
    }
    pod = await node.create(spec)
    await node.create_claim(pod, f"claim-{node.serial}")
    return pod


async def gone(node: Node) -> None:
    assert node.worker is not None
    await until(lambda: node.worker is not None and node.worker.finished)
    assert await node.get() is None


# -- stories


def test_a_pod_runs_and_is_deleted(cluster: LocalCluster) -> None:
    async def story(node: Node) -> None:
        await node.begin(await with_claim(node))
        await until(lambda: is_phase(node, "Running"))
        assert node.log.lines == ["prepare", "prepared", "sandbox", f"create c 0 {DRIVER}/gpu=0", "start c"]
        status = await node.status()
        conditions = {c["type"]: c["status"] for c in status["conditions"]}
        assert conditions == {
            "PodReadyToStartContainers": "True",
            "Initialized": "True",
            "Ready": "True",
            "ContainersReady": "True",
            "PodScheduled": "True",
        }
        (own,) = status["containerStatuses"]
        assert own["ready"] is own["started"] is True
        assert own["containerID"].startswith("none://")
        health = {"resourceID": f"{DRIVER}/gpu=0", "health": "Unknown"}
        assert own["allocatedResourcesStatus"] == [{"name": "claim:gpu", "resources": [health]}]
        assert (status["hostIP"], status["podIP"]) == ("10.0.0.1", "127.0.0.1")
        await node.delete()
        await gone(node)
        tail = ["stop c", "stopped c", "stop-sandbox", "unprepare", "unprepared", "remove-sandbox"]
        assert node.log.lines[5:] == tail

    play(cluster, story)


def test_what_others_wrote_is_not_touched(cluster: LocalCluster) -> None:
    async def story(node: Node) -> None:
        pod = await with_claim(node)
        charge = {"resourceClaimName": f"claim-{node.serial}", "containers": ["c"], "resources": {"cpu": "1"}}
        tree = await node.get()
        assert tree is not None
        tree["status"]["nodeAllocatableResourceClaimStatuses"] = [charge]
        tree["status"]["conditions"] = [{"type": "example.com/mine", "status": "True"}]
        before = await node.admin.update(PODS, tree, "default", subresource="status")
        await node.begin(pod)
        await until(lambda: is_phase(node, "Running"))
        await node.machine.crash(pod.metadata.uid, "c", 1)
        await until(lambda: restarted(node, 1))
        status = await node.status()
        kept = "nodeAllocatableResourceClaimStatuses"
        assert status.get(kept) == before["status"].get(kept)
        assert {"type": "example.com/mine", "status": "True"}.items() <= next(
            c for c in status["conditions"] if c["type"] == "example.com/mine"
        ).items()

    play(cluster, story)


async def restarted(node: Node, count: int) -> bool:
    (own,) = (await node.status()).get("containerStatuses") or [{}]
    return own.get("restartCount") == count and "running" in own["state"]


def test_a_container_that_crashes_is_restarted_without_a_new_prepare(cluster: LocalCluster) -> None:
    async def story(node: Node) -> None:
        pod = await with_claim(node)
        await node.begin(pod)
        for count in range(3):
            await until(partial(restarted, node, count))
            await node.machine.crash(pod.metadata.uid, "c", 7)
        await until(lambda: restarted(node, 3))
        (own,) = (await node.status())["containerStatuses"]
        assert own["lastState"]["terminated"]["exitCode"] == 7
        assert own["lastState"]["terminated"]["reason"] == "Error"
        assert node.log.count("prepared") == 1
        assert len(node.machine.containers()) == 2
        await until(lambda: has_reason(node, "BackOff"))

    play(cluster, story)


def test_prepare_fails_then_works(cluster: LocalCluster) -> None:
    async def story(node: Node) -> None:
        node.gpus.faults = ["no", "not yet"]
        await node.begin(await with_claim(node))
        await until(lambda: is_phase(node, "Running"))
        assert node.log.count("prepare") - node.log.count("prepared") == 3
        await until(lambda: has_reason(node, "FailedPrepareDynamicResources"))

    play(cluster, story)


def test_deletion_while_preparing(cluster: LocalCluster) -> None:
    async def story(node: Node) -> None:
        node.gpus.gate = asyncio.Event()
        await node.begin(await with_claim(node))
        await until(lambda: node.log.count("prepare"))
        await node.delete()
        await until(lambda: node.worker is not None and node.worker.ending)
        node.gpus.gate.set()
        await gone(node)
        assert node.log.lines == ["prepare", "prepared", "unprepare", "unprepared", "remove-sandbox"]

    play(cluster, story)


@pytest.mark.parametrize("step", ["sandbox", "create", "start"])
def test_deletion_while_starting(cluster: LocalCluster, step: str) -> None:
    async def story(node: Node) -> None:
        gate = node.machine.held[step] = asyncio.Event()
        await node.begin(await with_claim(node))
        await until(lambda: node.log.count(step))
        await node.delete()
        await until(lambda: node.worker is not None and node.worker.ending)
        gate.set()
        await gone(node)
        assert node.log.place("unprepared") < node.log.place("remove-sandbox")
        assert node.log.count("create") <= 1

    play(cluster, story)


def test_force_deletion(cluster: LocalCluster) -> None:
    async def story(node: Node) -> None:
        node.machine.deaf = {"c"}
        await node.begin(await with_claim(node))
        await until(lambda: is_phase(node, "Running"))
        await node.delete(grace=0)
        assert await node.get() is None
        await gone(node)
        assert node.log.place("stopped c") < node.log.place("unprepare")

    play(cluster, story)


def test_the_same_name_again_after_a_force_deletion(cluster: LocalCluster) -> None:
    """Another pod of the same name is not touched by the worker of the one before."""

    async def story(node: Node) -> None:
        node.machine.deaf = {"c"}
        pod = await node.create(PLAIN)
        await node.begin(pod)
        await until(lambda: is_phase(node, "Running"))
        await node.delete(grace=0)
        tree = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": node.name, "namespace": "default"},
            "spec": {"nodeName": "n1", **PLAIN},
        }
        await node.admin.create(PODS, tree, "default")
        await until(lambda: node.worker is not None and node.worker.finished)
        status = await node.status()
        assert status["phase"] == "Pending"
        assert "containerStatuses" not in status

    play(cluster, story)


def test_an_eviction(cluster: LocalCluster) -> None:
    async def story(node: Node) -> None:
        await node.begin(await with_claim(node))
        await until(lambda: is_phase(node, "Running"))
        assert node.worker is not None
        order = Order("Evicted", "The node was low on resource: memory.", 0.0, "TerminationByKubelet")
        node.worker.end(order)
        await until(lambda: is_phase(node, "Failed"))
        status = await node.status()
        assert (status["reason"], status["message"]) == ("Evicted", "The node was low on resource: memory.")
        target = next(c for c in status["conditions"] if c["type"] == "DisruptionTarget")
        assert (target["status"], target["reason"]) == ("True", "TerminationByKubelet")
        assert not node.gpus.held, "claims are released though the pod is still in the API"
        assert node.log.count("remove-sandbox") == 0
        await node.delete()
        await gone(node)

    play(cluster, story)


def test_run_once_to_the_end(cluster: LocalCluster) -> None:
    async def story(node: Node) -> None:
        annotations = {"plimsoll.dev/run-seconds": "0.05"}
        pod = await node.create({**PLAIN, "restartPolicy": "Never"}, annotations=annotations)
        await node.begin(pod)
        await until(lambda: is_phase(node, "Succeeded"))
        status = await node.status()
        (own,) = status["containerStatuses"]
        assert own["state"]["terminated"]["reason"] == "Completed"
        ready = next(c for c in status["conditions"] if c["type"] == "Ready")
        assert (ready["status"], ready["reason"]) == ("False", "PodCompleted")
        # A new agent runs it no second time, and has nothing to tell.
        await node.crash()
        await node.begin(pod)
        await asyncio.sleep(0.1)
        assert node.log.count("create") == 1
        assert await node.status() == status

    play(cluster, story)


def test_init_containers_and_sidecars(cluster: LocalCluster) -> None:
    async def story(node: Node) -> None:
        spec = {
            "initContainers": [
                {"name": "first", "image": "i"},
                {"name": "side", "image": "i", "restartPolicy": "Always"},
                {"name": "second", "image": "i"},
            ],
            **PLAIN,
            "restartPolicy": "Never",
        }
        pod = await node.create(spec)
        await node.begin(pod)
        await until(lambda: is_phase(node, "Running"))
        starts = [line for line in node.log.lines if line.startswith("start")]
        assert starts == ["start first", "start side", "start second", "start c"]
        await node.machine.crash(pod.metadata.uid, "c", 0)
        await until(lambda: is_phase(node, "Succeeded"))
        assert node.log.lines[-3:] == ["stop side", "stopped side", "stop-sandbox"]

    play(cluster, story)


def test_faults_of_the_runtime_are_shown_and_overcome(cluster: LocalCluster) -> None:
    async def story(node: Node) -> None:
        node.machine.faults = {
            "sandbox": [RuntimeFault("CreatePodSandboxError", "no sandbox")],
            "create": [RuntimeFault("CreateContainerError", "no container")] * 3,
            "start": [RuntimeFault("RunContainerError", "no start")],
        }
        await node.begin(await node.create(PLAIN))
        await until(lambda: is_phase(node, "Running"))
        (own,) = (await node.status())["containerStatuses"]
        assert own["restartCount"] == 1, "the attempt that could not be started counts"
        await until(lambda: has_reason(node, "FailedCreatePodSandBox"))
        await until(lambda: has_reason(node, "Failed"))

    play(cluster, story)


def test_a_missing_config_map_is_waited_for(cluster: LocalCluster) -> None:
    async def story(node: Node) -> None:
        reference = {"configMapKeyRef": {"name": f"map-{node.serial}", "key": "k"}}
        container = {"name": "c", "image": "i", "env": [{"name": "K", "valueFrom": reference}]}
        await node.begin(await node.create({"containers": [container]}))

        async def waits() -> bool:
            (own,) = (await node.status()).get("containerStatuses") or [{}]
            return bool(own.get("state", {}).get("waiting", {}).get("reason") == "CreateContainerConfigError")

        await until(waits)
        (own,) = (await node.status())["containerStatuses"]
        assert own["state"]["waiting"]["message"] == f'configmap "map-{node.serial}" not found'
        tree = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"map-{node.serial}"},
            "data": {"k": "v"},
        }
        await node.admin.create(CONFIG_MAPS, tree, "default")
        await until(lambda: is_phase(node, "Running"))

    play(cluster, story)


def test_the_server_goes_away_and_comes_back(cluster: LocalCluster) -> None:
    async def story(node: Node) -> None:
        pod = await with_claim(node)
        await node.begin(pod)
        await until(lambda: is_phase(node, "Running"))
        node.line.cut = True
        for attempt in range(1, 4):
            await node.machine.crash(pod.metadata.uid, "c", 1)
            await until(partial(node.log.count, f"create c {attempt}"))
            await until(lambda: node.machine.latest(pod.metadata.uid, "c").phase is Phase.RUNNING)
        assert await restarted(node, 0), "nothing came through"
        written = node.parts.writer.written
        node.line.cut = False
        await until(lambda: restarted(node, 3))
        assert node.parts.writer.written - written <= 2, "only the latest status is written"

    play(cluster, story)


def test_a_deletion_while_the_server_goes_away(cluster: LocalCluster) -> None:
    async def story(node: Node) -> None:
        node.machine.deaf = {"c"}
        await node.begin(await with_claim(node))
        await until(lambda: is_phase(node, "Running"))
        await node.delete()
        await until(lambda: node.log.count("stop c"))
        node.line.cut = True
        await until(lambda: node.worker is not None and node.worker.closed)
        assert not node.gpus.held
        assert await node.get() is not None
        node.line.cut = False
        await gone(node)

    play(cluster, story)


def test_a_driver_that_does_not_let_go_is_asked_again(cluster: LocalCluster) -> None:
    async def story(node: Node) -> None:
        await node.begin(await with_claim(node))
        await until(lambda: is_phase(node, "Running"))
        node.gpus.release_faults = ["busy", "busy"]
        await node.delete()
        await gone(node)
        assert node.log.count("unprepare") - node.log.count("unprepared") == 3

    play(cluster, story)


def test_finalizers_hold_the_pod_not_the_node(cluster: LocalCluster) -> None:
    async def story(node: Node) -> None:
        pod = await node.create(PLAIN, finalizers=["example.com/hold"])
        await node.begin(pod)
        await until(lambda: is_phase(node, "Running"))
        await node.delete()
        await until(lambda: node.log.count("remove-sandbox"))
        await asyncio.sleep(0.05)
        assert node.worker is not None
        assert not node.worker.finished
        await node.admin.patch(PODS, node.name, {"metadata": {"finalizers": None}}, "default")
        await gone(node)

    play(cluster, story)


def test_rejected(cluster: LocalCluster) -> None:
    async def story(node: Node) -> None:
        pod = await node.create(PLAIN)
        message = "Node didn't have enough resource: cpu, requested: 2, used: 1, capacity: 2"
        worker = reject(pod, "OutOfcpu", message, node.parts)
        await until(lambda: is_phase(node, "Failed"))
        status = await node.status()
        assert (status["reason"], status["message"]) == ("OutOfcpu", f"Pod was rejected: {message}")
        assert "containerStatuses" not in status
        assert node.log.lines == []
        await until(lambda: has_reason(node, "OutOfcpu"))
        await worker.stop()

    play(cluster, story)


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
def test_a_new_agent_goes_on_where_the_last_one_died(cluster: LocalCluster, step: str) -> None:
    async def story(node: Node) -> None:
        pod = await with_claim(node)
        died = asyncio.Event()

        def die(line: str) -> None:
            if line.startswith(step) and not died.is_set():
                died.set()
                node.kill()
                raise asyncio.CancelledError

        node.log.hook = die

        async def live() -> None:
            """A pod's life, begun anew wherever the agent died."""
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
        ran = [s.id for s in node.machine.containers() if s.phase is Phase.RUNNING]
        await node.crash()
        await node.begin(pod)
        if LIFE.index(step) < LIFE.index("stop c"):
            await until(lambda: is_phase(node, "Running"))
            await until(lambda: any(s.phase is Phase.RUNNING for s in node.machine.containers()))
            assert set(ran) <= {s.id for s in node.machine.containers() if s.phase is Phase.RUNNING}
            await node.delete()
        await gone(node)
        assert node.log.count("prepared") <= 2
        assert node.log.lines[-1] == "remove-sandbox"

    play(cluster, story)


async def running(node: Node, attempt: int) -> bool:
    states = node.machine.containers()
    ready = any(s.phase is Phase.RUNNING and s.attempt == attempt for s in states)
    return ready and await is_phase(node, "Running")


# -- resizes


class Room:
    """Books that grant a resize when they are told to."""

    def __init__(self) -> None:
        self.allocations: dict[str, Allocation] = {}
        self.answer: Resize | None = Resize(Outcome.DEFERRED, "Node didn't have enough capacity: cpu")

    def given(self, pod: Pod) -> Pod:
        return self.allocations.setdefault(pod.metadata.uid, Allocation.of(pod)).onto(pod)

    async def judge(self, pod: Pod) -> Resize | None:
        if self.answer is not None and self.answer.accepted:
            self.allocations[pod.metadata.uid] = Allocation.of(pod)
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


async def condition(node: Node, kind: str) -> dict[str, Any] | None:
    conditions = (await node.status()).get("conditions", [])
    return next((c for c in conditions if c["type"] == kind), None)


def test_a_resize_waits_and_is_then_applied(cluster: LocalCluster) -> None:
    async def story(node: Node) -> None:
        room = node.parts.resizes = Room()
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
        node.worker.poke()

        async def is_told() -> bool:
            (own,) = (await node.status())["containerStatuses"]
            return bool(own["allocatedResources"]["cpu"] == own["resources"]["requests"]["cpu"] == "2")

        await until(is_told)
        assert await condition(node, "PodResizePending") is None
        assert await condition(node, "PodResizeInProgress") is None
        (held,) = node.machine.inventory().containers
        assert held.resources.cpu_shares == 2048
        assert node.log.count("create") == 1, "nothing was restarted"
        await until(lambda: has_reason(node, "ResizeCompleted"))

    play(cluster, story)


def test_a_resize_that_takes_a_restart(cluster: LocalCluster) -> None:
    async def story(node: Node) -> None:
        room = node.parts.resizes = Room()
        room.answer = ACCEPTED
        await node.begin(await node.create(RESIZABLE))
        await until(lambda: is_phase(node, "Running"))
        await resize(node, limits={"memory": "2Gi"})
        await until(lambda: restarted(node, 1))
        (own,) = (await node.status())["containerStatuses"]
        assert own["resources"]["limits"]["memory"] == "2Gi"
        assert own["lastState"]["terminated"]["exitCode"] == 0, "it succeeded, and runs again all the same"
        running = [h for h in node.machine.inventory().containers if h.state.phase is Phase.RUNNING]
        assert [h.resources.memory_limit for h in running] == [2 * 2**30]

    play(cluster, story)


def test_a_pod_shrinks_after_the_container_that_had_more_was_restarted(cluster: LocalCluster) -> None:
    async def story(node: Node) -> None:
        room = node.parts.resizes = Room()
        room.answer = ACCEPTED
        updates: list[int | None] = []
        update = node.machine.update_sandbox

        async def noted(spec: SandboxSpec) -> RuntimeFault | None:
            updates.append(spec.plan.memory)
            running = [h for h in node.machine.inventory().containers if h.state.phase is Phase.RUNNING]
            assert all((h.resources.memory_limit or 0) <= (spec.plan.memory or 0) for h in running)
            return await update(spec)

        node.machine.update_sandbox = noted  # type: ignore[method-assign]
        await node.begin(await node.create(RESIZABLE))
        await until(lambda: is_phase(node, "Running"))
        await resize(node, requests={"memory": "512Mi"}, limits={"memory": "512Mi"})
        await until(lambda: restarted(node, 1))
        await until(lambda: 2**29 in updates)
        assert updates[-1] == 2**29

    play(cluster, story)


def test_a_resize_that_was_granted_but_not_applied_is_applied_by_the_next_agent(
    cluster: LocalCluster,
) -> None:
    async def story(node: Node) -> None:
        room = node.parts.resizes = Room()
        pod = await node.create(RESIZABLE)
        await node.begin(pod)
        await until(lambda: is_phase(node, "Running"))
        await node.crash()
        await resize(node, requests={"cpu": "2"})
        tree = await node.get()
        room.allocations[pod.metadata.uid] = Allocation.of(codec.decode(codec.encode(tree), Pod))
        node.parts.resizes = room
        await node.begin(pod)
        await until(lambda: node.machine.inventory().containers[0].resources.cpu_shares == 2048)

    play(cluster, story)


# -- probes and hooks


async def serve(answers: list[int]) -> tuple[asyncio.Server, int]:
    """An HTTP server that answers with these codes, the last one for ever."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        code = answers.pop(0) if len(answers) > 1 else answers[0]
        writer.write(f"HTTP/1.1 {code} x\r\nContent-Length: 0\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[1]


def probe(port: int, **rest: Any) -> dict[str, Any]:
    return {"httpGet": {"path": "/", "port": port}, "periodSeconds": 1, "failureThreshold": 1, **rest}


async def is_ready(node: Node, wanted: str) -> bool:
    return bool((await condition(node, "Ready") or {}).get("status") == wanted)


def test_readiness(cluster: LocalCluster) -> None:
    async def story(node: Node) -> None:
        answers = [500, 200]
        server, port = await serve(answers)
        node.parts.timing = replace(node.parts.timing, second=0.02)
        async with server:
            container = {"name": "c", "image": "i", "readinessProbe": probe(port)}
            await node.begin(await node.create({"containers": [container]}))
            await until(lambda: is_ready(node, "True"))
            await until(lambda: has_reason(node, "Unhealthy"))
            # A new agent does not take back what was found out.
            await node.crash()
            node.parts.timing = replace(node.parts.timing, second=100.0)
            await node.begin(await node.view())
            await asyncio.sleep(0.05)
            assert await is_ready(node, "True")
            await node.crash()
            answers[:] = [503]
            node.parts.timing = replace(node.parts.timing, second=0.02)
            await node.begin(await node.view())
            await until(lambda: is_ready(node, "False"))
            assert node.log.count("create") == 1

    play(cluster, story)


def test_liveness_and_startup(cluster: LocalCluster) -> None:
    async def story(node: Node) -> None:
        lively, starting = [500], [500, 500, 200]
        first, port = await serve(lively)
        second, other = await serve(starting)
        node.parts.timing = replace(node.parts.timing, second=0.02)
        async with first, second:
            container = {
                "name": "c",
                "image": "i",
                "livenessProbe": probe(port),
                "startupProbe": probe(other, failureThreshold=5),
            }
            await node.begin(await node.create({"containers": [container]}))
            await until(lambda: node.log.count("stop c"))
            assert starting == [200], "liveness waits for the start"
            lively[:] = [200]
            await until(lambda: restarted(node, 1))
            await until(lambda: is_ready(node, "True"))

    play(cluster, story)


def test_a_simulated_node_takes_probes_for_passed(cluster: LocalCluster) -> None:
    async def story(node: Node) -> None:
        node.parts.unprobed = True
        every = {f"{kind}Probe": probe(1) for kind in ("readiness", "liveness", "startup")}
        hooks = {"postStart": {"exec": {"command": ["false"]}}}
        container = {"name": "c", "image": "i", "lifecycle": hooks, **every}
        await node.begin(await node.create({"containers": [container]}))
        await until(lambda: is_ready(node, "True"))

    play(cluster, story)


def shell(node: Node) -> HostCommands:
    return HostCommands(
        lambda id: next((h.spec for h in node.machine.inventory().containers if h.state.id == id), None)
    )


def test_hooks(cluster: LocalCluster, tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        node.parts.commands = shell(node)
        note = f"echo $KIND >> {tmp_path}/notes"
        hooks = {kind: {"exec": {"command": ["sh", "-c", note]}} for kind in ("postStart", "preStop")}
        env = [{"name": "KIND", "value": "mine"}]
        container = {"name": "c", "image": "i", "lifecycle": hooks, "env": env}
        await node.begin(await node.create({**PLAIN, "containers": [container]}))
        await until(lambda: is_phase(node, "Running"))
        await until(lambda: (tmp_path / "notes").exists())
        await node.delete()
        await gone(node)
        assert (tmp_path / "notes").read_text() == "mine\nmine\n"

    play(cluster, story)


def test_a_start_whose_hook_fails_is_undone(cluster: LocalCluster) -> None:
    async def story(node: Node) -> None:
        node.parts.commands = shell(node)
        hooks = {"postStart": {"exec": {"command": ["false"]}}}
        await node.begin(await node.create({"containers": [{"name": "c", "image": "i", "lifecycle": hooks}]}))
        await until(lambda: node.log.count("create c 1"))
        await until(lambda: has_reason(node, "FailedPostStartHook"))

    play(cluster, story)


def test_the_hook_of_a_sidecar_waits_for_its_turn(cluster: LocalCluster, tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        node.parts.commands = shell(node)
        node.machine.deaf = {"c"}
        hooks = {"preStop": {"exec": {"command": ["touch", str(tmp_path / "stopping")]}}}
        side = {"name": "s", "image": "i", "restartPolicy": "Always", "lifecycle": hooks}
        await node.begin(await node.create({**PLAIN, "initContainers": [side]}))
        await until(lambda: is_phase(node, "Running"))
        await node.delete()
        await until(lambda: node.log.count("stop c"))
        await asyncio.sleep(0.1)
        assert not (tmp_path / "stopping").exists()
        await gone(node)
        assert (tmp_path / "stopping").exists()
        assert node.log.place("stopped c") < node.log.place("stop s")

    play(cluster, story)


# -- the machine forgets


@pytest.mark.parametrize("policy", ["Always", "OnFailure", "Never"])
def test_a_machine_that_forgot_everything(cluster: LocalCluster, policy: str) -> None:
    async def story(node: Node) -> None:
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

    play(cluster, story)


# -- any order


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_nothing_is_left(cluster: LocalCluster, seed: int) -> None:
    dice = Random(seed)

    async def story(node: Node) -> None:
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
        running = [s for s in node.machine.containers() if s.phase is Phase.RUNNING]
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

    play(cluster, story)
