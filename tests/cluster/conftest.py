"""The servers the suite runs against; each starts once, when the first test asks for it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest

from plimsoll.cluster.client import Client, ClientConfig
from plimsoll.cluster.kubeconfig import find_config
from tests.cluster.kube_apiserver import run_apiserver
from tests.cluster.target import Target

NO_ASSETS = "KUBEBUILDER_ASSETS names no folder with etcd and kube-apiserver"


@pytest.fixture(scope="session")
def kube_apiserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientConfig]:
    """A real API server: one that runs already, or one of our own."""
    running = os.environ.get("PLIMSOLL_TEST_KUBECONFIG")
    if running:
        yield find_config(running)
        return
    assets = Path(os.environ.get("KUBEBUILDER_ASSETS") or "/nowhere")
    if not all((assets / name).is_file() for name in ("etcd", "kube-apiserver")):
        pytest.skip(NO_ASSETS)
    with run_apiserver(assets, tmp_path_factory.mktemp("kube")) as config:
        yield config


@pytest.fixture(scope="session", params=["kube-apiserver"])
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    with ExitStack() as stack:
        yield _make(request.param, request, stack)


def _make(name: str, request: pytest.FixtureRequest, stack: ExitStack) -> Target:
    config: ClientConfig = request.getfixturevalue("kube_apiserver")
    return over_http(name, config)


def over_http(name: str, config: ClientConfig) -> Target:
    @asynccontextmanager
    async def connect() -> AsyncIterator[Client]:
        async with Client.connect(config) as client:
            yield client

    return Target(name, connect, config)
