"""Node agent on a real kube-apiserver, with the permissions of a node only."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from plimsoll.client import Client, ClientConfig
from plimsoll.client.config import Impersonation
from plimsoll.client.endpoints import EVENTS, LEASES, NODES, PODS, RESOURCE_CLAIMS
from plimsoll.errors import ApiError
from plimsoll.node.machine.file import parse_machine
from plimsoll.node.process.run import NodeProcess
from plimsoll.node.process.settings import NodeSettings
from plimsoll.node.status.reporter import HeartbeatTiming
from tests.cluster.kube_apiserver import run_apiserver
from tests.real.programs import ASSETS, missing
from tests.waiting import DEADLINE, until

_MISSING = missing("kube-apiserver", "etcd")
pytestmark = pytest.mark.skipif(bool(_MISSING), reason=_MISSING)
NS = "default"
NAME = "worker-1"


def as_node(config: ClientConfig, name: str = NAME) -> Client:
    """Return a client with the node's identity."""
    who = Impersonation(f"system:node:{name}", ("system:nodes", "system:authenticated"))
    return Client.connect(replace(config, impersonation=who))


def pod(name: str, cpu: str = "1", **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}
    own = {"nodeName": NAME, "terminationGracePeriodSeconds": 1, "containers": [container]}
    return {"metadata": {"name": name}, "spec": {**own, **spec}}


def phase(wanted: str) -> Callable[[Any], bool]:
    return lambda tree: tree["status"].get("phase") == wanted


async def live(admin: Client, config: ClientConfig, settings: NodeSettings) -> None:
    node_client = as_node(config)
    process = NodeProcess(node_client, settings)
    task = asyncio.create_task(process.run())
    try:
        await process.ready(DEADLINE)
        node = await admin.get(NODES, NAME)
        conditions = {c["type"]: c["status"] for c in node["status"]["conditions"]}
        assert conditions["Ready"] == "True"
        assert node["metadata"]["labels"]["kubernetes.io/hostname"] == NAME
        assert node["status"]["allocatable"]["cpu"] == "4"
        assert node["status"]["nodeInfo"]["containerRuntimeVersion"] == "none://1"

        lease = await admin.get(LEASES, NAME, "kube-node-lease")
        assert lease["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]
        renewed = lease["spec"]["renewTime"]
        await until(
            lambda: admin.get(LEASES, NAME, "kube-node-lease"),
            lambda one: one["spec"]["renewTime"] > renewed,
            ignore=(ApiError,),
        )

        await admin.create(PODS, pod("fits", "3"), NS)
        running = await until(lambda: admin.get(PODS, "fits", NS), phase("Running"), ignore=(ApiError,))
        assert running["status"]["containerStatuses"][0]["ready"]
        await admin.create(PODS, pod("too-big", "2"), NS)
        failed = await until(lambda: admin.get(PODS, "too-big", NS), phase("Failed"), ignore=(ApiError,))
        assert failed["status"]["reason"] == "OutOfcpu"
        assert failed["status"]["message"].endswith(
            "Node didn't have enough resource: cpu, requested: 2000, used: 3000, capacity: 4000"
        )
        await until(
            lambda: admin.list(EVENTS, NS),
            lambda events: any(b"OutOfcpu" in raw for raw in events.items),
            ignore=(ApiError,),
        )

        # What a node may read and what not.
        with pytest.raises(ApiError) as caught:
            await node_client.list(PODS)
        assert caught.value.code == 403
        with pytest.raises(ApiError) as caught:
            await node_client.get(RESOURCE_CLAIMS, "other", NS)
        assert caught.value.code == 403

        # A pressure shows at once, and goes.
        process.agent().status_reporter.set_condition("DiskPressure", True)

        def pressed(tree: Any) -> bool:
            return any(
                (c["type"], c["status"]) == ("DiskPressure", "True") for c in tree["status"]["conditions"]
            )

        await until(lambda: admin.get(NODES, NAME), pressed, ignore=(ApiError,))

        # The Node is deleted.
        await admin.delete(NODES, NAME)
        again = await until(
            lambda: admin.get(NODES, NAME),
            lambda one: one["metadata"]["uid"] != node["metadata"]["uid"],
            ignore=(ApiError,),
        )
        await until(
            lambda: admin.get(LEASES, NAME, "kube-node-lease"),
            lambda one: one["metadata"]["ownerReferences"][0]["uid"] == again["metadata"]["uid"],
            ignore=(ApiError,),
        )

        # The agent goes and comes back: who was in is in.
        process.stop()
        await asyncio.wait_for(task, DEADLINE)
        process = NodeProcess(node_client, settings)
        task = asyncio.create_task(process.run())
        await process.ready(DEADLINE)
        assert [one.metadata.name for one in process.agent().admission_handler.pods()] == ["fits"]

        for name in ("fits", "too-big"):
            await admin.delete(PODS, name, NS)
        await until(lambda: admin.list(PODS, NS), lambda pods: not pods.items, ignore=(ApiError,))
    finally:
        process.stop()
        await asyncio.gather(task, return_exceptions=True)
        await node_client.close()


def test_a_node_on_a_real_server(tmp_path: Path) -> None:
    machine = parse_machine({"capacity": {"cpu": 4, "memory": "8Gi"}})

    async def scene(config: ClientConfig, directory: Path) -> None:
        settings = NodeSettings(
            name=NAME,
            root=directory,
            runtime="none",
            machine=machine,
            timing=HeartbeatTiming(renew=0.2, check=0.5),
            labels={"rack": "7", "node.kubernetes.io/instance-type": "small"},
        )
        async with Client.connect(config) as admin:
            await live(admin, config, settings)

    options = ("--enable-admission-plugins=NodeRestriction",)
    with (
        run_apiserver(ASSETS, tmp_path, options=options) as config,
        tempfile.TemporaryDirectory(prefix="p-", dir="/tmp") as directory,
    ):
        asyncio.run(scene(config, Path(directory)))
