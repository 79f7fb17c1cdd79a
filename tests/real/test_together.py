"""kube-scheduler and kube-controller-manager with their default settings on our server.

Our own controllers are off: theirs make claims from templates, replica sets, pods and endpoints. Then the
server is killed under both and comes back.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from plimsoll.api import codec
from plimsoll.client import Client
from plimsoll.client.endpoints import (
    DEPLOYMENTS,
    DEVICE_CLASSES,
    LEASES,
    NODES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    SERVICE_ACCOUNTS,
)
from plimsoll.errors import ApiError
from tests.manifests import (
    DRIVER,
    NODE_STATUS,
    Tree,
    claim_template,
    claiming_pod,
    device_class,
    node,
    resource_slice,
)
from tests.real.programs import Program, missing
from tests.smoke.process import ServerProcess
from tests.waiting import DEADLINE, until

NAMES = ("kube-scheduler", "kube-controller-manager")
pytestmark = pytest.mark.skipif(bool(missing(*NAMES)), reason=missing(*NAMES))
NS = "default"
#: A controller that is ahead of its cache, or behind what others write or delete, says so and tries again.
STALE = re.compile(
    "is not as new as written version|resourceclaims.resource.k8s.io .* not found"
    "|Operation cannot be fulfilled on resourceclaims.resource.k8s.io .* the object has been modified"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path_factory.mktemp("together"), "--no-controllers")
    process.start()
    yield process
    process.stop()
    assert "Traceback" not in process.complaints()


@pytest.fixture(scope="module")
def programs(server: ServerProcess) -> Iterator[list[Program]]:
    found = [Program(name, server) for name in NAMES]
    yield found
    for program in found:
        program.stop()


@asynccontextmanager
async def connected(server: ServerProcess) -> AsyncIterator[Client]:
    async with asyncio.timeout(DEADLINE), Client.connect(server.config()) as client:
        yield client


def deployment(name: str, replicas: int) -> Tree:
    template = claiming_pod("", "t")
    template = {"metadata": {"labels": {"app": name}}, "spec": template["spec"]}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


async def placed(client: Client, name: str, count: int) -> bool:
    """Return whether all pods of a deployment have a node and a claim that is allocated there."""
    pods = [codec.decode_tree(raw) for raw in (await client.list(PODS, NS, labels=f"app={name}")).items]
    if len(pods) != count or not all(pod["spec"].get("nodeName") for pod in pods):
        return False
    for pod in pods:
        (entry,) = pod["status"]["resourceClaimStatuses"]
        claim = await client.get(RESOURCE_CLAIMS, entry["resourceClaimName"], NS)
        (result,) = claim["status"]["allocation"]["devices"]["results"]
        assert result["pool"] == pod["spec"]["nodeName"]
    return True


async def furnish(client: Client) -> None:
    await client.create(DEVICE_CLASSES, device_class(DRIVER))
    await client.create(RESOURCE_CLAIM_TEMPLATES, claim_template("t", DRIVER), NS)
    for name in ("n1", "n2"):
        await client.create(NODES, node(name))
        await client.patch(NODES, name, {"status": NODE_STATUS}, subresource="status")
        await client.create(RESOURCE_SLICES, resource_slice(f"{name}-gpu", name, 8))


def test_all_components_survive_a_server_restart(server: ServerProcess, programs: list[Program]) -> None:
    async def scenario() -> None:
        async with connected(server) as client:
            await until(lambda: client.get(SERVICE_ACCOUNTS, "default", NS), ignore=(ApiError,))
            await furnish(client)
            await client.create(DEPLOYMENTS, deployment("first", 3), NS)
            await until(lambda: placed(client, "first", 3), ignore=(ApiError,))
            for name in NAMES:
                lease = await client.get(LEASES, name, "kube-system")
                assert lease["spec"]["holderIdentity"]
            for program in programs:
                assert [line for line in program.complaints() if not STALE.search(line)] == []
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
            await client.patch(DEPLOYMENTS, "first", {"spec": {"replicas": 5}}, NS, subresource="scale")
            await until(lambda: placed(client, "first", 5), ignore=(ApiError,))
            await client.delete(DEPLOYMENTS, "first", NS, propagation="Foreground")
            await until(lambda: gone(client), ignore=(ApiError,))

    asyncio.run(scenario())
    for program in programs:
        assert program.alive
        assert [line for line in program.complaints(away=True) if not STALE.search(line)] == []
        assert "too old resource version" not in program.text()


async def gone(client: Client) -> bool:
    """Delete pods as their kubelet and wait for their claims to be deleted."""
    for raw in (await client.list(PODS, NS)).items:
        pod = codec.decode_tree(raw)
        if pod["metadata"].get("deletionTimestamp"):
            await client.delete(PODS, pod["metadata"]["name"], NS, grace=0)
    left = [await client.list(endpoint, NS) for endpoint in (DEPLOYMENTS, PODS, RESOURCE_CLAIMS)]
    return not any(listing.items for listing in left)
