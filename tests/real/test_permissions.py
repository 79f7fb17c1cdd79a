"""Roles of the scheduler in documents, manifests and Kubernetes, used by tokens on a real kube-apiserver.

With each of them alone the scheduler has to start, to bind a pod with a claim and to write its event.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from msgspec.structs import replace as amend

from plimsoll.client import Client, ClientConfig
from plimsoll.client.discovery import discover
from plimsoll.client.endpoints import (
    DEVICE_CLASSES,
    EVENTS_V1,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    SERVICE_ACCOUNTS,
)
from plimsoll.errors import ApiError
from plimsoll.scheduler.process.configuration import LeaderElection, SchedulerSettings
from plimsoll.scheduler.process.run import SchedulerProcess
from tests.cluster.kube_apiserver import run_apiserver
from tests.deploy.accounts import account
from tests.deploy.render import objects
from tests.manifests import DRIVER, NODE_STATUS, Tree, claim, device_class, node, pod, resource_slice
from tests.real.pod_groups import options_of_groups
from tests.real.programs import ASSETS, emulate, missing, skip_before
from tests.structure.documents import FENCE, read
from tests.waiting import DEADLINE, until

_MISSING = missing("kube-apiserver", "etcd")
pytestmark = pytest.mark.skipif(bool(_MISSING), reason=_MISSING)
NS, SYSTEM = "default", "kube-system"
RBAC = "rbac.authorization.k8s.io"


#: Kinds of objects that give permissions, and the namespace that they are in.
KINDS = ("Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")


class ScheduledRole(NamedTuple):
    """Objects that give a service account its role, and the election that fits."""

    trees: list[Tree]
    account: str
    lease: str = "plimsoll-scheduler"


def documented() -> ScheduledRole:
    """Return the role that docs/scheduler.md has for an installation by hand."""
    (text,) = [
        text
        for _, text in FENCE.findall(read("docs/scheduler.md"))
        if "name: plimsoll-scheduler-more" in text
    ]
    assert "kubectl apply -f deploy/manifests/scheduler/placeholders.yaml" in read("docs/scheduler.md")
    trees = [*yaml.safe_load_all(text), *objects(part="scheduler/placeholders")]
    return ScheduledRole(trees, "plimsoll-scheduler")


def of_the_manifests() -> ScheduledRole:
    trees = [tree for tree in objects(part="scheduler/") if tree["kind"] in KINDS]
    return ScheduledRole(trees, "plimsoll-scheduler")


def stock() -> ScheduledRole:
    """Return the bindings of kube-scheduler, for another account."""
    subject = {"kind": "ServiceAccount", "name": "stock", "namespace": SYSTEM}
    trees: list[Tree] = [{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "stock"}}]
    for name in ("system:kube-scheduler", "system:volume-scheduler"):
        trees.append(_binding("ClusterRoleBinding", name, subject))
    trees.append(_binding("RoleBinding", "system::leader-locking-kube-scheduler", subject))
    return ScheduledRole(trees, "stock", "kube-scheduler")


def _binding(kind: str, role: str, subject: Tree) -> Tree:
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": kind,
        "metadata": {"name": f"stock-{role.replace(':', '-')}"},
        "roleRef": {"apiGroup": RBAC, "kind": kind.removesuffix("Binding"), "name": role},
        "subjects": [subject],
    }


ROLES = {"documented": documented, "manifests": of_the_manifests, "stock": stock}


#: Without DeviceTaintRules, as by default; `run_apiserver` enables the version that has them.
DEFAULT = ["--runtime-config=resource.k8s.io/v1beta2=false"]


def _alpha() -> tuple[str, list[str]]:
    skip_before(36, "which has the gates")
    gates, options = options_of_groups()
    gates += ",DRANodeAllocatableResources=true,DRADeviceTaintRules=true"
    return gates, [f"{options[0]},resource.k8s.io/v1beta2=true"]


@pytest.fixture(params=("default", "alpha", "1.34", "1.35"))
def config(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ClientConfig]:
    gates, options = ("", DEFAULT) if request.param != "alpha" else _alpha()
    if request.param.startswith("1."):
        options = [*options, *emulate(request.param)]
    with run_apiserver(ASSETS, tmp_path, gates, options) as config:
        yield config


async def apply(admin: Client, trees: list[Tree]) -> list[tuple[Any, str, str]]:
    served = {(each.endpoint.group, each.endpoint.kind): each.endpoint for each in await discover(admin)}
    created = []
    for tree in trees:
        group, _, version = str(tree["apiVersion"]).rpartition("/")
        endpoint = served[group, tree["kind"]].at(version)
        namespace = tree["metadata"].get("namespace", SYSTEM)
        try:
            await admin.create(endpoint, tree, namespace, field_validation="Strict")
        except ApiError as error:
            if error.code != 409 or tree["kind"] not in ("Namespace", "PriorityClass"):
                raise
        created.append((endpoint, tree["metadata"]["name"], namespace))
    return created


@asynccontextmanager
async def running(client: Client, role: ScheduledRole) -> Any:
    election = LeaderElection(elect=True, namespace=SYSTEM, name=role.lease)
    settings = amend(SchedulerSettings(named_seconds=0.1).named(["plimsoll"]), election=election)
    process = SchedulerProcess(client, settings)
    task = asyncio.create_task(process.run())
    try:
        async with asyncio.timeout(DEADLINE):
            await process.scheduling.wait()
        yield process
    finally:
        process.stop()
        await task


async def furnish(admin: Client) -> None:
    await admin.create(NODES, node("n1"))
    await admin.patch(NODES, "n1", {"status": NODE_STATUS}, subresource="status")
    await admin.patch(NODES, "n1", {"spec": {"taints": None}})
    await admin.create(RESOURCE_SLICES, resource_slice("n1-gpu", "n1", len(ROLES)))
    await admin.create(DEVICE_CLASSES, device_class(DRIVER))


def test_each_role_is_enough_to_schedule(config: ClientConfig, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with asyncio.timeout(4 * DEADLINE), Client.connect(config) as admin:
            await until(lambda: _has_default_account(admin))
            await furnish(admin)
            for name, role in ROLES.items():
                await use(admin, name, role())

    async def use(admin: Client, name: str, role: ScheduledRole) -> None:
        created = await apply(admin, role.trees)
        own = await account(admin, config, role.account)
        caplog.clear()
        async with Client.connect(replace(own, user_agent="plimsoll")) as client, running(client, role):
            await admin.create(RESOURCE_CLAIMS, claim(name), NS)
            tree = pod(
                name,
                schedulerName="plimsoll",
                resourceClaims=[{"name": "c", "resourceClaimName": name}],
            )
            tree["spec"]["containers"][0]["resources"]["claims"] = [{"name": "c"}]
            await admin.create(PODS, tree, NS)

            async def bound() -> Any:
                return (await admin.get(PODS, name, NS))["spec"].get("nodeName")

            assert await until(bound) == "n1"
            await until(lambda: _has_event(admin, name))
        errors = [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR]
        assert errors == [], name
        for endpoint, created_name, namespace in created:
            if endpoint.kind not in ("Namespace", "PriorityClass"):
                await admin.delete(endpoint, created_name, namespace)

    asyncio.run(scenario())


async def _has_event(admin: Client, name: str) -> bool:
    events = await admin.list(EVENTS_V1, NS)
    return any(b'"Scheduled"' in each and f'"{name}"'.encode() in each for each in events.items)


async def _has_default_account(admin: Client) -> bool:
    """Create the account that kube-controller-manager would, once the namespace exists."""
    try:
        await admin.create(SERVICE_ACCOUNTS, {"metadata": {"name": "default"}}, NS)
    except ApiError as error:
        return error.code == 409
    return True
