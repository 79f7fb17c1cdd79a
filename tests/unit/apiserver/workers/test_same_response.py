"""Responses and stored objects of workers, compared with those of the event loop."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.api.codec import encode
from plimsoll.apiserver.auth.users import User
from plimsoll.apiserver.request import ApiRequest
from plimsoll.controllers.bootstrap import bootstrap
from tests.sizes import examples
from tests.unit.apiserver.build import ADMIN, ApiHarness, pod
from tests.unit.apiserver.workers.local import handle_in_worker

PODS = "/api/v1/namespaces/default/pods"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
QUOTAS = "/api/v1/namespaces/default/resourcequotas"
ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles"
JSON = "application/json"

NAMES = st.sampled_from(["a", "b"])
LABELS = st.dictionaries(st.sampled_from(["x", "y", "not a label!"]), st.sampled_from(["1", "2"]), max_size=2)
CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["c", "d", ""]), "image": st.sampled_from(["i", "j"])},
        optional={
            "resources": st.just({"requests": {"cpu": "1", "memory": "1Gi"}}),
            "unknown": st.just(1),
        },
    ),
    max_size=3,
)

#: The volume of a token has a random name.
NO_TOKEN = {"automountServiceAccountToken": False}


@st.composite
def pods(draw: st.DrawFn) -> dict[str, Any]:
    tree = pod(draw(NAMES), containers=draw(CONTAINERS), **NO_TOKEN)
    tree["metadata"]["labels"] = draw(LABELS)
    if draw(st.booleans()):
        tree["metadata"]["finalizers"] = ["example.com/hold"]
    return tree


@st.composite
def calls(draw: st.DrawFn) -> ApiRequest:
    """Generate writes, reads and deletions of a few pods, many of them refused."""
    tree, name = draw(pods()), draw(NAMES)
    query = draw(
        st.sampled_from([[], [("dryRun", "All")], [("fieldValidation", "Strict")], [("fieldManager", "m")]])
    )
    accept = draw(st.sampled_from([JSON, "application/yaml", "application/json;as=Table;g=meta.k8s.io;v=v1"]))
    what = draw(st.sampled_from(["create", "update", "apply", "merge", "json", "strategic", "get", "delete"]))
    path, method, body, media = f"{PODS}/{name}", "PATCH", tree, ""
    if what == "create":
        path, method, media = PODS, "POST", JSON
    elif what == "update":
        method, media = "PUT", JSON
    elif what == "apply":
        media, query = "application/apply-patch+yaml", [("fieldManager", "m"), ("force", "true")]
    elif what == "merge":
        media, body = "application/merge-patch+json", {"metadata": {"labels": draw(LABELS)}}
    elif what == "json":
        media = "application/json-patch+json"
        operations: Any = [{"op": "add", "path": "/metadata/labels", "value": draw(LABELS)}]
        body = operations
    elif what == "strategic":
        media, body = "application/strategic-merge-patch+json", {"spec": {"containers": draw(CONTAINERS)}}
    else:
        method = {"get": "GET", "delete": "DELETE"}[what]
    content = json.dumps(body).encode() if media else b""
    return ApiRequest(method, path, ADMIN, query, {"content-type": media, "accept": accept}, content)


def two_servers() -> tuple[ApiHarness, ApiHarness]:
    both = ApiHarness(), ApiHarness()
    for harness in both:
        asyncio.run(bootstrap(harness.client))
    return both


def answer_both(local: ApiHarness, remote: ApiHarness, request: ApiRequest) -> tuple[int, bytes]:
    """Return the response of both ways after comparing them."""
    response = asyncio.run(local.api.handle(request))
    finish = handle_in_worker(remote, request)
    body = response.body
    assert isinstance(body, bytes)
    assert (finish.status, finish.body) == (response.status, body)
    assert (finish.content_type, finish.headers) == (response.content_type, response.headers)
    return finish.status, finish.body


def contents(harness: ApiHarness) -> dict[Any, bytes]:
    return {
        stored.key: stored.raw
        for resource in harness.store.counts()
        for stored in harness.store.list(resource).items
    }


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(calls(), min_size=1, max_size=6))
def test_responses_of_workers_equal_those_of_the_event_loop(scenario: list[ApiRequest]) -> None:
    local, remote = two_servers()
    remote.context.new_uid = local.context.new_uid = lambda: "00000000-0000-4000-8000-000000000000"
    for request in scenario:
        answer_both(local, remote, request)
        assert contents(local) == contents(remote)


def test_a_worker_charges_quotas() -> None:
    local, remote = two_servers()
    remote.context.new_uid = local.context.new_uid = lambda: "00000000-0000-4000-8000-000000000000"
    hard = {"hard": {"pods": "1"}}
    merge = "application/merge-patch+json"
    scenario = [
        ("POST", QUOTAS, {"metadata": {"name": "q"}, "spec": hard}, JSON),
        ("PATCH", f"{QUOTAS}/q/status", {"status": {**hard, "used": {"pods": "0"}}}, merge),
        ("POST", PODS, pod("a", **NO_TOKEN), JSON),
        ("POST", PODS, pod("b", **NO_TOKEN), JSON),
    ]
    codes = [
        answer_both(
            local, remote, ApiRequest(method, path, ADMIN, (), {"content-type": media}, encode(tree))
        )[0]
        for method, path, tree, media in scenario
    ]
    assert codes == [201, 200, 201, 403]
    assert contents(local) == contents(remote)


def test_a_worker_checks_permissions() -> None:
    """Creating by apply needs another permission than updating, and escalation is rejected."""
    local, remote = two_servers()
    user = User("other")
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "r"},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
    }
    create = ApiRequest("POST", ROLES, user, (), {}, json.dumps(role).encode())
    apply = ApiRequest(
        "PATCH",
        f"{PODS}/a",
        user,
        [("fieldManager", "m")],
        {"content-type": "application/apply-patch+yaml"},
        json.dumps(pod("a", **NO_TOKEN)).encode(),
    )
    for harness in (local, remote):  # whether the sender may write at all is asked before
        harness.api.handle = harness.api.handle_authorized  # type: ignore[method-assign]
    status, body = answer_both(local, remote, create)
    assert status == 403
    assert b"attempting to grant RBAC permissions not currently held" in body
    status, body = answer_both(local, remote, apply)
    assert status == 403
    assert b'cannot create resource \\"pods\\"' in body
