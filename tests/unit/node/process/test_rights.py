"""Permissions of a node: sufficient for its agent, and nothing of other nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from plimsoll.apiserver.auth.users import node_user
from plimsoll.client.blocking import BlockingClient
from plimsoll.errors import ApiError
from plimsoll.up.local_cluster import LocalCluster
from tests.manifests import DRIVER, claim, pod, resource_slice

SLICES, CLAIMS, EVENTS = "resourceslices", "resourceclaims", "events"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(nodes=["mine", "other"]) as running:
        for node in ("mine", "other"):
            name = f"of-{node}"
            claims = [{"name": name, "resourceClaimName": name}]
            user = pod(f"on-{node}", node=node, resourceClaims=claims)
            running.apply(resource_slice(f"{node}-{DRIVER}", node), claim(name), user)
        yield running


@pytest.fixture(scope="module")
def node(cluster: LocalCluster) -> BlockingClient:
    """Return the client of the node `mine`."""
    server, loop = cluster.server, cluster.loop
    assert loop is not None
    return BlockingClient(server.client(node_user("mine")), loop, cluster.find)


def refused(call: Any) -> bool:
    with pytest.raises(ApiError) as caught:
        call()
    return caught.value.code == 403


def test_a_node_reads_claims_of_its_own_pods_only(node: BlockingClient) -> None:
    assert node.get(CLAIMS, "of-mine", "default")["metadata"]["name"] == "of-mine"
    assert refused(lambda: node.get(CLAIMS, "of-other", "default"))


def test_a_node_writes_its_own_slices_only(cluster: LocalCluster, node: BlockingClient) -> None:
    assert len(node.list(SLICES, fields="spec.nodeName=mine")) == 1
    assert refused(lambda: node.list(SLICES))
    path = "/apis/resource.k8s.io/v1/resourceslices"
    selector = "spec.driver=gpu.example.com,spec.nodeName="
    assert refused(lambda: node.call("DELETE", path, query=[("fieldSelector", f"{selector}other")]))
    node.call("DELETE", path, query=[("fieldSelector", f"{selector}mine")])
    assert [one["spec"]["nodeName"] for one in cluster.client.list(SLICES)] == ["other"]


def test_a_node_updates_and_deletes_its_own_pods_only(cluster: LocalCluster, node: BlockingClient) -> None:
    patch = {"status": {"message": "hello"}}
    assert (
        node.patch("pods", "on-mine", patch, "default", subresource="status")["status"]["message"] == "hello"
    )
    assert refused(lambda: node.patch("pods", "on-other", patch, "default", subresource="status"))
    assert refused(lambda: node.delete("pods", "on-other", "default", grace=0))
    assert refused(lambda: node.list("pods"))
    assert [p["metadata"]["name"] for p in node.list("pods", fields="spec.nodeName=mine")] == ["on-mine"]
    node.delete("pods", "on-mine", "default", grace=0)
    cluster.wait_for("pods", "on-mine", gone=True)


def test_a_node_writes_events_and_its_own_node_only(node: BlockingClient) -> None:
    event = {
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Node", "name": "mine", "apiVersion": "v1", "namespace": ""},
        "reason": "R",
        "message": "m",
        "type": "Normal",
    }
    node.create(EVENTS, event, "default")
    node.patch(EVENTS, "e", {"count": 2}, "default")
    assert refused(lambda: node.patch("nodes", "other", {"metadata": {"labels": {"a": "b"}}}))
    assert refused(
        lambda: node.patch("nodes", "mine", {"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}})
    )
    assert refused(lambda: node.delete("nodes", "mine"))
    assert refused(lambda: node.get("leases", "other", "kube-node-lease"))
