"""Pod worker with an API server, a runtime and a driver, event by event."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial

import pytest

from plimsoll.api.resource import DeviceRequestAllocationResult
from plimsoll.client.endpoints import CONFIG_MAPS, PODS
from plimsoll.node.containers import ContainerPhase, RuntimeFault
from plimsoll.node.pods.pod_state import TerminationRequest
from plimsoll.node.pods.worker import reject
from tests.coroutines import run_by
from tests.unit.node.claims.fake_drivers import make_claim, make_pod
from tests.unit.node.pods.worker_harness import DRIVER, QUICK, Node
from tests.unit.node.pods.worker_helpers import (
    PLAIN,
    gone,
    has_reason,
    is_phase,
    restarted,
    run_scenario,
    with_claim,
)
from tests.waiting import until


@run_by(run_scenario, "cluster")
async def test_a_pod_runs_and_is_deleted(node: Node) -> None:
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
        "plimsoll.dev/Simulated": "True",
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


@run_by(run_scenario, "cluster")
async def test_foreign_status_fields_are_kept(node: Node) -> None:
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


@run_by(run_scenario, "cluster")
async def test_a_container_that_crashes_is_restarted_without_a_new_prepare(node: Node) -> None:
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


@run_by(run_scenario, "cluster")
async def test_prepare_is_retried_after_a_failure(node: Node) -> None:
    node.gpus.faults = ["no", "not yet"]
    await node.begin(await with_claim(node))
    await until(lambda: is_phase(node, "Running"))
    assert node.log.count("prepare") - node.log.count("prepared") == 3
    await until(lambda: has_reason(node, "FailedPrepareDynamicResources"))


@run_by(run_scenario, "cluster")
async def test_deletion_while_preparing(node: Node) -> None:
    node.gpus.gate = asyncio.Event()
    await node.begin(await with_claim(node))
    await until(lambda: node.log.count("prepare"))
    await node.delete()
    await until(lambda: node.worker is not None and node.worker.termination)
    node.gpus.gate.set()
    await gone(node)
    assert node.log.lines == ["prepare", "prepared", "unprepare", "unprepared", "remove-sandbox"]


@pytest.mark.parametrize("step", ["sandbox", "create", "start"])
@run_by(run_scenario, "cluster")
async def test_deletion_while_starting(node: Node, *, step: str) -> None:
    gate = node.machine.held[step] = asyncio.Event()
    await node.begin(await with_claim(node))
    await until(lambda: node.log.count(step))
    await node.delete()
    await until(lambda: node.worker is not None and node.worker.termination)
    gate.set()
    await gone(node)
    assert node.log.place("unprepared") < node.log.place("remove-sandbox")
    assert node.log.count("create") <= 1


@run_by(run_scenario, "cluster")
async def test_force_deletion(node: Node) -> None:
    node.machine.deaf = {"c"}
    await node.begin(await with_claim(node))
    await until(lambda: is_phase(node, "Running"))
    await node.delete(grace=0)
    assert await node.get() is None
    await gone(node)
    assert node.log.place("stopped c") < node.log.place("unprepare")


@run_by(run_scenario, "cluster")
async def test_a_pod_of_the_same_name_after_a_force_deletion(node: Node) -> None:
    """The worker of the former pod does not touch the new one."""
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


@run_by(run_scenario, "cluster")
async def test_an_eviction(node: Node) -> None:
    await node.begin(await with_claim(node))
    await until(lambda: is_phase(node, "Running"))
    assert node.worker is not None
    order = TerminationRequest(
        "Evicted", "The node was low on resource: memory.", 0.0, "TerminationByKubelet"
    )
    assert node.worker.terminate(order)
    assert not node.worker.terminate(order), "the first one counts"
    await until(lambda: is_phase(node, "Failed"))
    status = await node.status()
    assert (status["reason"], status["message"]) == ("Evicted", "The node was low on resource: memory.")
    target = next(c for c in status["conditions"] if c["type"] == "DisruptionTarget")
    assert (target["status"], target["reason"]) == ("True", "TerminationByKubelet")
    assert not node.gpus.held, "claims are released though the pod is still in the API"
    assert node.log.count("remove-sandbox") == 0
    await node.delete()
    await gone(node)


@run_by(run_scenario, "cluster")
async def test_a_pod_that_never_restarts_succeeds(node: Node) -> None:
    annotations = {"plimsoll.dev/run-seconds": "0.05"}
    pod = await node.create({**PLAIN, "restartPolicy": "Never"}, annotations=annotations)
    await node.begin(pod)
    await until(lambda: is_phase(node, "Succeeded"))
    status = await node.status()
    (own,) = status["containerStatuses"]
    assert own["state"]["terminated"]["reason"] == "Completed"
    ready = next(c for c in status["conditions"] if c["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "PodCompleted")
    # A new agent does not run it again, and has nothing to report.
    await node.crash()
    await node.begin(pod)
    await asyncio.sleep(0.1)
    assert node.log.count("create") == 1
    assert await node.status() == status


@run_by(run_scenario, "cluster")
async def test_init_containers_and_sidecars(node: Node) -> None:
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


@run_by(run_scenario, "cluster")
async def test_runtime_faults_are_reported_and_retried(node: Node) -> None:
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


@run_by(run_scenario, "cluster")
async def test_a_missing_config_map_is_waited_for(node: Node) -> None:
    reference = {"configMapKeyRef": {"name": f"map-{node.serial}", "key": "k"}}
    container = {"name": "c", "image": "i", "env": [{"name": "K", "valueFrom": reference}]}
    await node.begin(await node.create({"containers": [container]}))

    async def backoffs() -> bool:
        (own,) = (await node.status()).get("containerStatuses") or [{}]
        return bool(own.get("state", {}).get("waiting", {}).get("reason") == "CreateContainerConfigError")

    await until(backoffs)
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


@run_by(run_scenario, "cluster")
async def test_the_server_disappears_and_returns(node: Node) -> None:
    pod = await with_claim(node)
    await node.begin(pod)
    await until(lambda: is_phase(node, "Running"))
    node.line.cut = True
    for attempt in range(1, 4):
        await node.machine.crash(pod.metadata.uid, "c", 1)
        await until(partial(node.log.count, f"create c {attempt}"))
        await until(lambda: node.machine.latest(pod.metadata.uid, "c").phase is ContainerPhase.RUNNING)
    assert await restarted(node, 0), "nothing came through"
    written = node.deps.writer.written
    node.line.cut = False
    await until(lambda: restarted(node, 3))
    assert node.deps.writer.written - written <= 2, "only the latest status is written"


@run_by(run_scenario, "cluster")
async def test_a_deletion_while_the_server_is_unreachable(node: Node) -> None:
    node.machine.deaf = {"c"}
    await node.begin(await with_claim(node))
    await until(lambda: is_phase(node, "Running"))
    await node.delete()
    await until(lambda: node.log.count("stop c"))
    node.line.cut = True
    await until(lambda: node.worker is not None and node.worker.released.is_set())
    assert not node.gpus.held
    assert await node.get() is not None
    node.line.cut = False
    await gone(node)


@run_by(run_scenario, "cluster")
async def test_a_failed_unprepare_is_retried(node: Node) -> None:
    await node.begin(await with_claim(node))
    await until(lambda: is_phase(node, "Running"))
    node.gpus.release_faults = ["busy", "busy"]
    await node.delete()
    await gone(node)
    assert node.log.count("unprepare") - node.log.count("unprepared") == 3


@run_by(run_scenario, "cluster")
async def test_a_pod_resumes_when_its_device_is_released(node: Node) -> None:
    node.deps.timing = replace(QUICK, retry_first=3600.0, retry_max=3600.0)
    device = [DeviceRequestAllocationResult(request="gpu", driver=DRIVER, pool="pool", device="gpu-0")]
    earlier = make_claim("earlier", uid="old", users=["gone"], results=device)
    assert await node.claim_cache.prepare(make_pod("gone", "earlier"), {"earlier": earlier}) == ()
    worker = await node.begin(await with_claim(node))
    node.claim_cache.on_release = worker.claims_released
    await until(lambda: worker.failures)
    (failure,) = worker.failures.values()
    assert failure.reason == "FailedPrepareDynamicResources"
    assert f"device {DRIVER}/pool/gpu-0 still held by ResourceClaim default/earlier (UID old)" in (
        failure.message
    )
    assert node.log.count("prepared") == 1
    worker.claims_released(frozenset({"another"}))
    await asyncio.sleep(0.05)
    assert node.log.count("prepared") == 1
    await node.claim_cache.unprepare("gone")
    await until(lambda: is_phase(node, "Running"))


@run_by(run_scenario, "cluster")
async def test_finalizers_hold_the_pod_not_the_node(node: Node) -> None:
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


@run_by(run_scenario, "cluster")
async def test_rejected(node: Node) -> None:
    pod = await node.create(PLAIN)
    message = "Node didn't have enough resource: cpu, requested: 2, used: 1, capacity: 2"
    worker = reject(pod, "OutOfcpu", message, node.deps)
    await until(lambda: is_phase(node, "Failed"))
    status = await node.status()
    assert (status["reason"], status["message"]) == ("OutOfcpu", f"Pod was rejected: {message}")
    assert "containerStatuses" not in status
    assert node.log.lines == []
    await until(lambda: has_reason(node, "OutOfcpu"))
    await worker.stop()


@run_by(run_scenario, "cluster")
async def test_an_ephemeral_container_is_started_once(node: Node) -> None:
    await node.begin(await node.create(PLAIN))
    await until(lambda: is_phase(node, "Running"))
    tree = await node.get()
    assert tree is not None
    name = tree["metadata"]["name"]
    debugger = {"name": "debugger", "image": "busybox", "targetContainerName": "c"}
    patch = {"spec": {"ephemeralContainers": [debugger]}}
    await node.admin.patch(PODS, name, patch, "default", subresource="ephemeralcontainers")

    async def own_state() -> dict[str, object]:
        (own,) = (await node.status()).get("ephemeralContainerStatuses") or [{}]
        return dict(own.get("state", {}))

    await until(own_state, lambda found: "running" in found)
    await node.machine.crash(tree["metadata"]["uid"], "debugger", 1)
    await until(own_state, lambda found: "terminated" in found)
    await node.delete()
    await gone(node)
    assert node.log.lines.count("start debugger") == 1
