"""Pod groups on a real kube-apiserver with the gates of 1.36: validation, gangs, claims of a group."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from plimsoll.api import codec
from plimsoll.client import Client
from plimsoll.client.endpoints import (
    DEVICE_CLASSES,
    NAMESPACES,
    NODES,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Endpoint,
)
from plimsoll.controllers import ControllerManager
from plimsoll.controllers.pod_group_protection import PodGroupProtectionController
from plimsoll.controllers.resource_claim.controller import ResourceClaimController
from plimsoll.errors import ApiError
from plimsoll.scheduler.process.configuration import SchedulerSettings
from plimsoll.scheduler.process.run import SchedulerProcess
from plimsoll.scheduler.snapshot.verify import verify
from tests.cluster.kube_apiserver import run_apiserver
from tests.coroutines import run_by
from tests.manifests import DRIVER, NODE_STATUS, claim_template, device_class, node, pod, resource_slice
from tests.real.pod_groups import NS, options_of_groups
from tests.real.programs import ASSETS, minor_version, missing, skip_before
from tests.unit.apiserver.validation.objects import edit, field_errors
from tests.unit.apiserver.validation.pod_groups import SHARED, pod_group, workload
from tests.waiting import DEADLINE, until

_MISSING = missing("kube-apiserver", "etcd")
pytestmark = pytest.mark.skipif(bool(_MISSING), reason=_MISSING)
WORKLOADS = Endpoint("scheduling.k8s.io", "v1alpha2", "workloads", "Workload", True)
Tree = dict[str, Any]


def play(directory: Path, scenario: Callable[[Client], Awaitable[None]]) -> None:
    skip_before(36, "which has the gates")
    with run_apiserver(ASSETS, directory, *options_of_groups()) as config:

        async def run() -> None:
            async with asyncio.timeout(4 * DEADLINE), Client.connect(config) as client:
                await scenario(client)

        asyncio.run(run())


# -- validation


async def server_errors(client: Client, endpoint: Endpoint, tree: Tree) -> list[str]:
    """Return the field errors of the server for a new object, in the form of `field_errors`."""
    try:
        await client.create(endpoint, tree, "lab", dry_run=True)
    except ApiError as error:
        causes = (error.details or {}).get("causes", [])
        if error.code != 422:
            raise
        return sorted(f"{each['field']} {each['reason'].removeprefix('FieldValue')}" for each in causes)
    return []


@pytest.mark.skipif(_MISSING == "" and minor_version() > 36, reason="the fields of v1alpha2")
@run_by(play, "tmp_path")
async def test_validation_agrees_with_the_server(client: Client) -> None:
    await client.create(NAMESPACES, {"metadata": {"name": "lab"}})
    await client.create(PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 7})
    await client.create(WORKLOADS, workload(), "lab")
    for changes, _ in SHARED:
        at = {f"spec.podGroupTemplates.0.{path}": value for path, value in changes.items()}
        tree = edit(workload(), {"metadata.name": "other", **at})
        assert await server_errors(client, WORKLOADS, tree) == field_errors(tree), changes
        if {"priorityClassName", "priority"} & changes.keys():
            continue  # refused by admission first
        tree = edit(pod_group(), {f"spec.{path}": value for path, value in changes.items()})
        assert await server_errors(client, POD_GROUPS, tree) == field_errors(tree), changes


# -- scheduling


async def furnish(client: Client, *nodes: str) -> None:
    await client.create(DEVICE_CLASSES, device_class(DRIVER))
    await client.create(RESOURCE_CLAIM_TEMPLATES, claim_template("t", DRIVER), NS)
    for name in nodes:
        await client.create(NODES, node(name))
        await client.patch(NODES, name, {"status": NODE_STATUS}, subresource="status")
        await client.patch(NODES, name, {"spec": {"taints": None}})
        await client.create(RESOURCE_SLICES, resource_slice(f"{name}-gpu", name, 1))


async def create_group(client: Client, name: str, min_count: int, **spec: Any) -> None:
    policy = {"gang": {"minCount": min_count}}
    tree = {"metadata": {"name": name}, "spec": {"schedulingPolicy": policy, **spec}}
    await client.create(POD_GROUPS, tree, NS)


async def create_member(client: Client, name: str, group: str, cpu: str, **spec: Any) -> None:
    tree = pod(name, schedulerName="plimsoll", schedulingGroup={"podGroupName": group}, **spec)
    tree["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu
    await client.create(PODS, tree, NS)


async def bound(client: Client, *names: str) -> list[str]:
    async def look() -> dict[str, str]:
        pods = [codec.decode_tree(raw) for raw in (await client.list(PODS, NS)).items]
        return {one["metadata"]["name"]: one["spec"].get("nodeName", "") for one in pods}

    found = await until(look, lambda all: all_bound(all, names))
    return [found[name] for name in names]


def all_bound(found: dict[str, str], names: tuple[str, ...]) -> bool:
    return all(found.get(name) for name in names)


async def condition(client: Client, group: str, status: str) -> Tree:
    def has(tree: Tree) -> bool:
        return any(each["status"] == status for each in tree.get("status", {}).get("conditions", ()))

    tree = await until(lambda: client.get(POD_GROUPS, group, NS), has)
    (found,) = tree["status"]["conditions"]
    return dict(found)


async def schedule(client: Client, process: SchedulerProcess) -> None:
    # 16 CPUs on two nodes: three pods of 6 CPUs fit only after one more node is there.
    await create_group(client, "gang", 3)
    for i in range(3):
        await create_member(client, f"g{i}", "gang", "6")
    refused = await condition(client, "gang", "False")
    assert refused["reason"] == "Unschedulable"
    assert not (await client.list(PODS, NS, fields="spec.nodeName!=")).items
    await furnish_node(client, "n3")
    assert len(set(await bound(client, "g0", "g1", "g2"))) == 3
    assert (await condition(client, "gang", "True"))["reason"] == "Scheduled"

    # A claim of the group: one device for both pods.
    shared = {"resourceClaims": [{"name": "net", "resourceClaimTemplateName": "t"}]}
    await create_group(client, "sharing", 2, **shared)
    for i in range(2):
        await create_member(client, f"s{i}", "sharing", "500m", **shared)
    assert len(set(await bound(client, "s0", "s1"))) == 1
    group = await client.get(POD_GROUPS, "sharing", NS)
    (status,) = group["status"]["resourceClaimStatuses"]
    claim = await client.get(RESOURCE_CLAIMS, status["resourceClaimName"], NS)
    assert [(each["resource"], each["name"]) for each in claim["status"]["reservedFor"]] == [
        ("podgroups", "sharing")
    ]
    for i in range(2):
        await client.delete(PODS, f"s{i}", NS, grace=0)
    await client.delete(POD_GROUPS, "sharing", NS)
    await until(
        lambda: client.get(RESOURCE_CLAIMS, status["resourceClaimName"], NS),
        lambda one: not one.get("status", {}).get("allocation"),
    )

    # A gang of higher priority preempts the first one, pod by pod.
    await client.create(PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 100})
    await create_group(client, "urgent", 2, priorityClassName="high")
    for i in range(2):
        await create_member(client, f"u{i}", "urgent", "7", priorityClassName="high")
    await asyncio.gather(*(finish_deletion(client, f"g{i}") for i in range(3)))
    assert len(set(await bound(client, "u0", "u1"))) == 2
    assert verify(process.context.snapshot) == []


async def furnish_node(client: Client, name: str) -> None:
    await client.create(NODES, node(name))
    await client.patch(NODES, name, {"status": NODE_STATUS}, subresource="status")
    await client.patch(NODES, name, {"spec": {"taints": None}})


async def finish_deletion(client: Client, name: str) -> None:
    """Do what the kubelet does with a preempted pod; there is none here."""

    async def look() -> bool:
        with suppress(ApiError):
            tree = await client.get(PODS, name, NS)
            if tree["metadata"].get("deletionTimestamp"):
                await client.delete(PODS, name, NS, grace=0)
                return True
            urgent = [codec.decode_tree(raw) for raw in (await client.list(PODS, NS)).items]
            names = {one["metadata"]["name"] for one in urgent if one["spec"].get("nodeName")}
            return {"u0", "u1"} <= names  # this one was spared
        return True

    await until(look, bool)


@run_by(play, "tmp_path")
async def test_gangs_are_scheduled(client: Client) -> None:
    await furnish(client, "n1", "n2")
    names = [ResourceClaimController.name, PodGroupProtectionController.name]
    controllers = asyncio.create_task(ControllerManager(client, only=names).run())
    process = SchedulerProcess(client, SchedulerSettings())
    scheduling = asyncio.create_task(process.run())
    try:
        await process.ready(DEADLINE)
        await schedule(client, process)
    finally:
        for task in (scheduling, controllers):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
