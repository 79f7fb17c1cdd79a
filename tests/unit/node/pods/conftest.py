"""A cluster for all scenarios about pods."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from plimsoll.up.local_cluster import LocalCluster


@pytest.fixture(scope="package")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(controllers=False) as running:
        yield running
