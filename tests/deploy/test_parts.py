"""Permissions of the accounts of scheduler and dashboard: sufficient and minimal."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plimsoll.client import Client, ClientConfig
from plimsoll.client.endpoints import DEVICE_CLASSES, NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, SECRETS
from plimsoll.errors import ApiError
from plimsoll.ledger.placeholders import NAMESPACE as NAMESPACE_OF_PLACEHOLDERS
from plimsoll.scheduler.process.configuration import SchedulerSettings, override
from plimsoll.scheduler.process.run import SchedulerProcess
from plimsoll.tools.cluster_state.live import read_live
from tests.deploy.accounts import NAMESPACE, SERVERS, account, end, install, read_metrics, run_server
from tests.waiting import until

DRA = "resource.k8s.io/v1"


@pytest.fixture(params=SERVERS)
def config(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ClientConfig]:
    with run_server(request.param, tmp_path) as config:
        yield config


async def fill(admin: Client) -> None:
    """Create a node with a device, and a pod that requests it."""
    line = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
    made = await admin.create(NODES, node)
    made["status"] = {"allocatable": line, "capacity": line}
    await admin.update(NODES, made, subresource="status")
    await admin.patch(NODES, "n1", {"spec": {"taints": None}})
    expression = {"cel": {"expression": 'device.driver == "d.example.com"'}}
    cls: dict[str, Any] = {"apiVersion": DRA, "kind": "DeviceClass", "metadata": {"name": "d"}}
    await admin.create(DEVICE_CLASSES, {**cls, "spec": {"selectors": [expression]}})
    piece = {
        "driver": "d.example.com",
        "nodeName": "n1",
        "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "d0"}],
    }
    await admin.create(
        RESOURCE_SLICES,
        {"apiVersion": DRA, "kind": "ResourceSlice", "metadata": {"name": "n1-d"}, "spec": piece},
    )
    requests = [{"name": "r", "exactly": {"deviceClassName": "d"}}]
    claim = {"apiVersion": DRA, "kind": "ResourceClaim", "metadata": {"name": "c", "namespace": "default"}}
    await admin.create(RESOURCE_CLAIMS, {**claim, "spec": {"devices": {"requests": requests}}})
    spec = {
        "schedulerName": "plimsoll",
        "automountServiceAccountToken": False,
        "containers": [{"name": "a", "image": "a", "resources": {"claims": [{"name": "c"}]}}],
        "resourceClaims": [{"name": "c", "resourceClaimName": "c"}],
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"}}
    await admin.create(PODS, {**pod, "spec": spec})


async def refuse(client: Client) -> None:
    """Check the calls that none of our components may make."""
    for call in (client.list(SECRETS), client.delete(NODES, "n1"), client.delete(DEVICE_CLASSES, "d")):
        with pytest.raises(ApiError) as refused:
            await call
        assert refused.value.code == 403


async def keep_placeholders(client: Client) -> None:
    """Check that the account can create and delete pods in the namespace of placeholders only.

    A real server enforces the restricted standard there.
    """
    security = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container = {"name": "pause", "image": "pause", "securityContext": security}
    spec = {"automountServiceAccountToken": False, "containers": [container]}
    pod = {"metadata": {"name": "x"}, "spec": spec}
    with pytest.raises(ApiError, match=r"cannot create resource .?pods"):
        await client.create(PODS, pod, "default")
    await client.create(PODS, pod, NAMESPACE_OF_PLACEHOLDERS)
    await client.get(PODS, "x", NAMESPACE_OF_PLACEHOLDERS)
    await client.delete(PODS, "x", NAMESPACE_OF_PLACEHOLDERS)


async def test_the_scheduler_account_can_schedule_a_pod_with_a_claim(
    config: ClientConfig, tmp_path: Path
) -> None:
    async with Client.connect(config) as admin:
        await install(admin, "scheduler")
        await fill(admin)
        own = await account(admin, config, "plimsoll-scheduler")
        async with Client.connect(own) as client:
            settings = override(
                SchedulerSettings(),
                leader_elect=True,
                lease=f"{NAMESPACE}/plimsoll-scheduler",
                listen="127.0.0.1:0",
                cert_dir=tmp_path / "tls",
            )
            process = SchedulerProcess(client, settings)
            task = asyncio.create_task(process.run())
            try:
                await until(lambda: admin.get(PODS, "p", "default"), lambda pod: pod["spec"].get("nodeName"))
                claim = await admin.get(RESOURCE_CLAIMS, "c", "default")
                assert claim["status"]["allocation"]["devices"]["results"][0]["device"] == "d0"
                assert process.health is not None
                codes = await read_metrics(admin, config, f"127.0.0.1:{process.health.port}")
                assert codes == {"": 401, "stranger": 403, "prometheus": 200, "readyz": 200}
                await keep_placeholders(client)
            finally:
                await end(process.stop, task)
            await refuse(client)


async def test_the_dashboards_account_can_read_everything_it_shows(config: ClientConfig) -> None:
    async with Client.connect(config) as admin:
        await install(admin, "dashboard")
        await fill(admin)
        own = await account(admin, config, "plimsoll-dashboard")
        async with Client.connect(own) as client:
            objects = await read_live(client)
            assert {gap.kind for gap in objects.gaps} <= {"devicetaintrules", "podgroups"}
            await refuse(client)
            with pytest.raises(ApiError):
                await client.patch(PODS, "p", {"metadata": {"labels": {"a": "b"}}}, "default")
