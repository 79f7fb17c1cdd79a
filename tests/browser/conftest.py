"""One browser and one set of dashboards for all tests of a worker; a new tab for every test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from plimsoll.tools.dashboard import Dashboard
from plimsoll.up.local_cluster import LocalCluster
from tests.browser.chromium import Browser, Page, find_chromium
from tests.browser.served import Served
from tests.browser.world import hostile, story
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
    """A tab; anything that goes wrong in it fails the test, unless the test has taken it from `problems`."""
    opened = browser.page()
    yield opened
    problems = list(opened.problems)
    opened.close()
    assert problems == []


@pytest.fixture(scope="session")
def served() -> Iterator[Served]:
    running = Served()
    yield running
    running.close()


@pytest.fixture(scope="session")
def dump(served: Served) -> Dashboard:
    """The cluster of `world.story`, as a dump."""
    return served.dump(make_cluster_state(story()))


@pytest.fixture(scope="session")
def hostile_dump(served: Served) -> Dashboard:
    return served.dump(make_cluster_state(hostile()))


@pytest.fixture(scope="session")
def big(served: Served) -> Dashboard:
    """Five thousand nodes."""
    return served.dump(make_cluster_state(big_cluster(5000, pods_per_node=2, devices=0)))


@pytest.fixture(scope="session")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(scheduler=True, nodes=3, drivers="gpus") as running:
        yield running


@pytest.fixture(scope="session")
def live(served: Served, cluster: LocalCluster) -> Dashboard:
    """A cluster that is followed."""
    return served.live(cluster.config)
