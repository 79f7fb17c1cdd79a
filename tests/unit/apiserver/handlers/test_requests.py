"""Details of requests: timeouts, namespaces of cluster-scoped objects, reviews as tables, propagation."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import patch

import pytest

from plimsoll.apiserver.handlers.options import parse_timeout
from plimsoll.apiserver.handlers.request_body import CONTAINER_BYTES
from plimsoll.apiserver.request import ApiRequest
from plimsoll.errors import ApiError
from tests.coroutines import run_by
from tests.unit.apiserver.build import ADMIN, MAPS, PODS, ApiHarness, config_map, pod, run

TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
REVIEW = {"spec": {"nonResourceAttributes": {"verb": "get", "path": "/x"}}}
CONTAINERS = [{"name": "c", "image": "i"}]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("", None), ("0", None), ("-5s", None), ("5s", 5.0), ("1h1m1.5s", 3661.5), (".5s", 0.5), ("1us", 1e-6)],
)
def test_timeouts(text: str, seconds: float | None) -> None:
    assert parse_timeout(text) == seconds


@pytest.mark.parametrize("text", ["abc", "100", "5x", ".s", "5s5", "99999999999h"])
def test_invalid_timeouts(text: str) -> None:
    with pytest.raises(ApiError) as caught:
        parse_timeout(text)
    assert caught.value.code == 400
    assert caught.value.message.startswith("invalid timeout specified in the request URL - time: ")


@run_by(run)
async def test_every_request_but_a_watch_checks_its_timeout(harness: ApiHarness) -> None:
    query = [("timeout", "abc")]
    for path in (MAPS, "/healthz", "/api"):
        assert (await harness.request("GET", path, query=query))[0] == 400
        assert (await harness.request("GET", path, query=[("timeout", "32s")]))[0] == 200
    assert (await harness.request("POST", MAPS, config_map(), query=query))[0] == 400
    watches = [("watch", "1"), *query]
    answer = await harness.api.handle(ApiRequest("GET", MAPS, ADMIN, watches))
    assert answer.status == 200


@run_by(run)
async def test_the_namespace_of_a_cluster_scoped_object_is_cleared(harness: ApiHarness) -> None:
    nodes = "/api/v1/nodes"
    code, made = await harness.request("POST", nodes, {"metadata": {"name": "n", "namespace": "x"}})
    assert code == 201
    assert "namespace" not in made["metadata"]
    made["metadata"] |= {"namespace": "y", "labels": {"a": "b"}}
    code, made = await harness.request("PUT", f"{nodes}/n", made)
    assert (code, made["metadata"].get("namespace")) == (200, None)
    code, _ = await harness.request("POST", MAPS, config_map(namespace="other"))
    assert code == 400


@run_by(run)
async def test_reviews_cannot_be_tables(harness: ApiHarness) -> None:
    code, status = await harness.request("POST", REVIEWS, REVIEW, accept=TABLE)
    assert (code, status["reason"]) == (406, "NotAcceptable")
    code, made = await harness.request("POST", REVIEWS, REVIEW, accept=f"{TABLE},application/json")
    assert (code, made["kind"]) == (201, "SelfSubjectAccessReview")
    partial = TABLE.replace("Table", "PartialObjectMetadata")
    code, made = await harness.request("POST", REVIEWS, REVIEW, accept=partial)
    assert (code, made["kind"]) == (201, "PartialObjectMetadata")


def _controller(kind: str, **spec: Any) -> dict[str, Any]:
    pods = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": CONTAINERS, **spec}}
    return {"kind": kind, "metadata": {"name": "x"}, "spec": {"template": pods}}


@pytest.mark.parametrize(
    ("path", "tree"),
    [
        ("/api/v1/namespaces/default/replicationcontrollers", _controller("ReplicationController")),
        ("/apis/batch/v1/namespaces/default/jobs", _controller("Job", restartPolicy="Never")),
    ],
)
@pytest.mark.parametrize(
    ("policy", "finalizers"), [("", ["orphan"]), ("Background", None), ("Foreground", ["foregroundDeletion"])]
)
@run_by(run)
async def test_some_kinds_orphan_their_dependents(
    harness: ApiHarness, *, path: str, tree: dict[str, Any], policy: str, finalizers: list[str] | None
) -> None:
    await harness.request("POST", path, tree)
    query = [("propagationPolicy", policy)] if policy else []
    answer = await harness.api.handle(ApiRequest("DELETE", f"{path}/x", ADMIN, query))
    assert answer.status == 200
    assert ("child pods are preserved" in answer.headers.get("Warning", "")) == (
        not policy and "jobs" in path
    )
    code, left = await harness.request("GET", f"{path}/x")
    assert (code, left["metadata"].get("finalizers")) == (404 if finalizers is None else 200, finalizers)


@run_by(run)
async def test_other_kinds_delete_their_dependents(harness: ApiHarness) -> None:
    path = "/apis/apps/v1/namespaces/default/replicasets"
    tree = _controller("ReplicaSet")
    tree["spec"]["selector"] = {"matchLabels": {"a": "b"}}
    assert (await harness.request("POST", path, tree))[0] == 201
    await harness.request("DELETE", f"{path}/x")
    assert (await harness.request("GET", f"{path}/x"))[0] == 404


@run_by(run)
async def test_a_pod_of_too_many_containers_is_refused_before_they_are_looked_at(harness: ApiHarness) -> None:
    with patch("plimsoll.apiserver.handlers.request_body.check_fields") as looked_at:
        for containers in ([None] * 12_000, [{"name": "c"}] * 12_000):
            code, answer = await harness.request("POST", PODS, pod(containers=containers))
            assert (code, "12000 containers take" in answer["message"]) == (413, True)
    assert not looked_at.called


@run_by(run)
async def test_every_pod_with_too_many_containers_would_be_too_large(harness: ApiHarness) -> None:
    sizes = []
    for count in (1, 101):
        containers = [{"name": f"{number}", "image": "i"} for number in range(count)]
        code, created = await harness.request("POST", PODS, pod(f"p{count}", containers=containers))
        assert code == 201
        sizes.append(len(json.dumps(created, separators=(",", ":"))))
    assert (sizes[1] - sizes[0]) / 100 > CONTAINER_BYTES
