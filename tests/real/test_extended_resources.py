"""Extended resources served by devices: Plimsoll's scheduler next to a real kube-scheduler, pod by pod."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from plimsoll.client.endpoints import PODS, RESOURCE_CLAIMS
from plimsoll.client.responses import read_tree
from plimsoll.errors import ApiError
from plimsoll.scheduler.process.configuration import SchedulerSettings
from plimsoll.scheduler.process.run import SchedulerProcess
from plimsoll.scheduler.snapshot.verify import find_overdrafts, verify
from tests.real.oracle import PROGRAMS, Oracle, run_oracle
from tests.real.programs import missing
from tests.real.random_clusters import DRA, NS, Tree
from tests.sizes import FULL
from tests.waiting import DEADLINE, until

_MISSING = missing(*PROGRAMS)
pytestmark = pytest.mark.skipif(bool(_MISSING), reason=_MISSING or "-")

DRIVER, GPU, OTHER = "gpu.example.com", "example.com/gpu", "example.com/other"
IMPLICIT = "deviceclass.resource.kubernetes.io/gpu"
RESOURCES = (GPU, OTHER, IMPLICIT)
PODS_COMPARED = 60 if FULL else 14


def cluster() -> list[Tree]:
    """Return a node with devices, one that advertises a resource itself, and one that has both."""
    objects: list[Tree] = []
    for name, advertised in (("dra", {}), ("plugin", {GPU: "2"}), ("both", {OTHER: "2", GPU: "0"})):
        line = {"cpu": "8", "memory": "8Gi", "pods": "50", **advertised}
        meta = {"name": name, "labels": {"kubernetes.io/hostname": name}}
        status = {"allocatable": line, "capacity": line}
        objects.append({"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": {}, "status": status})
        if name != "plugin":
            devices = [{"name": f"gpu-{number}"} for number in range(6)]
            pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
            spec: Tree = {"driver": DRIVER, "pool": pool, "nodeName": name, "devices": devices}
            objects.append(dra_object("ResourceSlice", name, spec))
    for name, resource in (("gpu", GPU), ("other", OTHER)):
        selectors = [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]
        spec = {"extendedResourceName": resource, "selectors": selectors}
        objects.append(dra_object("DeviceClass", name, spec))
    return objects


def dra_object(kind: str, name: str, spec: Tree) -> Tree:
    return {"apiVersion": DRA, "kind": kind, "metadata": {"name": name}, "spec": spec}


def random_pod(random: Random, number: int) -> Tree:
    def container(name: str) -> Tree:
        chosen = random.sample(RESOURCES, random.choice([0, 1, 1, 2]))
        amounts = {resource: str(random.choice([0, 1, 1, 2, 3])) for resource in chosen}
        resources = {"requests": {"cpu": "100m", **amounts}, "limits": amounts}
        return {"name": name, "image": "example.org/app:1", "resources": resources}

    init = [container(f"i{index}") for index in range(random.choice([0, 0, 1, 2, 3]))]
    for each in init:
        if random.random() < 0.4:
            each["restartPolicy"] = "Always"
    main = [container(f"c{index}") for index in range(random.choice([1, 1, 2, 3]))]
    node = random.choice(["dra", "dra", "plugin", "both"])
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pod-{number}"},
        "spec": {
            "containers": main,
            "initContainers": init,
            "nodeSelector": {"kubernetes.io/hostname": node},
            "tolerations": [{"operator": "Exists"}],
        },
    }


async def claims(oracle: Oracle) -> list[Tree]:
    return [read_tree(raw) for raw in (await oracle.client.list(RESOURCE_CLAIMS, NS)).items]


async def decide(oracle: Oracle, tree: Tree, scheduler: str) -> Tree:
    """Return the decision about a pod in comparable form; then withdraw the pod."""
    client = oracle.client
    before = {each["metadata"]["name"] for each in await claims(oracle)}
    decision = await oracle.decide({**tree, "spec": {**tree["spec"], "schedulerName": scheduler}})
    pod = await client.get(PODS, decision.name, NS)
    found: Tree = {"node": pod["spec"].get("nodeName", ""), "why": "" if decision.node else decision.why}
    made = [each for each in await claims(oracle) if each["metadata"]["name"] not in before]
    status = pod["status"].get("extendedResourceClaimStatus")
    found["mappings"] = status and status["requestMappings"]
    found["claims"] = [comparable(each, pod) for each in made]
    names = [each["metadata"]["name"] for each in made]
    assert names == ([status["resourceClaimName"]] if status else [])
    await client.delete(PODS, decision.name, NS, grace=0)
    for name in names:
        with suppress(ApiError):  # the controller may be faster
            await client.patch(RESOURCE_CLAIMS, name, {"metadata": {"finalizers": None}}, NS)
            await client.delete(RESOURCE_CLAIMS, name, NS)
    await until(lambda: claims(oracle), lambda left: len(left) == len(before))
    return found


def comparable(claim: Tree, pod: Tree) -> Tree:
    meta, allocation = claim["metadata"], claim["status"]["allocation"]
    (owner,) = meta["ownerReferences"]
    assert owner["uid"] == pod["metadata"]["uid"]
    assert [each["uid"] for each in claim["status"]["reservedFor"]] == [pod["metadata"]["uid"]]
    results = allocation["devices"]["results"]
    return {
        "generateName": meta["generateName"],
        "prefix": meta["name"][:-5],
        "annotations": meta["annotations"],
        "finalizers": meta["finalizers"],
        "owner": {key: value for key, value in owner.items() if key != "uid"},
        "spec": claim["spec"],
        "results": [(each["request"], each["driver"], each["pool"]) for each in results],
        "nodeSelector": allocation.get("nodeSelector"),
    }


def test_claims_and_statuses_equal_those_of_kube_scheduler(tmp_path: Path) -> None:
    random = Random(7)

    async def run() -> list[tuple[Tree, Any, Any]]:
        pairs = []
        async with asyncio.timeout(PODS_COMPARED * DEADLINE), run_oracle(tmp_path / "plane", "") as oracle:
            await oracle.furnish(cluster())
            process = SchedulerProcess(oracle.client, SchedulerSettings())
            scheduling = asyncio.create_task(process.run())
            try:
                await process.ready(DEADLINE)
                for number in range(PODS_COMPARED):
                    tree = random_pod(random, number)
                    theirs = await decide(oracle, tree, "default-scheduler")
                    ours = await decide(oracle, tree, "plimsoll")
                    pairs.append((tree, theirs, ours))
                assert verify(process.context.snapshot) == []
                assert find_overdrafts(process.context.snapshot) == []
            finally:
                process.stop()
                await scheduling
        return pairs

    pairs = asyncio.run(run())
    for tree, theirs, ours in pairs:
        assert ours | {"why": ""} == theirs | {"why": ""}, tree
        assert bool(ours["why"]) == bool(theirs["why"])
    assert any(ours["claims"] for _, _, ours in pairs)
    assert any(ours["node"] and not ours["claims"] for _, _, ours in pairs)
    assert any(not ours["node"] for _, _, ours in pairs)
