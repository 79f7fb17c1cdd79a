"""A thousand nodes in one process."""

from __future__ import annotations

import pytest

from plimsoll.up.local_cluster import LocalCluster
from tests.waiting import DEADLINE, wait_until

NODES = 1000


@pytest.mark.slow
def test_a_thousand_nodes() -> None:
    with LocalCluster(nodes=NODES, scheduler=True) as cluster:
        nodes = cluster.client.list("nodes")
        assert len(nodes) == NODES
        assert all(
            (c["type"], c["status"]) != ("Ready", "False")
            for node in nodes
            for c in node["status"]["conditions"]
        )
        for number in range(200):
            container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}
            cluster.client.create(
                "pods", {"metadata": {"name": f"p{number}"}, "spec": {"containers": [container]}}, "default"
            )
        for number in range(200):
            cluster.wait_for(
                "pods",
                f"p{number}",
                condition=lambda pod: bool(pod["status"]["phase"] == "Running"),
                timeout=DEADLINE,
            )
        agents = [cluster.agent(f"node-{number}") for number in range(NODES)]
        wait_until(lambda: all(agent.status_reporter.renewals >= 2 for agent in agents))
        assert sum(agent.status_reporter.failures for agent in agents) == 0
        assert sum(len(agent.admission_handler) for agent in agents) == 200
