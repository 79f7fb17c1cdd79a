"""Fixtures: one server process for all smoke tests, and kubectl if available."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from tests.smoke.kubectl import Kubectl, find_kubectl
from tests.smoke.process import ServerProcess


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path_factory.mktemp("server"))
    process.start()
    try:
        yield process
    finally:
        process.stop()
    assert "Traceback" not in process.complaints()


@pytest.fixture(scope="session")
def admin(server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    """Return kubectl as the administrator."""
    program = find_kubectl()
    if not program:
        pytest.skip("no kubectl: set KUBEBUILDER_ASSETS to a directory with one, or install it in the PATH")
    return Kubectl(program, server.kubeconfig, tmp_path_factory.mktemp("kubectl"))


@pytest.fixture
def kubectl(admin: Kubectl) -> Kubectl:
    """Return kubectl in the test's own namespace."""
    name = f"t-{secrets.token_hex(4)}"
    admin("create", "namespace", name)
    return admin.within(name)
