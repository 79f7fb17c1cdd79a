"""In-place resize of a running pod with claim charges, with default settings."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll import LocalCluster
from plimsoll.tools.top.nodes import node_rows

DRIVER = """
kind: FakeDrivers
drivers:
- name: gpu.example.com
  devices: [{name: gpu, nodeResources: {cpu: 500m}}]
  classes: [{name: gpu.example.com}]
"""
POD = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: gpu, namespace: default}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu.example.com}}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: train, namespace: default}
spec:
  resourceClaims: [{name: gpu, resourceClaimName: gpu}]
  containers:
  - name: main
    image: app
    resources: {requests: {cpu: "1", memory: 64Mi}, claims: [{name: gpu}]}
"""


def runs(pod: dict[str, Any]) -> bool:
    return bool(pod["status"]["phase"] == "Running")


def is_infeasible(pod: dict[str, Any]) -> bool:
    return any(each.get("reason") == "Infeasible" for each in pod["status"]["conditions"])


def resize(cluster: LocalCluster, cpu: str) -> None:
    spec = {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]}
    cluster.client.patch("pods", "train", {"spec": spec}, "default", subresource="resize", type="strategic")


@pytest.mark.plimsoll(nodes=["worker"], scheduler=True, drivers=DRIVER)
def test_a_pod_with_claim_charges_is_resized(plimsoll_cluster: LocalCluster) -> None:
    plimsoll_cluster.apply(POD)
    pod = plimsoll_cluster.wait_for("pods", "train", "default", runs)
    assert pod["status"]["nodeAllocatableResourceClaimStatuses"]
    (row,) = node_rows(plimsoll_cluster.cluster_state())
    claims = row.row("cpu").claims
    assert claims, "the device charges CPU"
    resize(plimsoll_cluster, "2")
    plimsoll_cluster.wait_for(
        "pods",
        "train",
        "default",
        lambda pod: pod["status"]["containerStatuses"][0]["allocatedResources"]["cpu"] == "2",
    )
    (row,) = node_rows(plimsoll_cluster.cluster_state())
    assert (row.row("cpu").requests, row.row("cpu").claims) == (2000, claims)
    resize(plimsoll_cluster, "100")
    pod = plimsoll_cluster.wait_for("pods", "train", "default", is_infeasible)
    assert pod["status"]["containerStatuses"][0]["allocatedResources"]["cpu"] == "2"
