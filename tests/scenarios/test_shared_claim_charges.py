"""Claims under AddPerClaim that several pods share (gate SharedClaimCharges), from scheduler to node."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll import LocalCluster
from plimsoll.tools.top.nodes import node_rows

DEVICES = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: cpus}
spec: {selectors: [{cel: {expression: device.driver == "cpu.example.com"}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: worker-cpus}
spec:
  driver: cpu.example.com
  nodeName: worker
  pool: {name: worker, generation: 1, resourceSliceCount: 1}
  devices:
  - name: four
    nodeAllocatableResourceMappings: {cpu: {allocationMultiplier: "4"}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: shared, namespace: default}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: cpus}}]}}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: default}}
spec:
  resourceClaims: [{{name: c, resourceClaimName: shared}}]
  containers:
  - {{name: main, image: app, resources: {{requests: {{cpu: "1"}}, claims: [{{name: c}}]}}}}
"""


def is_bound(pod: dict[str, Any]) -> bool:
    return bool(pod["spec"].get("nodeName"))


@pytest.mark.plimsoll(nodes=["worker"], scheduler=True, feature_gates="SharedClaimCharges=true")
def test_pods_share_a_claim_and_the_node_is_charged_once(plimsoll_cluster: LocalCluster) -> None:
    plimsoll_cluster.apply(DEVICES)
    for name in ("first", "second"):
        plimsoll_cluster.apply(POD.format(name=name))
        plimsoll_cluster.wait_for("pods", name, "default", is_bound)
    (row,) = node_rows(plimsoll_cluster.cluster_state())
    assert (row.row("cpu").requests, row.row("cpu").claims) == (2000, 4000)
    plimsoll_cluster.client.delete("pods", "first", "default")
    plimsoll_cluster.wait_for("pods", "first", "default", gone=True)
    (row,) = node_rows(plimsoll_cluster.cluster_state())
    assert (row.row("cpu").requests, row.row("cpu").claims) == (1000, 4000)


@pytest.mark.plimsoll(nodes=["worker"], scheduler=True)
def test_by_default_the_second_pod_waits(plimsoll_cluster: LocalCluster) -> None:
    plimsoll_cluster.apply(DEVICES, POD.format(name="first"))
    plimsoll_cluster.wait_for("pods", "first", "default", is_bound)
    plimsoll_cluster.apply(POD.format(name="second"))
    second = plimsoll_cluster.wait_for("pods", "second", "default", lambda pod: pod["status"]["conditions"])
    assert "used by another pod" in second["status"]["conditions"][0]["message"]
