"""Fixtures: the servers of the suite, each started once when the first test needs it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from plimsoll.client import Client, ClientConfig
from plimsoll.client.kubeconfig import find_config
from tests.cluster.kube_apiserver import run_apiserver
from tests.cluster.target import Target

ASSETS = Path(os.environ.get("KUBEBUILDER_ASSETS") or "/nowhere")
RUNNING = os.environ.get("PLIMSOLL_TEST_KUBECONFIG", "")
REAL = bool(RUNNING) or all((ASSETS / name).is_file() for name in ("etcd", "kube-apiserver"))
#: The targets with a network between, whose connections can break.
CONNECTED = ["embedded", *(["kube-apiserver"] if REAL else [])]


@pytest.fixture(scope="session")
def kube_apiserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientConfig]:
    """Return a real API server: a running one, or one that is started."""
    if RUNNING:
        yield find_config(RUNNING)
        return
    with run_apiserver(ASSETS, tmp_path_factory.mktemp("kube")) as config:
        yield config


@pytest.fixture(scope="session", params=[*CONNECTED, "within"])
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    name: str = request.param
    if name == "kube-apiserver":
        config: ClientConfig = request.getfixturevalue("kube_apiserver")
        yield Target(name, connector(config), config)
        return
    from tests.cluster.embedded import age, open_within, run_embedded  # noqa: PLC0415 - heavy, and not always wanted

    if name == "within":
        yield Target(name, open_within, age=age)
    else:
        with run_embedded(tmp_path_factory.mktemp("embedded")) as config:
            yield Target(name, connector(config), config, age)


def connector(config: ClientConfig) -> Callable[[], AbstractAsyncContextManager[Client]]:
    @asynccontextmanager
    async def connect() -> AsyncIterator[Client]:
        async with Client.connect(config) as client:
            yield client

    return connect
