"""LocalCluster: clients, applying, waiting, and cleanup."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from plimsoll.client import Endpoint
from plimsoll.client.endpoints import CONFIG_MAPS, PODS, RESOURCE_CLAIMS
from plimsoll.errors import ApiError, GateError, InputError
from plimsoll.up.local_cluster import LocalCluster
from tests.waiting import wait_until

MANIFEST = """
    apiVersion: v1
    kind: ConfigMap
    metadata: {name: a}
    data: {x: "1"}
    ---
    apiVersion: resource.k8s.io/v1
    kind: DeviceClass
    metadata: {name: cpu.example.com}
    spec: {}
    """


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as running:
        yield running


def test_the_blocking_client(cluster: LocalCluster) -> None:
    client, namespace = cluster.client, cluster.new_namespace()
    made = client.create(CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"x": "1"}}, namespace)
    assert client.get("configmaps", "a", namespace) == made
    patched = client.patch("ConfigMap", "a", {"data": {"x": "2"}}, namespace)
    changed = client.update("configmap", {**patched, "data": {"x": "3"}}, namespace)
    assert client.list("configmaps", namespace, fields="metadata.name=a") == [changed]
    since = made["metadata"]["resourceVersion"]
    watch = client.watch("configmaps", namespace, since=since)
    assert [next(watch)[1]["data"]["x"] for _ in range(2)] == ["2", "3"]
    watch.close()  # type: ignore[attr-defined]
    client.delete("configmaps", "a", namespace)
    wait_until(
        lambda: [kind for kind, _ in client.watch("configmaps", namespace, since=since, seconds=1)],
        lambda events: events == ["MODIFIED", "MODIFIED", "DELETED"],
    )
    with pytest.raises(ApiError) as caught:
        client.get("configmaps", "a", namespace)
    assert caught.value.code == 404
    assert client.call("GET", "/readyz").body == b"ok"


def test_kinds_by_all_their_names(cluster: LocalCluster) -> None:
    assert cluster.find("pods") == PODS
    for word in ("resourceclaims", "ResourceClaim", "resourceclaims.resource.k8s.io"):
        assert cluster.find(word) == RESOURCE_CLAIMS
    with pytest.raises(InputError, match="widgets: the cluster serves no such kind"):
        cluster.find("widgets")


def test_apply_and_delete(cluster: LocalCluster, tmp_path: Path) -> None:
    namespace = cluster.new_namespace()
    first, second = cluster.apply(MANIFEST, namespace=namespace)
    assert first["data"] == {"x": "1"}
    assert second["kind"] == "DeviceClass"
    (tmp_path / "more.yaml").write_text("{apiVersion: v1, kind: ConfigMap, metadata: {name: b}}")
    tree = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "2"}}
    cluster.apply(tmp_path, tree, namespace=namespace)
    found = {
        each["metadata"]["name"]: each.get("data") for each in cluster.client.list("configmaps", namespace)
    }
    assert found["a"] == {"x": "2"}
    assert "b" in found
    unnamed = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "g-"}}
    assert cluster.apply(unnamed, namespace=namespace)[0]["metadata"]["name"].startswith("g-")
    cluster.delete(MANIFEST, tmp_path, namespace=namespace)
    cluster.delete(MANIFEST, namespace=namespace)
    assert "a" not in {each["metadata"]["name"] for each in cluster.client.list("configmaps", namespace)}
    with pytest.raises(InputError, match=r"example\.com/v1 Widget: the cluster serves no such kind"):
        cluster.apply({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}})


def test_a_status_is_applied_too(cluster: LocalCluster) -> None:
    name = f"node-{cluster.new_namespace()}"
    status = {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "4"}}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}
    assert cluster.apply(node)[0]["status"]["allocatable"] == {"cpu": "4"}


def test_waiting(cluster: LocalCluster) -> None:
    namespace = cluster.new_namespace()

    def later() -> None:
        time.sleep(0.05)
        cluster.apply(MANIFEST, namespace=namespace)
        time.sleep(0.05)
        cluster.client.patch(CONFIG_MAPS, "a", {"data": {"y": "1"}}, namespace)
        time.sleep(0.05)
        cluster.client.delete(CONFIG_MAPS, "a", namespace)

    thread = threading.Thread(target=later)
    thread.start()
    assert cluster.wait_for("configmaps", "a", namespace)["data"]["x"] == "1"
    found = cluster.wait_for("configmaps", "a", namespace, lambda tree: tree["data"]["y"] == "1")
    assert found["data"] == {"x": "1", "y": "1"}
    assert cluster.wait_for(CONFIG_MAPS, "a", namespace, gone=True)["data"]["y"] == "1"
    thread.join()


def test_waiting_times_out(cluster: LocalCluster) -> None:
    namespace = cluster.new_namespace()
    with pytest.raises(
        AssertionError, match=r"ConfigMap .*/a does not exist after 0\.05 s; it never existed"
    ):
        cluster.wait_for("configmaps", "a", namespace, timeout=0.05)
    cluster.apply(MANIFEST, namespace=namespace)
    message = r"does not satisfy the condition after 1 s; last seen: .*'x': '1'"
    with pytest.raises(AssertionError, match=message):
        cluster.wait_for("configmaps", "a", namespace, lambda tree: tree["data"]["x"] == "2", timeout=1)
    with pytest.raises(AssertionError, match=r"still exists after 0\.05 s"):
        cluster.wait_for("configmaps", "a", namespace, gone=True, timeout=0.05)
    with pytest.raises(ValueError, match="mine"):
        cluster.wait_for("configmaps", "a", namespace, _raise)


def _raise(tree: object) -> bool:
    raise ValueError("mine")


def test_the_controllers_run(cluster: LocalCluster) -> None:
    """A claim is generated from a pod's template."""
    namespace = cluster.new_namespace()
    cluster.apply(
        """
        apiVersion: resource.k8s.io/v1
        kind: ResourceClaimTemplate
        metadata: {name: one}
        spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: cpu.example.com}}]}}}
        ---
        apiVersion: v1
        kind: Pod
        metadata: {name: p}
        spec:
          resourceClaims: [{name: cpus, resourceClaimTemplateName: one}]
          containers: [{name: main, image: example.org/main, resources: {claims: [{name: cpus}]}}]
        """,
        namespace=namespace,
    )
    pod = cluster.wait_for("pods", "p", namespace, lambda tree: bool(tree["status"]["resourceClaimStatuses"]))
    claim = pod["status"]["resourceClaimStatuses"][0]["resourceClaimName"]
    assert cluster.client.get("resourceclaims", claim, namespace)["metadata"]["ownerReferences"]


def test_over_http_with_another_event_loop(cluster: LocalCluster) -> None:
    async def scenario() -> None:
        async with cluster.connect() as client:
            listing = await client.list(Endpoint("", "v1", "namespaces", "Namespace", False))
            assert listing.items

    asyncio.run(scenario())
    assert cluster.url.startswith("https://127.0.0.1:")
    assert cluster.config.server == cluster.url
    assert cluster.kubeconfig.is_file()


def test_no_files_or_threads_remain(cluster: LocalCluster) -> None:
    before = {thread.name for thread in threading.enumerate()}
    with LocalCluster(controllers=False) as other:
        directory = other.kubeconfig.parent
        assert other.url != cluster.url
        other.apply(MANIFEST)
    assert not directory.exists()
    assert {thread.name for thread in threading.enumerate()} <= before | {"plimsoll-cluster"}
    with pytest.raises(AssertionError, match="not running"):
        _ = other.client


def test_data_survives_a_restart(tmp_path: Path) -> None:
    for attempt in (1, 2):
        with LocalCluster(data=tmp_path / "data", controllers=False) as cluster:
            if attempt == 1:
                cluster.apply(MANIFEST)
            assert cluster.client.get("configmaps", "a", "default")["data"] == {"x": "1"}


def test_a_cluster_that_cannot_start() -> None:
    with pytest.raises(GateError):
        LocalCluster(feature_gates="Nope=true")
    threads = threading.active_count()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        cluster = LocalCluster(port=taken.getsockname()[1])
        with pytest.raises((OSError, InputError)):
            cluster.start()
    assert threading.active_count() == threads
    cluster.stop()


def test_with_the_scheduler_pods_are_bound() -> None:
    line = {"cpu": "4", "memory": "1Gi", "pods": "10"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
    with LocalCluster(scheduler=True) as cluster:
        cluster.apply({**node, "status": {"allocatable": line, "capacity": line}})
        for name, scheduler in (("a", "default-scheduler"), ("b", "plimsoll")):
            container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "1"}}}
            spec = {"schedulerName": scheduler, "containers": [container]}
            cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
            cluster.wait_for("pods", name, condition=lambda pod: pod["spec"]["nodeName"] == "n1")
        assert cluster.ask(lambda scheduler: len(scheduler.context.snapshot)) == 1
    with LocalCluster() as cluster, pytest.raises(AssertionError, match="runs without a scheduler"):
        cluster.ask(lambda scheduler: scheduler.context)
