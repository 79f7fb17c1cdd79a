"""Metrics of nodes and pods: simulated ones, those of kubelets, and those that are not available."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from plimsoll.apiserver.auth.users import User
from plimsoll.apiserver.kubelet.location import KubeletLocation
from plimsoll.apiserver.resource_metrics.summaries import parse_summary
from plimsoll.apiserver.status import service_unavailable
from tests.coroutines import run_by
from tests.unit.apiserver.build import ApiHarness, pod, run

BASE = "/apis/metrics.k8s.io/v1beta1"
MERGE = "application/merge-patch+json"


class FakeKubelets:
    """Kubelets that answer with one summary each, or not at all."""

    def __init__(self, **summaries: Any) -> None:
        self.summaries = summaries
        self.asked: list[str] = []

    async def read(self, location: KubeletLocation) -> AsyncGenerator[bytes, None]:
        self.asked.append(location.target)
        if location.node not in self.summaries:
            raise service_unavailable("connection refused")
        return _chunks(json.dumps(self.summaries[location.node]).encode())


async def _chunks(body: bytes) -> AsyncGenerator[bytes, None]:
    yield body[:10]
    yield body[10:]


def usage(cpu: int, memory: int) -> dict[str, Any]:
    return {"cpu": {"usageNanoCores": cpu}, "memory": {"workingSetBytes": memory}}


async def add_node(harness: ApiHarness, name: str, runtime: str, port: int = 0) -> None:
    tree = {"kind": "Node", "metadata": {"name": name, "labels": {"name": name}}}
    await harness.request("POST", "/api/v1/nodes", tree)
    status: dict[str, Any] = {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}]}
    if port:
        status["daemonEndpoints"] = {"kubeletEndpoint": {"Port": port}}
    status["nodeInfo"] = {"containerRuntimeVersion": runtime}
    code, body = await harness.request(
        "PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, content_type=MERGE
    )
    assert code == 200, body


async def add_pod(harness: ApiHarness, name: str, node: str, phase: str = "Running", **meta: Any) -> Any:
    tree = pod(nodeName=node)
    tree["metadata"] = {"name": name, **meta}
    tree["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "250m", "memory": "64Mi"}}
    code, made = await harness.request("POST", "/api/v1/namespaces/default/pods", tree)
    assert code == 201, made
    container = tree["spec"]["containers"][0]["name"]
    state = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    own = {"name": container, "ready": True, "restartCount": 0, "image": "i", "imageID": "", "state": state}
    status = {"status": {"phase": phase, "containerStatuses": [own]}}
    path = f"/api/v1/namespaces/default/pods/{name}/status"
    code, body = await harness.request("PATCH", path, status, content_type=MERGE)
    assert code == 200, body
    return made


@run_by(run)
async def test_simulated_pods_use_what_they_request_or_what_annotations_specify(harness: ApiHarness) -> None:
    await add_node(harness, "sim", "none://1")
    await add_pod(harness, "plain", "sim")
    annotations = {"plimsoll.dev/usage-cpu": "2", "usage-memory.plimsoll.dev/c": "1Gi"}
    await add_pod(harness, "given", "sim", annotations=annotations, labels={"app": "x"})
    await add_pod(harness, "done", "sim", "Succeeded")
    code, listed = await harness.request("GET", f"{BASE}/pods")
    assert (code, listed["kind"]) == (200, "PodMetricsList")
    found = {item["metadata"]["name"]: item["containers"] for item in listed["items"]}
    assert found == {
        "plain": [{"name": "c", "usage": {"cpu": "250m", "memory": "64Mi"}}],
        "given": [{"name": "c", "usage": {"cpu": "2", "memory": "1Gi"}}],
    }
    _, node = await harness.request("GET", f"{BASE}/nodes/sim")
    assert (node["kind"], node["usage"]) == ("NodeMetrics", {"cpu": "2250m", "memory": "1088Mi"})
    for query in ([("labelSelector", "app=x")], [("fieldSelector", "metadata.name=given")]):
        _, some = await harness.request("GET", f"{BASE}/namespaces/default/pods", query=query)
        assert [item["metadata"]["name"] for item in some["items"]] == ["given"]
    assert (await harness.request("GET", f"{BASE}/namespaces/other/pods"))[1]["items"] == []


@run_by(run)
async def test_kubelets_are_asked_once_and_one_that_does_not_answer_has_no_metrics(
    harness: ApiHarness,
) -> None:
    await add_node(harness, "up", "process://1", 10250)
    await add_node(harness, "down", "process://1", 10250)
    await add_node(harness, "alone", "process://1")
    made = await add_pod(harness, "here", "up")
    await add_pod(harness, "there", "down")
    inside = {"podRef": {"uid": made["metadata"]["uid"]}, "containers": [{"name": "c", **usage(5, 2048)}]}
    kubelets = FakeKubelets(up={"node": usage(1_500_000_000, 4 << 20), "pods": [inside]})
    harness.api.pod_streams.kubelets = kubelets  # type: ignore[assignment]
    _, nodes = await harness.request("GET", f"{BASE}/nodes")
    assert [(item["metadata"]["name"], item["usage"]) for item in nodes["items"]] == [
        ("up", {"cpu": "1500000000n", "memory": "4096Ki"})
    ]
    _, pods = await harness.request("GET", f"{BASE}/pods")
    (only,) = pods["items"]
    assert only["containers"] == [{"name": "c", "usage": {"cpu": "5n", "memory": "2Ki"}}]
    assert kubelets.asked.count("/stats/summary?only_cpu_and_memory=true") == 2
    for path, name in (
        ("nodes/down", 'nodemetrics.metrics.k8s.io "down" not found'),
        ("namespaces/default/pods/there", 'podmetrics.metrics.k8s.io "default/there" not found'),
        ("namespaces/default/pods/none", 'podmetrics.metrics.k8s.io "default/none" not found'),
    ):
        code, body = await harness.request("GET", f"{BASE}/{path}")
        assert (code, body["message"]) == (404, name)


@pytest.mark.parametrize(("method", "code"), [("POST", 405), ("DELETE", 405), ("GET", 403)])
@run_by(run)
async def test_metrics_are_read_only_and_need_a_right(harness: ApiHarness, *, method: str, code: int) -> None:
    user = {"user": User("bob")} if method == "GET" else {}
    assert (await harness.request(method, f"{BASE}/nodes", {}, **user))[0] == code  # type: ignore[arg-type]


def test_incomplete_summaries() -> None:
    assert parse_summary({}) is None
    assert parse_summary({"node": {"cpu": {"usageNanoCores": 1}}}) is None
    whole = {"node": usage(0, 1024), "pods": [{"podRef": {"uid": "u"}, "containers": [{"name": "c"}]}]}
    found = parse_summary(whole)
    assert found is not None
    assert (found.node, found.pods) == ({"cpu": "0", "memory": "1Ki"}, {"u": {}})
