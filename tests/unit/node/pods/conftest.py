"""Fixtures: one cluster for all tests of pod workers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from plimsoll.up.local_cluster import LocalCluster


@pytest.fixture(scope="package")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(controllers=False) as running:
        yield running
