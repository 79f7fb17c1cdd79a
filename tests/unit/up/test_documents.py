"""The examples of docs/clients.md and docs/pytest.md run."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plimsoll.client.endpoints import LEASES, PODS
from plimsoll.client.kubeconfig import find_config
from plimsoll.up.local_cluster import LocalCluster
from tests.waiting import until

DOCS = Path(__file__).parents[3] / "docs"
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

POD = """
    apiVersion: v1
    kind: Pod
    metadata: {name: web-0}
    spec:
      nodeName: node-1
      containers: [{name: main, image: example.org/main}]
"""
POD_WITH_A_CLAIM = """
    apiVersion: v1
    kind: Node
    metadata: {name: node-1}
    ---
    apiVersion: resource.k8s.io/v1
    kind: ResourceClaimTemplate
    metadata: {name: one}
    spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: cpu.example.com}}]}}}
    ---
    apiVersion: v1
    kind: Pod
    metadata: {name: p}
    spec:
      resourceClaims: [{name: cpus, resourceClaimTemplateName: one}]
      containers: [{name: main, image: example.org/main, resources: {claims: [{name: cpus}]}}]
"""
ALLOCATION = {
    "devices": {"results": [{"request": "r", "driver": "cpu.example.com", "pool": "p", "device": "d"}]}
}


def blocks(name: str) -> list[str]:
    return PYTHON.findall((DOCS / name).read_text())


def publish(kubeconfig: Path, node: str) -> None:
    """Publish eight CPUs as the driver under test."""
    slices = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-cpus"},
        "spec": {
            "driver": "cpu.example.com",
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"cpu-{n}"} for n in range(8)],
        },
    }

    async def run() -> None:
        from plimsoll.client import Client  # noqa: PLC0415
        from plimsoll.client.endpoints import RESOURCE_SLICES  # noqa: PLC0415

        async with Client.connect(find_config(kubeconfig, environ={})) as client:
            await client.create(RESOURCE_SLICES, slices)

    asyncio.run(run())


@pytest.fixture
def plimsoll_cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as cluster:
        yield cluster


def test_the_examples_for_pytest(plimsoll_cluster: LocalCluster, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {
        "publish": publish,
        "POD_WITH_A_CLAIM": POD_WITH_A_CLAIM,
        "ALLOCATION": ALLOCATION,
    }
    for block in blocks("pytest.md"):
        exec(block, names)
    assert capsys.readouterr().out == "Active\n"
    tests = [name for name in names if name.startswith("test_")]
    assert len(tests) == 6
    for name in tests:
        marks = getattr(names[name], "pytestmark", [])
        if not marks:
            names[name](plimsoll_cluster)
            continue
        with LocalCluster(**marks[0].kwargs) as cluster:
            names[name](cluster)


def test_the_examples_for_clients(
    plimsoll_cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plimsoll_cluster.apply(POD, "{apiVersion: v1, kind: Node, metadata: {name: node-1}}")
    monkeypatch.setenv("KUBECONFIG", str(plimsoll_cluster.kubeconfig))
    names: dict[str, Any] = {}
    for block in blocks("clients.md"):
        exec(block, names)
    asyncio.run(names["main"]())
    assert plimsoll_cluster.client.get(PODS, "web-0", "default")["metadata"]["labels"] == {"seen": "yes"}

    async def scenario() -> None:
        async with plimsoll_cluster.connect() as client:
            task = asyncio.create_task(names["campaign"](client))
            printed = ""

            def has_event() -> bool:
                nonlocal printed
                printed += capsys.readouterr().out
                return "added web-0" in printed and "1 Pod(" in printed

            await until(has_event, context="the informer's words")
            lease = await client.get(LEASES, "my-driver", "kube-system")
            assert lease["spec"]["holderIdentity"] == "pod-1"
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            lease = await client.get(LEASES, "my-driver", "kube-system")
            assert lease["spec"]["holderIdentity"] == ""

    asyncio.run(scenario())
