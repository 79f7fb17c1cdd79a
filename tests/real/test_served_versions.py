"""Scheduler, controllers, slices and tools on API servers that serve other versions of resource.k8s.io.

A kube-apiserver emulates earlier releases (`--emulated-version`), and can serve each version alone.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from plimsoll.api.forms import Form
from plimsoll.api.resource import ResourceClaim, ResourceSlice
from plimsoll.client import Client
from plimsoll.client.endpoints import NODES, RESOURCE_CLAIMS, RESOURCE_SLICES
from plimsoll.client.responses import read_tree
from plimsoll.controllers import ControllerManager
from plimsoll.controllers.resource_claim.controller import ResourceClaimController
from plimsoll.drivers.cpu.devices import detect_capabilities
from plimsoll.drivers.cpu.settings import CpuSettings
from plimsoll.drivers.plugin import DevicePool
from plimsoll.drivers.plugin.slice_publisher import SlicePublisher
from plimsoll.scheduler.process.configuration import SchedulerSettings
from plimsoll.scheduler.process.run import SchedulerProcess
from plimsoll.tools.cluster_state.live import read_live
from tests.cluster.kube_apiserver import run_apiserver
from tests.manifests import DRIVER, node
from tests.real.programs import ASSETS, emulate, minor_version, missing
from tests.real.scheduled_pods import furnished, schedule
from tests.waiting import DEADLINE, until

_MISSING = missing("kube-apiserver", "etcd")
pytestmark = pytest.mark.skipif(bool(_MISSING), reason=_MISSING)

RESOURCE = "resource.k8s.io"
BETA1_ONLY = f"--runtime-config={RESOURCE}/v1=false,{RESOURCE}/v1beta2=false,{RESOURCE}/v1beta1=true"
BETA2_ONLY = f"--runtime-config={RESOURCE}/v1=false,{RESOURCE}/v1beta2=true"


@pytest.mark.parametrize(
    ("release", "options", "version"),
    [
        ("1.34", [], "v1"),
        ("1.35", [], "v1"),
        ("", [BETA2_ONLY], "v1beta2"),
        ("", [BETA1_ONLY], "v1beta1"),
        ("1.34", [BETA1_ONLY], "v1beta1"),
    ],
    ids=["1.34", "1.35", "v1beta2", "v1beta1", "1.34-v1beta1"],
)
def test_pods_get_their_devices(tmp_path: Path, release: str, options: list[str], version: str) -> None:
    options = [*emulate(release), *options]

    async def scenario(client: Client) -> None:
        controllers = asyncio.create_task(
            ControllerManager(client, only=[ResourceClaimController.name]).run()
        )
        process = SchedulerProcess(client, SchedulerSettings())
        scheduling = asyncio.create_task(process.run())
        try:
            await process.ready(DEADLINE)
            await schedule(client, process, stock=True)
        finally:
            for task in (scheduling, controllers):
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
        await publish(client)
        await read(client)

    async def publish(client: Client) -> None:
        """Publish the devices of a driver twice: unchanged slices are recognized."""
        for _ in range(2):
            publisher = SlicePublisher(client, "nic.example.com", "n1")
            task = asyncio.create_task(publisher.run())
            publisher.set_pools([DevicePool("n1", [{"name": "nic-0", "attributes": {"speed": {"int": 10}}}])])
            await until(lambda: publisher.published, context=lambda: str(publisher.problems))  # noqa: B023
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        (raw,) = (await client.list(RESOURCE_SLICES, fields="spec.driver=nic.example.com")).items
        slice = read_tree(raw)
        assert slice["metadata"]["generation"] == 1
        assert slice["spec"]["devices"] == [{"name": "nic-0", "attributes": {"speed": {"int": 10}}}]

    async def read(client: Client) -> None:
        """Check what the server stores, and that it is read as v1."""
        reply = await client.call("GET", RESOURCE_CLAIMS.at(version).path(None))
        (request, *_) = read_tree(reply.body)["items"][0]["spec"]["devices"]["requests"]
        assert ("exactly" in request) == (version != "v1beta1")
        for raw in (await client.list(RESOURCE_CLAIMS)).items:
            claim = read_tree(raw)
            assert claim["apiVersion"] == f"{RESOURCE}/v1"
            assert claim["spec"]["devices"]["requests"][0]["exactly"]["allocationMode"] == "ExactCount"
        for raw in (await client.list(RESOURCE_SLICES, fields=f"spec.driver={DRIVER}")).items:
            (device, *_) = read_tree(raw)["spec"]["devices"]
            assert device["capacity"]["memory"]["value"] == "16Gi"
        state = await read_live(client)
        assert len(state.all(ResourceClaim)) == 4
        assert all(claim.allocation_results for claim in state.all(ResourceClaim))
        assert {len(each.spec.devices or ()) for each in state.all(ResourceSlice)} == {1, 2}

    # The node authorizer of a kube-apiserver reads slices in v1 only, and is never ready without it.
    authorization = "Node,RBAC" if version == "v1" else "RBAC"
    with run_apiserver(ASSETS, tmp_path, "", options, authorization) as config:

        async def run() -> None:
            async with (
                asyncio.timeout(4 * DEADLINE),
                Client.connect(config) as client,
                furnished(client, stock=True),
            ):
                await scenario(client)

        asyncio.run(run())


@pytest.mark.skipif(_MISSING == "" and minor_version() < 37, reason="1.36 does not look at the node")
def test_mappings_are_published_where_the_node_declares_them(tmp_path: Path) -> None:
    feature = "DRANodeAllocatableResources"

    async def scenario(client: Client) -> None:
        await client.create(NODES, node("n1"))
        assert (await detect_capabilities(client, CpuSettings("n1"))).form is None
        await client.patch(NODES, "n1", {"status": {"declaredFeatures": [feature]}}, subresource="status")
        # The server's admission reads the node from its own cache.
        await until(
            lambda: detect_capabilities(client, CpuSettings("n1")), lambda found: found.form is Form.V1_37
        )

    with run_apiserver(ASSETS, tmp_path, f"{feature}=true") as config:

        async def run() -> None:
            async with asyncio.timeout(4 * DEADLINE), Client.connect(config) as client:
                await scenario(client)

        asyncio.run(run())
