"""Requests whose responses our server and kube-apiserver must agree on, by subject.

Each subject is a sequence: later requests see the objects of earlier ones, and the last ones clean up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

JSON = "application/json"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
PARTIAL = f"{JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
PARTIAL_LIST = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
TABLE = f"{JSON};as=Table;g=meta.k8s.io;v=v1"
DEFAULT = "/api/v1/namespaces/default"
MAPS = f"{DEFAULT}/configmaps"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
RULES = "/apis/resource.k8s.io/v1beta2/devicetaintrules"
POOL_REQUESTS = "/apis/resource.k8s.io/v1alpha3/resourcepoolstatusrequests"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
INITIAL = "sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
WATCH_LIST = f"{MAPS}?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Dx&{INITIAL}"
PROTOBUF_TABLE = TABLE.replace(JSON, "application/vnd.kubernetes.protobuf")


class Case(NamedTuple):
    """One request."""

    method: str
    path: str
    body: Any = None
    accept: str = JSON
    media: str = JSON


def _get(path: str, accept: str = JSON) -> Case:
    return Case("GET", path, None, accept)


def _delete(path: str) -> Case:
    return Case("DELETE", path)


def _map(name: str, **metadata: Any) -> dict[str, Any]:
    head = {"apiVersion": "v1", "kind": "ConfigMap"}
    return {**head, "metadata": {"name": name, **metadata}, "data": {"a": "b"}}


def _new(path: str, name: str, spec: Any = None) -> list[Case]:
    """Create an object and delete it."""
    tree = {"metadata": {"name": name}}
    made = tree if spec is None else {**tree, "spec": spec}
    return [Case("POST", path, made), _delete(f"{path}/{name}")]


_CONTAINERS = [{"name": "c", "image": "i"}]
_TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": _CONTAINERS}}
_WORKLOAD = {"selector": {"matchLabels": {"a": "b"}}, "template": _TEMPLATE, "replicas": 0}
_REQUESTS = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}}
_ALLOCATION = [{"op": "add", "path": "/status/allocation", "value": {"devices": {}}}]
_REVIEW = {"spec": {"nonResourceAttributes": {"verb": "get", "path": "/x"}}}
_BACKEND = {"defaultBackend": {"service": {"name": "x", "port": {"number": 1}}}}


def _status(status: Any) -> Case:
    return Case("PATCH", f"{POOL_REQUESTS}/r/status", {"status": status}, JSON, MERGE)


CASES: Mapping[str, Sequence[Case]] = {
    "status of new objects": [
        *_new("/apis/apps/v1/namespaces/default/deployments", "x", _WORKLOAD),
        *_new("/apis/apps/v1/namespaces/default/statefulsets", "x", {**_WORKLOAD, "serviceName": "s"}),
        *_new("/apis/apps/v1/namespaces/default/replicasets", "x", _WORKLOAD),
        *_new("/apis/policy/v1/namespaces/default/poddisruptionbudgets", "x", {}),
        *_new("/apis/networking.k8s.io/v1/namespaces/default/ingresses", "x", _BACKEND),
        *_new("/apis/networking.k8s.io/v1/servicecidrs", "x", {"cidrs": ["10.5.0.0/24"]}),
        *_new(f"{DEFAULT}/resourcequotas", "x", {"hard": {"pods": "1"}}),
        *_new(RULES, "x", {"taint": {"key": "a", "effect": "NoSchedule"}}),
    ],
    "status of claims": [
        Case("POST", CLAIMS, {"metadata": {"name": "x"}, "spec": _REQUESTS}),
        Case("PATCH", f"{CLAIMS}/x/status", _ALLOCATION, JSON, JSON_PATCH),
        _delete(f"{CLAIMS}/x"),
    ],
    "pool status requests": [
        *(
            Case("POST", POOL_REQUESTS, {"metadata": {"name": "r"}, "spec": spec})
            for spec in (
                {},
                {"driver": "a_b"},
                {"driver": "a.b", "limit": 0},
                {"driver": "a.b", "limit": 1001},
                {"driver": "a.b", "poolName": ""},
                {"driver": "a.b", "poolName": "a//b"},
            )
        ),
        Case("POST", POOL_REQUESTS, {"metadata": {"name": "r"}, "spec": {"driver": "Some.Driver"}}),
        Case("PATCH", f"{POOL_REQUESTS}/r", {"spec": {"limit": 5}}, JSON, MERGE),
        _status({}),
        _status({"poolCount": -1}),
        _status({"poolCount": 1, "pools": [{}]}),
        _status({"poolCount": 1, "pools": [{"driver": "a", "poolName": "b", "generation": 1}]}),
        _status({"poolCount": 2}),
        _status(None),
        _delete(f"{POOL_REQUESTS}/r"),
    ],
    "watches and their bookmarks": [
        Case("POST", MAPS, _map("x")),
        *(_get(WATCH_LIST, form) for form in (JSON, PARTIAL, PROTOBUF_TABLE)),
        _delete(f"{MAPS}/x"),
    ],
    "forms of objects and lists": [
        Case("POST", MAPS, _map("x")),
        *(_get(f"{MAPS}{path}", form) for path in ("/x", "") for form in (JSON, PARTIAL, PARTIAL_LIST)),
        _delete(f"{MAPS}/x"),
    ],
    "resource versions of updates": [
        Case("POST", MAPS, _map("x", resourceVersion="0")),
        *(Case("PUT", f"{MAPS}/x", _map("x", resourceVersion=text)) for text in ("0", "00", "1")),
        _delete(f"{MAPS}/x"),
    ],
    "namespace of cluster-scoped objects": [
        Case("POST", "/api/v1/namespaces", {"metadata": {"name": "some", "namespace": "other"}}),
        Case("POST", MAPS, _map("x", namespace="other")),
    ],
    "timeouts": [
        *(_get(f"/api?timeout={text}") for text in ("abc", "100", "5x", ".s", "5s5")),
        *(_get(f"{MAPS}?timeout={text}") for text in ("5s", "0", "", "-5s", "1h1m1.5s", "99999999999h")),
        _get("/healthz?timeout=abc"),
    ],
    "reviews": [Case("POST", REVIEWS, _REVIEW, form) for form in (JSON, TABLE, PARTIAL, f"{TABLE},{JSON}")],
    "propagation of deletions": [
        Case(
            "POST",
            f"{DEFAULT}/replicationcontrollers",
            {"metadata": {"name": "x"}, "spec": {"template": _TEMPLATE}},
        ),
        _delete(f"{DEFAULT}/replicationcontrollers/x"),
        *_new("/apis/apps/v1/namespaces/default/replicasets", "y", _WORKLOAD),
    ],
    "health": [
        _get(f"/{endpoint}{rest}")
        for endpoint in ("healthz", "livez", "readyz")
        for rest in ("", "?verbose", "?verbose&exclude=etcd", "?verbose&exclude=nosuch", "/etcd", "/nosuch")
    ],
}
