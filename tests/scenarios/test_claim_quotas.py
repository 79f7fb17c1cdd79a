"""Quotas that count what claims charge: pods, claims and quotas of a running cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from plimsoll.errors import ApiError
from plimsoll.up.local_cluster import LocalCluster
from tests.waiting import wait_until

NODE = "node-0"
OBJECTS = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: cpus}
spec: {}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: cpus}
spec:
  driver: cpu.example.com
  nodeName: node-0
  pool: {name: node-0, generation: 1, resourceSliceCount: 1}
  devices:
  - name: a
    nodeAllocatableResourceMappings: {cpu: {allocationMultiplier: "2"}, memory: {allocationMultiplier: 1Gi}}
  - name: b
    nodeAllocatableResourceMappings: {cpu: {allocationMultiplier: "2"}, memory: {allocationMultiplier: 1Gi}}
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    gates = "DRANodeAllocatableResourcesQuota=true,DRANodeAllocatableResourcesQoS=true"
    with LocalCluster(scheduler=True, nodes=1, feature_gates=gates) as running:
        running.apply(OBJECTS)
        yield running


def quota(cluster: LocalCluster, namespace: str, **hard: str) -> None:
    limits = {name.replace("_", "."): amount for name, amount in hard.items()}
    tree = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": limits}}
    cluster.apply(tree, namespace=namespace)
    wait_until(lambda: used(cluster, namespace))


def used(cluster: LocalCluster, namespace: str) -> dict[str, str]:
    status = cluster.client.get("resourcequotas", "q", namespace).get("status", {})
    found: dict[str, str] = status.get("used", {})
    return found


def claim(cluster: LocalCluster, namespace: str, name: str) -> None:
    requests = [{"name": "r", "exactly": {"deviceClassName": "cpus"}}]
    tree = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": requests}},
    }
    cluster.apply(tree, namespace=namespace)


def run(cluster: LocalCluster, namespace: str, name: str, claimed: str, cpu: str = "1") -> None:
    resources: dict[str, Any] = {"requests": {"cpu": cpu, "memory": "0"}, "claims": [{"name": "c"}]}
    spec = {
        "containers": [{"name": "c", "image": "pause", "resources": resources}],
        "resourceClaims": [{"name": "c", "resourceClaimName": claimed}],
    }
    tree = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    cluster.client.create("pods", tree, namespace)


def pod(cluster: LocalCluster, namespace: str, name: str) -> Any:
    return cluster.client.get("pods", name, namespace)


def is_bound(cluster: LocalCluster, namespace: str, name: str) -> bool:
    return bool(pod(cluster, namespace, name)["spec"].get("nodeName"))


def pending_message(cluster: LocalCluster, namespace: str, name: str) -> str:
    conditions = pod(cluster, namespace, name)["status"].get("conditions", [])
    return next((str(c.get("message", "")) for c in conditions if c["type"] == "PodScheduled"), "")


def remove(cluster: LocalCluster, namespace: str, name: str) -> None:
    cluster.client.delete("pods", name, namespace, grace=0)
    wait_until(lambda: all(p["metadata"]["name"] != name for p in cluster.client.list("pods", namespace)))


def test_charges_count_and_a_pod_beyond_the_quota_stays_pending(cluster: LocalCluster) -> None:
    namespace = cluster.new_namespace()
    quota(cluster, namespace, requests_cpu="5", requests_memory="4Gi", pods="9")
    for name in ("one", "two"):
        claim(cluster, namespace, name)
    run(cluster, namespace, "first", "one")
    wait_until(lambda: is_bound(cluster, namespace, "first"))
    wait_until(lambda: used(cluster, namespace).get("requests.cpu") == "3")
    assert used(cluster, namespace)["requests.memory"] == "1Gi"
    assert pod(cluster, namespace, "first")["status"]["qosClass"] == "Burstable"

    run(cluster, namespace, "second", "two")  # 4 of 5 by its spec, 6 with its claim
    wait_until(lambda: "exceeded quota: q" in pending_message(cluster, namespace, "second"))
    assert "requested: requests.cpu=2, used: requests.cpu=4, limited: requests.cpu=5" in pending_message(
        cluster, namespace, "second"
    )
    assert not is_bound(cluster, namespace, "second")

    remove(cluster, namespace, "first")
    wait_until(lambda: is_bound(cluster, namespace, "second"))
    wait_until(lambda: used(cluster, namespace)["requests.cpu"] == "3")
    remove(cluster, namespace, "second")
    wait_until(lambda: used(cluster, namespace)["requests.cpu"] == "0")


def test_a_pod_whose_claim_is_allocated_is_refused_at_creation(cluster: LocalCluster) -> None:
    namespace = cluster.new_namespace()
    claim(cluster, namespace, "one")
    run(cluster, namespace, "first", "one")
    wait_until(lambda: is_bound(cluster, namespace, "first"))
    quota(cluster, namespace, requests_cpu="5")
    with pytest.raises(ApiError) as caught:
        run(cluster, namespace, "again", "one")
    text = "exceeded quota: q, requested: requests.cpu=3, used: requests.cpu=3, limited: requests.cpu=5"
    assert text in str(caught.value)
    run(cluster, namespace, "other", "missing")  # nothing is known about its claim
    remove(cluster, namespace, "first")
    remove(cluster, namespace, "other")


def test_claims_do_not_count_without_the_gate() -> None:
    with LocalCluster(scheduler=True, nodes=1) as cluster:
        cluster.apply(OBJECTS)
        namespace = cluster.new_namespace()
        quota(cluster, namespace, requests_cpu="2")
        for name in ("one", "two"):
            claim(cluster, namespace, name)
            run(cluster, namespace, name, name)
        wait_until(lambda: all(is_bound(cluster, namespace, name) for name in ("one", "two")))
        assert used(cluster, namespace) == {"requests.cpu": "2"}
