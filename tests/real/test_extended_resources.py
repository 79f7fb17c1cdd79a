"""Extended resources served by devices, on a real control plane: next to kube-scheduler, and alone."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from plimsoll.client.endpoints import DEVICE_CLASSES, PODS, RESOURCE_CLAIMS, RESOURCE_QUOTAS
from plimsoll.client.responses import read_tree
from plimsoll.errors import ApiError
from plimsoll.scheduler.process.configuration import SchedulerSettings
from plimsoll.scheduler.process.run import SchedulerProcess
from plimsoll.scheduler.snapshot.verify import verify
from tests.real.oracle import PROGRAMS, Oracle, run_oracle
from tests.real.programs import missing
from tests.real.random_clusters import DRA, NS, Tree
from tests.sizes import FULL
from tests.unit.scheduler.overdrafts import find_overdrafts
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


def small_pod(name: str, resources: dict[str, str], **spec: Any) -> Tree:
    amounts = {"requests": resources, "limits": resources}
    containers = [{"name": "c", "image": "example.org/app:1", "resources": amounts}]
    body = {"containers": containers, "schedulerName": "plimsoll", "restartPolicy": "Never", **spec}
    return {"metadata": {"name": name}, "spec": {"tolerations": [{"operator": "Exists"}], **body}}


def test_the_steps_of_the_upstream_tests_that_need_no_containers(tmp_path: Path) -> None:
    """Quota, a class that comes later, requests of zero, too few devices, and cleanup (test/e2e/dra)."""
    on_node: Tree = {"nodeSelector": {"kubernetes.io/hostname": "dra"}}

    async def scenario(oracle: Oracle) -> None:
        client = oracle.client
        await oracle.furnish([each for each in cluster() if each["kind"] != "DeviceClass"])
        process = SchedulerProcess(client, SchedulerSettings())
        scheduling = asyncio.create_task(process.run())

        async def bound(name: str) -> Tree:
            return await until(lambda: client.get(PODS, name, NS), lambda pod: pod["spec"].get("nodeName"))

        async def quota() -> Tree:
            return await client.get(RESOURCE_QUOTAS, "q", NS)

        async def pending(name: str, text: str) -> None:
            await until(
                lambda: client.get(PODS, name, NS),
                lambda pod: text in str(pod["status"].get("conditions", "")),
            )

        try:
            await process.ready(DEADLINE)
            hard = {
                "count/resourceclaims.resource.k8s.io": "10",
                f"requests.{GPU}": "10",
                f"requests.{IMPLICIT}": "10",
                "gpu.deviceclass.resource.k8s.io/devices": "10",
            }
            await client.create(RESOURCE_QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": hard}}, NS)
            await until(quota, lambda found: found.get("status", {}).get("hard") == hard)
            # A pod with both names of the class, which is created only then.
            both = {GPU: "1", IMPLICIT: "1"}
            amounts = {"requests": both, "limits": both}
            init = [
                {"name": f"i{number}", "image": "example.org/app:1", "resources": amounts}
                for number in range(3)
            ]
            init[1]["restartPolicy"] = "Always"
            await client.create(PODS, small_pod("both", both, initContainers=init, **on_node), NS)
            await pending("both", f"Insufficient {GPU}")
            spec = {"extendedResourceName": GPU}
            await client.create(DEVICE_CLASSES, {"metadata": {"name": "gpu"}, "spec": spec})
            status = (await bound("both"))["status"]["extendedResourceClaimStatus"]
            assert {each["containerName"] for each in status["requestMappings"]} == {"c", "i0", "i1", "i2"}
            # As upstream: 4 devices of the pod (sidecar and container, two names each) and 1 of a claim.
            request = {
                "name": "r",
                "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1},
            }
            tree = {"metadata": {"name": "own"}, "spec": {"devices": {"requests": [request]}}}
            await client.create(RESOURCE_CLAIMS, tree, NS)
            # Two claims, and the barrier of the oracle.
            used = {**dict.fromkeys(hard, "5"), "count/resourceclaims.resource.k8s.io": "3"}
            await until(quota, lambda found: found["status"].get("used") == used)
            # Zero is no request; more than the devices that are left stays pending.
            await client.create(PODS, small_pod("zero", {GPU: "0"}, **on_node), NS)
            assert "extendedResourceClaimStatus" not in (await bound("zero"))["status"]
            await client.create(PODS, small_pod("many", {GPU: "3"}, **on_node), NS)
            await pending("many", "cannot allocate all claims")
            # The claim ends with its pod, and its devices go to the next.
            for name, phase in (("both", "Succeeded"), ("many", "Failed")):
                claim = (await bound(name))["status"]["extendedResourceClaimStatus"]["resourceClaimName"]
                await client.patch(PODS, name, {"status": {"phase": phase}}, NS, subresource="status")
                await until(lambda: claims(oracle), partial(lacks, claim))
        finally:
            process.stop()
            await scheduling

    async def run() -> None:
        controllers = "resourceclaim-controller,resourcequota-controller"
        async with asyncio.timeout(6 * DEADLINE), run_oracle(tmp_path / "plane", "", controllers) as oracle:
            await scenario(oracle)

    asyncio.run(run())


def lacks(name: str, trees: list[Tree]) -> bool:
    return all(each["metadata"]["name"] != name for each in trees)
