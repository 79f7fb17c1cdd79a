"""Fixtures: one browser and one set of dashboards for all tests, a new browser context for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from plimsoll.tools.dashboard import Dashboard
from plimsoll.up.local_cluster import LocalCluster
from tests.browser.chromium import Browser, Page, find_chromium
from tests.browser.clusters import hostile_cluster, sample_cluster
from tests.browser.dashboards import DashboardRunner
from tests.dumps import big_cluster, make_cluster_state


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    program = find_chromium()
    if program is None:
        pytest.skip("no Chromium: install it (tests/browser/install.sh does in CI) or name one with CHROMIUM")
    running = Browser(program)
    yield running
    running.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """Open a tab; problems in it fail the test unless the test removes them from `problems`."""
    opened = browser.page()
    yield opened
    problems = list(opened.problems)
    opened.close()
    assert problems == []


@pytest.fixture(scope="session")
def runner() -> Iterator[DashboardRunner]:
    running = DashboardRunner()
    yield running
    running.close()


@pytest.fixture(scope="session")
def dump(runner: DashboardRunner) -> Dashboard:
    """Dashboard of `sample_cluster` as a dump."""
    return runner.dump(make_cluster_state(sample_cluster()))


@pytest.fixture(scope="session")
def hostile_dump(runner: DashboardRunner) -> Dashboard:
    return runner.dump(make_cluster_state(hostile_cluster()))


@pytest.fixture(scope="session")
def big(runner: DashboardRunner) -> Dashboard:
    """Dashboard of five thousand nodes."""
    return runner.dump(make_cluster_state(big_cluster(5000, pods_per_node=2, devices=0)))


@pytest.fixture(scope="session")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(scheduler=True, nodes=3, drivers="gpus") as running:
        yield running


@pytest.fixture(scope="session")
def live(runner: DashboardRunner, cluster: LocalCluster) -> Dashboard:
    """Dashboard of a live cluster."""
    return runner.live(cluster.config)
