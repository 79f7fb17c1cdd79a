"""Pod workers with a real kube-apiserver."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from plimsoll.client import Client, ClientConfig
from plimsoll.client.endpoints import NODES
from tests.cluster.kube_apiserver import run_apiserver
from tests.unit.node.pods import test_lifecycle_hooks, test_pod_resize, test_worker

ASSETS = os.environ.get("KUBEBUILDER_ASSETS", "")
pytestmark = pytest.mark.skipif(not ASSETS, reason="KUBEBUILDER_ASSETS names no kube-apiserver")

STORIES = [
    scenario
    for module in (test_worker, test_pod_resize, test_lifecycle_hooks)
    for name, scenario in vars(module).items()
    if name.startswith("test_") and set(inspect.signature(scenario).parameters) <= {"cluster", "tmp_path"}
]


@dataclass
class Served:
    config: ClientConfig


async def add_node(config: ClientConfig) -> None:
    """Create the node: a resize is allowed only for known nodes."""
    room = {"cpu": "8", "memory": "16Gi", "pods": "110"}
    status = {"capacity": room, "allocatable": room}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": status}
    async with Client.connect(config) as client:
        await client.create(NODES, node)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    options = ("--disable-admission-plugins=ServiceAccount",)
    with run_apiserver(Path(ASSETS), tmp_path_factory.mktemp("server"), options=options) as config:
        asyncio.run(add_node(config))
        yield Served(config)


@pytest.mark.parametrize("scenario", STORIES, ids=lambda scenario: scenario.__name__)
def test_pod_workers_with_a_real_server(
    server: Served, scenario: Callable[..., None], tmp_path: Path
) -> None:
    known: dict[str, Any] = {"cluster": server, "tmp_path": tmp_path}
    scenario(**{name: known[name] for name in inspect.signature(scenario).parameters})
