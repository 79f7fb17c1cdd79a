"""Permissions of the driver's account in the manifests: sufficient and minimal.

The driver is the service account of the manifests, by a token that is bound to its pod as a kubelet hands
them out: against our server, and against a real one, which knows admission policies as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from plimsoll.api import codec
from plimsoll.client import Client, ClientConfig
from plimsoll.client.endpoints import NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, SECRETS
from plimsoll.drivers.cpu.process.run import CpuDriverProcess
from plimsoll.drivers.cpu.settings import CpuSettings, PinEnforcement, PinSettings
from plimsoll.errors import ApiError
from plimsoll.node.layout import Layout
from plimsoll.node.machine.file import parse_machine
from plimsoll.node.process.run import NodeProcess
from plimsoll.node.process.settings import NodeSettings
from plimsoll.up.local_nodes import MACHINE
from tests.deploy.accounts import NAMESPACE, SERVERS, account, end, install, run_server
from tests.unit.drivers.cpu.allocated_claims import NAME, NODE, SHARE, allocated_claim, prepare
from tests.unit.drivers.cpu.machines import make_machine, write_sysfs
from tests.waiting import DEADLINE, until


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, ClientConfig]]:
    with run_server(request.param, tmp_path) as config:
        yield request.param, config


async def start_pod(admin: Client) -> None:
    """Create a pod of the driver on its node."""
    container = {"name": "driver", "image": "plimsoll"}
    spec = {"nodeName": NODE, "serviceAccountName": NAME, "containers": [container]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "driver"}, "spec": spec}
    await admin.create(PODS, pod, NAMESPACE)


async def add_claim(admin: Client, claim: dict[str, Any]) -> dict[str, Any]:
    made = await admin.create(RESOURCE_CLAIMS, claim)
    made["status"] = claim["status"]
    return await admin.update(RESOURCE_CLAIMS, made, subresource="status")


async def slices_of(client: Client, node: str = "") -> list[dict[str, Any]]:
    listing = await client.list(RESOURCE_SLICES, fields=f"spec.nodeName={node}" if node else "")
    return [codec.decode_tree(raw) for raw in listing.items]


async def devices_of(client: Client, name: str) -> list[dict[str, Any]]:
    claim = await client.get(RESOURCE_CLAIMS, name, "default")
    return list(claim["status"].get("devices", []))


async def be_silent(admin: Client, client: Client, device: str) -> None:
    """Check that the account cannot write fields of claims other than its device statuses."""
    far, mixed = allocated_claim("far", device, "n2"), allocated_claim("mixed", device)
    other = {"request": "cpus", "driver": "gpu.example.com", "pool": NODE, "device": "gpu-0"}
    mixed["status"]["allocation"]["devices"]["results"].append(other)
    await add_claim(admin, far)
    await add_claim(admin, mixed)
    own = {"driver": "dra.cpu", "pool": "n2", "device": device, "shareID": SHARE}
    foreign = {key: other[key] for key in ("driver", "pool", "device")}
    user = {"resource": "pods", "name": "p", "uid": "u"}
    for name, status, right in (
        ("far", {"devices": [own]}, "resourceclaims/driver"),
        ("mixed", {"devices": [foreign]}, "resourceclaims/driver"),
        ("mixed", {"reservedFor": [user]}, "resourceclaims/binding"),
        ("mixed", {"allocation": None}, "resourceclaims/binding"),
    ):
        with pytest.raises(ApiError, match=right):
            await client.patch(RESOURCE_CLAIMS, name, {"status": status}, "default", subresource="status")
    # The same, of its own device on its own node.
    await client.patch(
        RESOURCE_CLAIMS,
        "mixed",
        {"status": {"devices": [{**own, "pool": NODE}]}},
        "default",
        subresource="status",
    )


def test_the_driver_account_has_exactly_the_permissions_of_a_driver(
    server: tuple[str, ClientConfig], root: Path
) -> None:
    kind, config = server
    write_sysfs(make_machine(cores=4), root / "host")
    layout = Layout(root / "kubelet")
    settings = CpuSettings(
        node=NODE,
        host_root=root / "host",
        kubelet_root=layout.root,
        cdi=layout.cdi,
        nri=layout.nri,
        pin=PinSettings(enforcement=PinEnforcement.NRI),
    )

    async def scenario() -> None:
        async with Client.connect(config) as admin, AsyncExitStack() as stack:
            node = NodeProcess(
                admin,
                NodeSettings(name=NODE, runtime="none", root=layout.root, machine=parse_machine(MACHINE)),
            )
            running = asyncio.create_task(node.run())
            stack.push_async_callback(end, node.stop, running)
            await node.ready(DEADLINE)
            await install(admin, "cpu-driver")
            await start_pod(admin)
            own = await account(admin, config, NAME, pod="driver")
            async with Client.connect(own) as client:
                await work(admin, client)
                await be_refused(admin, client)

    async def work(admin: Client, client: Client) -> None:
        process = CpuDriverProcess(client, settings)
        task = asyncio.create_task(process.run())
        try:
            await process.wait_ready(DEADLINE)
            slices = await slices_of(admin)
            assert [each["spec"]["nodeName"] for each in slices] == [NODE]
            assert slices[0]["metadata"]["ownerReferences"][0]["name"] == NODE
            # A removed one is restored.
            await admin.delete(RESOURCE_SLICES, slices[0]["metadata"]["name"])

            async def back() -> Any:
                return [tree for tree in await slices_of(admin) if tree != slices[0]]

            await until(back)
            device_name = slices[0]["spec"]["devices"][0]["name"]
            made = await add_claim(admin, allocated_claim("c", device_name))
            answer = await prepare(settings, made)
            assert not answer.error
            (device,) = answer.devices
            assert f"dra.k8s.io/cpu=claim-{made['metadata']['uid']}" in device.cdi_device_ids
            (listed,) = await until(lambda: devices_of(admin, "c"))
            # CPU 0 stays shared: the pod of the driver runs there.
            assert (listed["shareID"], listed["data"]) == (SHARE, {"cpuset": "1-2", "numaNodes": "0"})
            assert [each["reason"] for each in listed["conditions"]] == ["Pinned"]
            assert not (await prepare(settings, made, "Unprepare")).error

            async def silent() -> bool:
                return process.driver.plugin_server.claim_status_synced and not await devices_of(admin, "c")

            await until(silent)
            assert not process.driver.plugin_server.claim_status_errors
            await be_silent(admin, client, device_name)
        finally:
            await end(process.stop, task)

    async def be_refused(admin: Client, client: Client) -> None:
        for call in (
            client.list(PODS),
            client.list(SECRETS),
            client.list(NODES),
            client.delete(NODES, NODE),
        ):
            with pytest.raises(ApiError) as refused:
                await call
            assert refused.value.code == 403
        if kind == "embedded":
            return  # it keeps admission policies and does not follow them
        foreign: dict[str, Any] = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"generateName": "x-"},
            "spec": {
                "driver": "dra.cpu",
                "nodeName": "n2",
                "pool": {"name": "n2", "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": "d"}],
            },
        }

        async def refused_by_policy() -> str:
            try:  # a policy is effective shortly after it was written
                await client.create(RESOURCE_SLICES, foreign, dry_run=True)
            except ApiError as error:
                return str(error)
            return ""

        assert "a driver on node n1 may not write slices of node n2" in await until(refused_by_policy)
        foreign["spec"] |= {"driver": "gpu.example.com", "nodeName": NODE}
        assert "the CPU driver may write slices of dra.cpu only" in await refused_by_policy()
        theirs = await admin.create(
            RESOURCE_SLICES, {**foreign, "spec": {**foreign["spec"], "nodeName": "n2"}}
        )
        with pytest.raises(ApiError, match="may not write slices of node n2"):
            await client.delete(RESOURCE_SLICES, theirs["metadata"]["name"])
        own = await slices_of(admin, NODE)
        await client.delete(RESOURCE_SLICES, own[0]["metadata"]["name"])

    asyncio.run(scenario())
