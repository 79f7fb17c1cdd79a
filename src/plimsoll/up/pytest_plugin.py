"""pytest fixtures: a running Kubernetes API for tests of drivers, controllers and schedulers.

`plimsoll_cluster` (one for each test) and `plimsoll_session_cluster` (one for all). pytest loads this module
in every run if Plimsoll is installed, so it imports nothing of Plimsoll until a test uses a fixture. See
docs/pytest.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from plimsoll.up.local_cluster import LocalCluster

_MARKER = (
    "plimsoll(controllers=True, scheduler=False, nodes=0, drivers=(), feature_gates='', data=None): "
    "settings of the plimsoll_cluster fixture"
)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARKER)


@pytest.fixture
def plimsoll_cluster(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """Provide a Kubernetes API for one test; `@pytest.mark.plimsoll(...)` configures it."""
    from plimsoll.up.local_cluster import LocalCluster  # noqa: PLC0415 - see the module's docstring

    marker = request.node.get_closest_marker("plimsoll")
    with LocalCluster(**(marker.kwargs if marker is not None else {})) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def plimsoll_session_cluster() -> Iterator[LocalCluster]:
    """Provide a Kubernetes API that all tests share; `new_namespace` isolates them."""
    from plimsoll.up.local_cluster import LocalCluster  # noqa: PLC0415 - as above

    with LocalCluster() as cluster:
        yield cluster
