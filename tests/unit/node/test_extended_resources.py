"""Pods whose extended resources devices serve, from the API to their containers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from plimsoll.up.local_cluster import LocalCluster
from tests.waiting import wait_until

GPU = "example.com/gpu"
IMPLICIT = "deviceclass.resource.kubernetes.io/gpu.example.com"


def container(name: str, resource: str = GPU, count: int = 1) -> dict[str, Any]:
    amounts = {resource: str(count)} if count else {}
    return {"name": name, "image": "x", "resources": {"requests": {"cpu": "1", **amounts}, "limits": amounts}}


def pod(name: str, *containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": list(containers), **spec},
    }


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(nodes=1, scheduler=True, drivers=["gpus"]) as running:
        yield running


def is_running(tree: dict[str, Any]) -> bool:
    return bool(tree["status"]["phase"] == "Running")


def run_pod(cluster: LocalCluster, namespace: str, tree: dict[str, Any]) -> dict[str, Any]:
    cluster.apply(tree, namespace=namespace)
    return cluster.wait_for("pods", tree["metadata"]["name"], namespace, is_running)


def delete_pod(cluster: LocalCluster, namespace: str, name: str) -> None:
    cluster.client.delete("pods", name, namespace)
    cluster.wait_for("pods", name, namespace, gone=True)
    wait_until(lambda: not cluster.client.list("resourceclaims", namespace))


def cdi_devices(cluster: LocalCluster, uid: str) -> dict[str, tuple[str, ...]]:
    """Return the CDI devices of each container of a pod."""

    def read(agent: Any) -> dict[str, tuple[str, ...]]:
        pod = next(each for each in agent.admission_handler.pods() if each.metadata.uid == uid)
        return {
            each.name: agent.components.claim_cache.cdi_ids(pod, each)
            for each in (*pod.spec.init_containers, *pod.spec.containers)
        }

    return cluster.ask_node("node-0", read)


@pytest.mark.parametrize("resource", [GPU, IMPLICIT])
def test_a_pod_is_admitted_and_its_container_has_the_devices(cluster: LocalCluster, resource: str) -> None:
    namespace = cluster.new_namespace()
    running = run_pod(
        cluster, namespace, pod("p", container("main", resource, 2), container("other", count=0))
    )
    (claim,) = cluster.client.list("resourceclaims", namespace)
    status = running["status"]["extendedResourceClaimStatus"]
    assert status["resourceClaimName"] == claim["metadata"]["name"]
    devices = cdi_devices(cluster, running["metadata"]["uid"])
    assert len(devices["main"]) == 2
    assert devices["other"] == ()
    delete_pod(cluster, namespace, "p")


def test_each_container_has_its_own_devices(cluster: LocalCluster) -> None:
    namespace = cluster.new_namespace()
    side = {**container("side"), "restartPolicy": "Always"}
    tree = pod("p", container("main"), initContainers=[side])
    running = run_pod(cluster, namespace, tree)
    devices = cdi_devices(cluster, running["metadata"]["uid"])
    assert len(devices["main"]) == len(devices["side"]) == 1
    assert devices["main"] != devices["side"]
    delete_pod(cluster, namespace, "p")


def test_the_next_pod_gets_the_devices_of_one_that_ended(cluster: LocalCluster) -> None:
    namespace = cluster.new_namespace()
    run_pod(cluster, namespace, pod("first", container("main", count=2)))
    cluster.apply(pod("second", container("main", count=2)), namespace=namespace)

    def is_refused(tree: dict[str, Any]) -> bool:
        return any("cannot allocate" in c.get("message", "") for c in tree["status"].get("conditions", ()))

    cluster.wait_for("pods", "second", namespace, is_refused)
    cluster.client.delete("pods", "first", namespace)
    cluster.wait_for("pods", "second", namespace, is_running)
    delete_pod(cluster, namespace, "second")
