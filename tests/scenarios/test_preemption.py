"""Preemption over HTTP frees the devices of victims and the node resources their claims charge."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.scenarios.ledger_cluster import LedgerCluster, container, exactly, socket


@pytest.fixture
def cluster() -> Iterator[LedgerCluster]:
    with LedgerCluster() as running:
        assert isinstance(running, LedgerCluster)
        running.client.create("priorityclasses", {"metadata": {"name": "high"}, "value": 1000})
        running.device_class("class")
        yield running


def gone(cluster: LedgerCluster, name: str) -> None:
    cluster.wait_for("pods", name, gone=True)


def test_the_only_device_is_allocated_to_the_higher_priority_pod(cluster: LedgerCluster) -> None:
    """Upstream leaves the victim's claim allocated in its dry run, and so never preempts for a device."""
    cluster.node("node1", cpu="8", memory="8Gi")
    cluster.slice("s", "node1", devices=[{"name": "gpu0"}])
    cluster.template("one", exactly("r", "class"))
    cluster.pod("low", [container("a", "c")], {"c": ":one"})
    cluster.bound("low")
    cluster.pod("high", [container("a", "c")], {"c": ":one"}, priorityClassName="high")
    gone(cluster, "low")
    assert cluster.bound("high") == ("node1", [])
    cluster.assert_requested("node1")


def test_capacity_charged_by_a_claim_is_freed_with_its_pod(cluster: LedgerCluster) -> None:
    cluster.node("node1", cpu="8", memory="8Gi")
    cluster.slice("s", "node1", devices=[socket("socket0", cpu="8")])
    cluster.template("six", exactly("r", "class", capacity={"cpu": "6"}))
    cluster.pod("low", [container("a", "c")], {"c": ":six"})
    cluster.pod("small", [container("a", cpu="2")], {})
    cluster.bound("low")
    cluster.bound("small")
    cluster.assert_requested("node1", cpu="8")
    cluster.pod("high", [container("a", cpu="5")], {}, priorityClassName="high")
    gone(cluster, "low")
    cluster.bound("high")
    cluster.assert_requested("node1", cpu="7")  # the small one may stay


def test_no_victims_where_preemption_does_not_help(cluster: LedgerCluster) -> None:
    cluster.node("node1", cpu="8", memory="8Gi")
    cluster.slice("s", "node1", devices=[socket("socket0", cpu="8")])
    cluster.template("nine", exactly("r", "class", capacity={"cpu": "9"}))
    cluster.pod("low", [container("a", cpu="2")], {})
    cluster.bound("low")
    cluster.pod("high", [container("a", "c")], {"c": ":nine"}, priorityClassName="high")
    assert "cannot allocate all claims" in cluster.refused("high")
    cluster.assert_requested("node1", cpu="2")
