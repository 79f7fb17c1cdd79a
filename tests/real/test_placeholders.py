"""Placeholder pods on a real control plane with default gates."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from typing import Any

import pytest

from plimsoll.client import Client
from plimsoll.client.endpoints import (
    DEVICE_CLASSES,
    EVENTS_V1,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_CLAIM_TEMPLATES,
)
from plimsoll.errors import ApiError
from tests.directories import short_directory
from tests.real.kubelet import IMAGE
from tests.real.kubelet import cannot_run as no_node
from tests.real.placeholder_checker import MAPPINGS, PLACEHOLDERS, amount_of
from tests.real.placeholder_mixes import (
    REAL,
    claim_spec,
    furnish,
    make_pod,
    publish,
    run_mixes,
    start_real_node,
)
from tests.real.programs import ASSETS, missing, skip_before
from tests.real.simulated_kubelets import SimulatedKubelets
from tests.real.stock_plane import PROGRAMS, StockPlane, run_stock_plane
from tests.waiting import DEADLINE, until

_MISSING = missing(*PROGRAMS, "kubectl")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(_MISSING), reason=_MISSING or "-")]
Tree = dict[str, Any]
NS = "default"
AMOUNTS = {"cpu": "3", "memory": "2Gi", "pods": "16", "ephemeral-storage": "10Gi", "hugepages-2Mi": "64Mi"}
ON = "DRANodeAllocatableResources=true"


@asynccontextmanager
async def small_cluster(*nodes: str, placeholders: str = "Auto") -> AsyncIterator[tuple[StockPlane, Client]]:
    """Run a cluster of simulated nodes with a socket of three CPUs and two cards each."""
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(short_directory())
        plane = stack.enter_context(run_stock_plane(directory, placeholders=placeholders))
        client = await stack.enter_async_context(Client.connect(plane.server.config))
        await plane.prepare(client)
        await furnish(client)
        kubelets = SimulatedKubelets(client)
        for node in nodes:
            await kubelets.add(node, AMOUNTS, {"lane": "0"})
            features = {"status": {"declaredFeatures": ["DRANodeAllocatableResources"]}}
            await client.patch(NODES, node, features, subresource="status")
            await publish(client, node, "3", 2)
        for name in ("500m", "1", "2"):
            spec = {"metadata": {"name": f"cpus-{name}"}, "spec": {"spec": claim_spec("cpus", name)}}
            await client.create(RESOURCE_CLAIM_TEMPLATES, spec, NS)
        await stack.enter_async_context(kubelets.running())
        stack.enter_context(plane.running())
        yield plane, client


def charged(name: str, template: str, **options: Any) -> Tree:
    claims = {"c": {"resourceClaimTemplateName": template}}
    return make_pod(name, "0", "100m", claims=claims, **options)


async def running(client: Client, name: str) -> Tree:
    return await until(
        lambda: client.get(PODS, name, NS), lambda pod: pod["status"].get("phase") == "Running"
    )


async def pending_message(client: Client, name: str) -> str:
    def message(pod: Tree) -> str:
        found = pod["status"].get("conditions", ())
        return next((each.get("message", "") for each in found if each["type"] == "PodScheduled"), "")

    return message(await until(lambda: client.get(PODS, name, NS), message))


async def placeholders(client: Client) -> dict[str, Tree]:
    """Return the requests of the placeholders by the name of their pod."""
    pods = map(json.loads, (await client.list(PODS, PLACEHOLDERS)).items)
    return {
        pod["metadata"]["annotations"]["plimsoll.dev/pod"].partition("/")[2]: pod
        for pod in pods
        if pod["status"].get("phase") == "Running"
    }


def kubectl(plane: StockPlane, *words: str) -> str:
    command = [str(ASSETS / "kubectl"), f"--kubeconfig={plane.kubeconfig}", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


async def messages_of(client: Client, name: str) -> str:
    events = map(json.loads, (await client.list(EVENTS_V1, NS)).items)
    return "\n".join(each.get("note", "") for each in events if each["regarding"].get("name") == name)


async def test_random_mixes() -> None:
    with short_directory() as directory:
        cluster, faults = await run_mixes(directory, seed=1, mixes=2, lanes=2)
    assert faults == []
    assert [str(each) for each in cluster.states.excesses if not each.excused] == []
    assert cluster.counts["placeholders"] > 0


@pytest.mark.parametrize("mode", ["Auto", "Off"])
async def test_an_ordinary_pod_beside_a_charged_pod(mode: str) -> None:
    """kube-scheduler overcommits a node whose charges are in annotations alone."""
    async with asyncio.timeout(DEADLINE), small_cluster("n1", placeholders=mode) as (plane, client):
        await client.create(PODS, charged("claims-2", "cpus-2"), NS)
        await running(client, "claims-2")
        await client.create(PODS, make_pod("wants-1", "0", "1"), NS)
        if mode == "Off":
            await running(client, "wants-1")
            return
        assert "Insufficient cpu" in await pending_message(client, "wants-1")
        assert "claims-2-" in kubectl(plane, "describe", "node", "n1")
        assert "claims-2-" in kubectl(plane, "get", "pods", "-n", PLACEHOLDERS, "-o", "wide")
        await client.delete(PODS, "claims-2", NS, grace=0)
        await running(client, "wants-1")


@pytest.mark.parametrize("resource", ["hugepages-2Mi", "ephemeral-storage"])
async def test_charges_without_cpu_and_memory(resource: str) -> None:
    async with asyncio.timeout(DEADLINE), small_cluster("n1") as (_, client):
        annotation = {"nodeAllocatableResourceMappings": {resource: {"allocationMultiplier": "32Mi"}}}
        metadata = {"name": "only", "annotations": {MAPPINGS: json.dumps(annotation)}}
        selector = {"cel": {"expression": 'device.driver == "cards.example.com"'}}
        await client.create(DEVICE_CLASSES, {"metadata": metadata, "spec": {"selectors": [selector]}})
        template = {"metadata": {"name": "only"}, "spec": {"spec": claim_spec("only")}}
        await client.create(RESOURCE_CLAIM_TEMPLATES, template, NS)
        await client.create(PODS, charged("p", "only"), NS)
        await running(client, "p")
        (placeholder,) = (await placeholders(client)).values()
        resources = placeholder["spec"]["containers"][0]["resources"]
        assert resources["requests"][resource] == "32Mi"
        assert placeholder["status"]["qosClass"] != "Guaranteed"  # no CPU or memory manager pins anything


async def test_a_drained_node_and_a_deleted_one() -> None:
    async with asyncio.timeout(2 * DEADLINE), small_cluster("n1", "n2") as (plane, client):
        await client.create(PODS, charged("p", "cpus-1"), NS)
        node = (await running(client, "p"))["spec"]["nodeName"]
        output = await asyncio.to_thread(kubectl, plane, "drain", node, "--force", "--timeout=60s")
        assert f"evicting pod {PLACEHOLDERS}/p-" in output, output
        assert f"node/{node} drained" in output, output
        assert await placeholders(client) == {}
        await client.create(PODS, charged("q", "cpus-1"), NS)
        other = (await running(client, "q"))["spec"]["nodeName"]
        assert other != node
        (placeholder,) = (await placeholders(client)).values()
        assert placeholder["metadata"]["ownerReferences"][0]["name"] == other
        await client.delete(NODES, other)

        async def is_gone() -> bool:
            return not (await client.list(PODS, PLACEHOLDERS)).items

        await until(is_gone, context="the placeholder is not collected with its node")


@pytest.mark.parametrize("what", ["namespace", "priority class"])
async def test_an_installation_without(what: str) -> None:
    """An event of the pod names what is missing; the pod is bound once it is there."""
    async with asyncio.timeout(2 * DEADLINE), small_cluster("n1") as (plane, client):
        if what == "namespace":
            await client.delete(NAMESPACES, PLACEHOLDERS)
        else:
            await client.delete(PRIORITY_CLASSES, "plimsoll-placeholder")
        await until(lambda: _is_gone(client, what))
        await client.create(PODS, charged("p", "cpus-1"), NS)
        note = await until(lambda: messages_of(client, "p"))
        assert "create placeholder plimsoll-placeholders/p-" in note
        assert ("namespaces" if what == "namespace" else "no PriorityClass with name") in note
        await plane.prepare(client)
        await running(client, "p")


async def _is_gone(client: Client, what: str) -> bool:
    try:
        await (
            client.get(NAMESPACES, PLACEHOLDERS)
            if what == "namespace"
            else client.get(PRIORITY_CLASSES, "plimsoll-placeholder")
        )
    except ApiError as error:
        return error.code == 404
    return False


async def test_the_gate_is_switched_on_and_off_again() -> None:
    """With the gate on, new pods have charges in the status; with it off, all pods have placeholders."""
    skip_before(36, "which has the gate")

    async def stand_for(*names: str) -> None:
        await until(lambda: placeholders(client), lambda found: found.keys() == {*names}, ignore=(ApiError,))

    async with asyncio.timeout(5 * DEADLINE), small_cluster("n1") as (plane, client):
        await client.create(PODS, charged("before", "cpus-1"), NS)
        await running(client, "before")
        await stand_for("before")
        await plane.restart_server(ON)
        await plane.restart(plane.scheduler)  # or a minute later, as below
        await client.create(PODS, charged("while-on", "cpus-1"), NS)
        status = (await running(client, "while-on"))["status"]
        assert status["nodeAllocatableResourceClaimStatuses"][0]["resources"] == {"cpu": "1"}
        await stand_for("before")
        await plane.restart_server()
        await stand_for("before", "while-on")
        await client.create(PODS, make_pod("wants-1", "0", "1"), NS)
        assert "Insufficient cpu" in await pending_message(client, "wants-1")
        for name in ("before", "while-on"):
            await client.delete(PODS, name, NS, grace=0)
        await running(client, "wants-1")
        await stand_for()


def decided_pods(seed: int, allocatable: Mapping[str, str]) -> list[Tree]:
    """Return random pods for one node, also with init containers, sidecars and requests too large for it."""
    choose = random.Random(seed)
    limits = {name: amount_of(allocatable[name]) for name in ("cpu", "memory", "ephemeral-storage")}

    def container(name: str, **more: Any) -> Tree:
        parts = {"cpu": choose.choice((0, 5, 10, 25, 110)), "memory": choose.choice((1, 10, 30, 60))}
        if choose.random() < 0.2:
            parts["ephemeral-storage"] = choose.choice((10, 60))
        amounts = {n: limits[n] // (1 if n == "cpu" else 1000) * part // 100 for n, part in parts.items()}
        requests = {n: f"{amount}m" if n == "cpu" else str(amount) for n, amount in amounts.items()}
        command = ["/bin/sh", "-c", "sleep 100000"]
        return {"name": name, "image": IMAGE, "command": command, "resources": {"requests": requests}, **more}

    pods = []
    for number in range(24):
        spec: Tree = {"containers": [container(f"c{n}") for n in range(choose.choice((1, 1, 2)))]}
        if choose.random() < 0.3:
            more = {"restartPolicy": "Always"} if choose.random() < 0.5 else {}
            spec["initContainers"] = [container("i", **more)]
        spec |= {"terminationGracePeriodSeconds": 1, "automountServiceAccountToken": False}
        pods.append({"metadata": {"name": f"p{number}"}, "spec": spec})
    return pods


@pytest.mark.skipif(bool(no_node()), reason=no_node() or "-")
async def test_simulated_kubelets_decide_as_a_real_one() -> None:
    """The same pods in the same order: the same are rejected, with the same reasons and messages."""
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(short_directory())
        plane = stack.enter_context(run_stock_plane(directory))
        client = await stack.enter_async_context(Client.connect(plane.server.config))
        node = await start_real_node(stack, plane, client)
        kubelets = SimulatedKubelets(client)
        await kubelets.add("n1", node["status"]["allocatable"], {})
        await stack.enter_async_context(kubelets.running())
        choose, reasons = random.Random(2), Counter[str]()
        alive: list[str] = []
        # Until its first housekeeping, a kubelet reports rejected pods as Pending.
        for number in count():
            tree = make_pod(f"large-{number}", "0", "1000")
            if (await decide(client, tree, REAL))[0]:
                break
            await client.delete(PODS, f"large-{number}-{REAL}", NS, grace=0)
            await asyncio.sleep(0.5)
        for tree in decided_pods(1, node["status"]["allocatable"]):
            if alive and choose.random() < 0.4:
                gone = alive.pop(choose.randrange(len(alive)))
                for where in (REAL, "n1"):
                    await client.delete(PODS, f"{gone}-{where}", NS, grace=0)
            decisions = [await decide(client, tree, where) for where in (REAL, "n1")]
            assert decisions[0] == decisions[1], tree
            reasons[decisions[0][0]] += 1
            if not decisions[0][0]:
                alive.append(tree["metadata"]["name"])
        assert reasons[""] >= 5, reasons
        assert {"OutOfcpu", "OutOfmemory"} <= set(reasons), reasons


async def decide(client: Client, tree: Tree, node: str) -> tuple[str, str]:
    """Create a pod on a node; return the reason and message with which its kubelet rejects it."""
    name = f"{tree['metadata']['name']}-{node}"
    await client.create(PODS, {"metadata": {"name": name}, "spec": {**tree["spec"], "nodeName": node}}, NS)
    pod = await until(lambda: client.get(PODS, name, NS), lambda pod: pod["status"].get("startTime"))
    if pod["status"]["phase"] != "Failed":
        return "", ""
    return pod["status"]["reason"], pod["status"]["message"]
