"""Controllers against each server: claims, owners, namespaces, quotas, taints."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from plimsoll.client import Client
from plimsoll.client.endpoints import (
    CONFIG_MAPS,
    DEVICE_TAINT_RULES,
    NAMESPACES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
)
from plimsoll.controllers import ControllerManager
from plimsoll.errors import ApiError
from tests.cluster.calls import names
from tests.cluster.target import Target
from tests.coroutines import run_by
from tests.manifests import DRIVER, claim, config_map, pod
from tests.waiting import DEADLINE, until

FINALIZER = "resource.kubernetes.io/delete-protection"


@asynccontextmanager
async def running(client: Client, *only: str) -> AsyncIterator[None]:
    controllers = ControllerManager(client, only=only)
    task = asyncio.create_task(controllers.run())
    try:
        await asyncio.wait_for(controllers.ready(), DEADLINE)
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def is_gone(client: Client, endpoint: Any, name: str, namespace: str = "") -> bool:
    try:
        await client.get(endpoint, name, namespace)
    except ApiError as error:
        if error.code == 404:
            return True
        raise
    return False


def with_claims(tree: dict[str, Any], **entries: dict[str, str]) -> dict[str, Any]:
    tree["spec"]["resourceClaims"] = [{"name": name, **source} for name, source in entries.items()]
    tree["spec"]["containers"][0]["resources"] = {"claims": [{"name": name} for name in entries]}
    return tree


async def allocate(client: Client, namespace: str, name: str, user: dict[str, Any], **result: Any) -> None:
    """Allocate a claim as a scheduler does."""
    await client.patch(RESOURCE_CLAIMS, name, {"metadata": {"finalizers": [FINALIZER]}}, namespace)
    device = {"request": "gpu", "driver": DRIVER, "pool": namespace, "device": "d", **result}
    consumer = {"resource": "pods", "name": user["metadata"]["name"], "uid": user["metadata"]["uid"]}
    status = {"allocation": {"devices": {"results": [device]}}, "reservedFor": [consumer]}
    await client.patch(RESOURCE_CLAIMS, name, {"status": status}, namespace, subresource="status")
    target = {"kind": "Node", "name": "somewhere"}
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": consumer["name"]},
        "target": target,
    }
    await client.post(PODS, consumer["name"], "binding", binding, namespace)


@run_by(Target.run_scenario, "target")
async def test_a_claim_lives_as_long_as_its_pod(client: Client, namespace: str) -> None:
    template = {"metadata": {"name": "t"}, "spec": {"spec": claim("c")["spec"]}}
    async with running(client, "resourceclaim-controller", "garbage-collector-controller"):
        await client.create(RESOURCE_CLAIM_TEMPLATES, template, namespace)
        tree = with_claims(pod("p"), a={"resourceClaimTemplateName": "t"})
        made = await client.create(PODS, tree, namespace)

        async def recorded() -> Any:
            status = (await client.get(PODS, "p", namespace))["status"]
            return status.get("resourceClaimStatuses")

        ((entry),) = await until(recorded)
        name = entry["resourceClaimName"]
        assert name.startswith("p-a-")
        metadata = (await client.get(RESOURCE_CLAIMS, name, namespace))["metadata"]
        assert metadata["annotations"]["resource.kubernetes.io/pod-claim-name"] == "a"
        (owner,) = metadata["ownerReferences"]
        assert (owner["kind"], owner["uid"], owner["controller"]) == (
            "Pod",
            made["metadata"]["uid"],
            True,
        )
        await allocate(client, namespace, name, made)
        done = {"status": {"phase": "Succeeded"}}
        await client.patch(PODS, "p", done, namespace, subresource="status")
        await until(lambda: is_gone(client, RESOURCE_CLAIMS, name, namespace))


@run_by(Target.run_scenario, "target")
async def test_a_shared_claim_is_freed_by_the_last_pod(client: Client, namespace: str) -> None:
    async with running(client, "resourceclaim-controller"):
        await client.create(RESOURCE_CLAIMS, claim("c"), namespace)
        tree = with_claims(pod("p"), a={"resourceClaimName": "c"})
        await allocate(client, namespace, "c", await client.create(PODS, tree, namespace))
        await client.delete(PODS, "p", namespace, grace=0)

        async def freed() -> bool:
            tree = await client.get(RESOURCE_CLAIMS, "c", namespace)
            return not tree.get("status") and not tree["metadata"].get("finalizers")

        await until(freed)


@run_by(Target.run_scenario, "target")
async def test_owned_objects_are_garbage_collected(client: Client, namespace: str) -> None:
    async def put(name: str, *owners: dict[str, Any]) -> dict[str, Any]:
        tree = config_map(name)
        tree["metadata"]["ownerReferences"] = list(owners)
        made = await client.create(CONFIG_MAPS, tree, namespace)
        uid = made["metadata"]["uid"]
        return {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid}

    async def left() -> list[str]:
        found = names((await client.list(CONFIG_MAPS, namespace)).items)
        return [name for name in found if name != "kube-root-ca.crt"]

    async with running(client, "garbage-collector-controller"):
        for propagation in ("Background", "Foreground", "Orphan"):
            root = await put("root")
            branch = await put("branch", {**root, "blockOwnerDeletion": True})
            await put("leaf", {**branch, "blockOwnerDeletion": True})
            await client.delete(CONFIG_MAPS, "root", namespace, propagation=propagation)
            wanted = ["branch", "leaf"] if propagation == "Orphan" else []

            async def as_wanted(wanted: list[str] = wanted) -> bool:
                return await left() == wanted

            await until(as_wanted)


@run_by(Target.run_scenario, "target")
async def test_namespace_deletion_deletes_its_contents(client: Client, namespace: str) -> None:
    await client.create(CONFIG_MAPS, config_map("a"), namespace)
    await client.create(PODS, pod("p"), namespace)
    async with running(client, "namespace-controller"):
        await client.delete(NAMESPACES, namespace)
        await until(lambda: is_gone(client, NAMESPACES, namespace))


@run_by(Target.run_scenario, "target")
async def test_a_quota_reports_usage(client: Client, namespace: str) -> None:
    tree = pod("p")
    tree["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "250m"}}
    await client.create(PODS, tree, namespace)
    await client.create(RESOURCE_CLAIMS, claim("c"), namespace)
    devices = f"{DRIVER}.deviceclass.resource.k8s.io/devices"
    hard = {"pods": "5", "requests.cpu": "2", devices: "4"}
    async with running(client, "resourcequota-controller"):
        await client.create(RESOURCE_QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": hard}}, namespace)

        def reports(used: dict[str, str]) -> Callable[[], Awaitable[bool]]:
            async def check() -> bool:
                status = (await client.get(RESOURCE_QUOTAS, "q", namespace)).get("status", {})
                return bool(status == {"hard": hard, "used": used})

            return check

        await until(reports({"pods": "1", "requests.cpu": "250m", devices: "1"}))
        await client.delete(RESOURCE_CLAIMS, "c", namespace)
        await until(reports({"pods": "1", "requests.cpu": "250m", devices: "0"}))


@run_by(Target.run_scenario, "target")
async def test_a_device_taint_evicts_the_pod(client: Client, namespace: str) -> None:
    taint = {"key": "broken", "value": "very", "effect": "NoExecute"}
    rule: dict[str, Any] = {
        "metadata": {"name": f"rule-{namespace}"},
        "spec": {"deviceSelector": {"driver": DRIVER, "pool": namespace}, "taint": taint},
    }
    async with running(client, "device-taint-eviction-controller"):
        await client.create(RESOURCE_CLAIMS, claim("c"), namespace)
        tree = with_claims(pod("p"), a={"resourceClaimName": "c"})
        await allocate(client, namespace, "c", await client.create(PODS, tree, namespace))
        await client.create(DEVICE_TAINT_RULES, rule)

        async def marked() -> Any:
            tree = await client.get(PODS, "p", namespace)
            conditions = {
                item["type"]: item["reason"]
                for item in tree["status"].get("conditions", ())
                if "reason" in item
            }
            return tree["metadata"].get("deletionTimestamp") and conditions.get("DisruptionTarget")

        assert await until(marked) == "DeletionByDeviceTaintManager"

        async def conditions() -> Any:
            tree = await client.get(DEVICE_TAINT_RULES, rule["metadata"]["name"])
            return tree.get("status", {}).get("conditions")

        (condition,) = await until(conditions)
        assert condition["type"] == "EvictionInProgress"
        await client.delete(DEVICE_TAINT_RULES, rule["metadata"]["name"])
