"""Fixtures: servers for the chaos tests of the scheduler."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.scheduler_faults.servers import Server, run_embedded_server, run_real_server
from tests.real.programs import ASSETS, missing

_MISSING = missing("etcd", "kube-apiserver", "kube-controller-manager")


@pytest.fixture(params=["embedded", "kube-apiserver"])
def chaos_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    """Return the embedded server, or a real one if its binaries are available."""
    if request.param == "embedded":
        with run_embedded_server(tmp_path) as server:
            yield server
        return
    if _MISSING:
        pytest.skip(_MISSING)
    with run_real_server(ASSETS, tmp_path) as server:
        yield server
