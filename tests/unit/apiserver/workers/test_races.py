"""Atomic writes of workers while others write."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from plimsoll.apiserver.request import ApiRequest
from plimsoll.apiserver.storage import ObjectKey
from plimsoll.apiserver.worker_process import MAX_ATTEMPTS
from plimsoll.apiserver.workers.messages import JobResult, WorkerQuery, WriteObject
from plimsoll.controllers.bootstrap import bootstrap
from tests.unit.apiserver.build import ADMIN, ApiHarness, pod
from tests.unit.apiserver.workers.local import handle_in_worker

PODS = "/api/v1/namespaces/default/pods"
MERGE = {"content-type": "application/merge-patch+json"}


def make_bench() -> ApiHarness:
    harness = ApiHarness()
    asyncio.run(bootstrap(harness.client))
    return harness


def send(harness: ApiHarness, method: str, path: str, tree: Any, **headers: str) -> tuple[int, Any]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    response = asyncio.run(
        harness.api.handle(ApiRequest(method, path, ADMIN, (), named, json.dumps(tree).encode()))
    )
    assert isinstance(response.body, bytes)
    return response.status, json.loads(response.body)


def patch(labels: dict[str, str], **metadata: Any) -> ApiRequest:
    body = {"metadata": {"labels": labels, **metadata}}
    return ApiRequest("PATCH", f"{PODS}/p", ADMIN, (), MERGE, json.dumps(body).encode())


class BeforeCommit:
    """Hook that runs before the first commits of a worker."""

    def __init__(self, action: Callable[[], object], times: int = 1) -> None:
        self._action = action
        self._times = times
        self.commits = 0

    def __call__(self, question: WorkerQuery) -> None:
        if isinstance(question, WriteObject):
            self.commits += 1
            if self.commits <= self._times:
                self._action()


def labels_of(harness: ApiHarness) -> dict[str, str]:
    stored = harness.store.get(ObjectKey("pods", "default", "p"))
    assert stored is not None
    labels: dict[str, str] = json.loads(stored.raw)["metadata"]["labels"]
    return labels


def test_a_patch_is_computed_again_when_the_object_changed() -> None:
    harness = make_bench()
    send(harness, "POST", PODS, pod("p"))
    other = BeforeCommit(lambda: asyncio.run(harness.api.handle(patch({"theirs": "1"}))))
    finish = handle_in_worker(harness, patch({"ours": "1"}), other)
    assert finish.status == 200
    assert other.commits == 2
    assert labels_of(harness) == {"app": "p", "ours": "1", "theirs": "1"}


def test_an_update_under_a_version_is_refused_when_the_object_changed() -> None:
    harness = make_bench()
    _, tree = send(harness, "POST", PODS, pod("p"))
    tree["metadata"]["labels"] = {"ours": "1"}
    other = BeforeCommit(lambda: asyncio.run(harness.api.handle(patch({"theirs": "1"}))))
    request = ApiRequest("PUT", f"{PODS}/p", ADMIN, (), {}, json.dumps(tree).encode())
    finish = handle_in_worker(harness, request, other)
    assert (finish.status, json.loads(finish.body)["reason"]) == (409, "Conflict")
    assert labels_of(harness) == {"app": "p", "theirs": "1"}


def test_an_object_that_changes_all_the_time_is_a_conflict() -> None:
    harness = make_bench()
    send(harness, "POST", PODS, pod("p"))
    numbers = iter(range(100))
    other = BeforeCommit(
        lambda: asyncio.run(harness.api.handle(patch({"theirs": str(next(numbers))}))), times=100
    )
    finish = handle_in_worker(harness, patch({"ours": "1"}), other)
    assert (finish.status, json.loads(finish.body)["reason"]) == (409, "Conflict")
    assert other.commits == MAX_ATTEMPTS
    assert "ours" not in labels_of(harness)


def test_the_second_of_two_creations_is_refused() -> None:
    harness = make_bench()
    other = BeforeCommit(lambda: send(harness, "POST", PODS, pod("p")))
    request = ApiRequest("POST", PODS, ADMIN, (), {}, json.dumps(pod("p", nodeName="n")).encode())
    finish = handle_in_worker(harness, request, other)
    assert (finish.status, json.loads(finish.body)["reason"]) == (409, "AlreadyExists")


def test_an_apply_that_was_to_create_updates_what_was_created_meanwhile() -> None:
    harness = make_bench()
    other = BeforeCommit(lambda: send(harness, "POST", PODS, pod("p")))
    tree = pod("p")
    tree["metadata"]["labels"] = {"ours": "1"}
    headers = {"content-type": "application/apply-patch+yaml"}
    request = ApiRequest(
        "PATCH", f"{PODS}/p", ADMIN, [("fieldManager", "m")], headers, json.dumps(tree).encode()
    )
    finish = handle_in_worker(harness, request, other)
    assert finish.status == 200
    assert labels_of(harness) == {"app": "p", "ours": "1"}


def test_an_object_deleted_meanwhile_is_not_found() -> None:
    harness = make_bench()
    send(harness, "POST", PODS, pod("p"))
    other = BeforeCommit(lambda: send(harness, "DELETE", f"{PODS}/p", None))
    finish = handle_in_worker(harness, patch({"ours": "1"}), other)
    assert finish.status == 404
    assert harness.store.get(ObjectKey("pods", "default", "p")) is None


def test_a_quota_is_never_exceeded() -> None:
    """Another pod takes the last of a quota after the worker has read it."""
    harness = make_bench()
    quotas = "/api/v1/namespaces/default/resourcequotas"
    hard, used = {"hard": {"pods": "1"}}, {"used": {"pods": "0"}}
    assert send(harness, "POST", quotas, {"metadata": {"name": "q"}, "spec": hard})[0] == 201
    status = {"status": {**hard, **used}}
    assert send(harness, "PATCH", f"{quotas}/q/status", status, content_type=MERGE["content-type"])[0] == 200
    other = BeforeCommit(lambda: send(harness, "POST", PODS, pod("other")))
    request = ApiRequest("POST", PODS, ADMIN, (), {}, json.dumps(pod("p")).encode())
    finish = handle_in_worker(harness, request, other)
    assert finish.status == 403
    assert b"exceeded quota" in finish.body
    assert harness.store.counts()["pods"][0] == 1


def test_nothing_is_created_in_a_namespace_deleted_meanwhile() -> None:
    harness = make_bench()
    send(harness, "POST", "/api/v1/namespaces", {"metadata": {"name": "n"}})
    other = BeforeCommit(lambda: send(harness, "DELETE", "/api/v1/namespaces/n", None))
    request = ApiRequest("POST", "/api/v1/namespaces/n/pods", ADMIN, (), {}, json.dumps(pod("p")).encode())
    finish: JobResult = handle_in_worker(harness, request, other)
    assert finish.status == 403
    assert b"being terminated" in finish.body
