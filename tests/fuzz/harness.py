"""API in memory for fuzz tests, and the invariants of its responses and stored objects."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from types import FrameType
from typing import Any

from plimsoll.api import codec
from plimsoll.apiserver.api import Api
from plimsoll.apiserver.auth.users import MASTERS, User
from plimsoll.apiserver.context import ApiContext
from plimsoll.apiserver.in_process import connect_in_process
from plimsoll.apiserver.registry.resources import RESOURCES
from plimsoll.apiserver.request import ApiRequest, ApiResponse
from plimsoll.apiserver.storage import Store
from tests.fuzz.requests import Caller, token
from tests.fuzz.templates import TEMPLATES
from tests.unit.apiserver.registry.resource_keys import RESOURCE_BY_KEY
from tests.watch_frames import read_frames

ROOT = User("root", groups=(MASTERS,))
#: What may be answered besides success and refusals: not now, and a version we do not have yet.
MAY_FAIL = {503, 504}
#: Seconds of CPU time that no request of the size we send may take. The slowest, /metrics, needs 0.3; the
#: time of a virtual CPU includes what its host takes from it.
SLOWEST = 30.0


class FuzzHarness:
    """API under test and the random source of the requests sent to it."""

    def __init__(self, seed: int) -> None:
        self.store = Store.open(None, history_events=500)
        self.api = Api(ApiContext.for_store(self.store))
        self.caller = Caller(Random(seed), self.store)
        self.answers: dict[int, int] = {}

    async def begin(self) -> None:
        """Create namespaces and one object of each template."""
        async with connect_in_process(self.api.handle, ROOT) as client:
            for name in ("default", "kube-system", "other"):
                await client.call("POST", "/api/v1/namespaces", tree={"metadata": {"name": name}})
            for key, (api_version, kind, namespaced, rest) in TEMPLATES.items():
                row = RESOURCE_BY_KEY[key]
                root = f"/apis/{api_version}" if row.group else f"/api/{api_version}"
                path = f"{root}/namespaces/default/{row.plural}" if namespaced else f"{root}/{row.plural}"
                name = "n" if kind == "Node" else f"first-{kind.lower()}" if row.stored_as else "first"
                tree = {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **rest}
                await client.call("POST", path, tree=tree)

    async def strike(self, count: int) -> None:
        """Send a number of requests and check each response."""
        for number in range(count):
            request = self.caller.next()
            with describe_failure(f"request {number}: {show(request)}"):
                await self.send(request)
            if number % 200 == 0:
                self.caller.tokens = [
                    token(self.store.revision + shift, "default", "b") for shift in (0, -1, -400, 1, 10**9)
                ]

    async def send(self, request: ApiRequest) -> ApiResponse:
        began = time.thread_time()
        answer = await self.api.handle(request)
        if isinstance(answer.body, bytes):
            check_answer(answer)
        else:
            await check_stream(answer)
        took = time.thread_time() - began
        assert took < SLOWEST, f"{took:.1f} s"
        self.answers[answer.status] = self.answers.get(answer.status, 0) + 1
        return answer

    def check(self) -> None:
        """Check the invariants of the stored objects."""
        seen: set[int] = set()
        for row in RESOURCES:
            if row.stored_as or not row.is_stored:
                continue
            for stored in self.store.list(row.storage_key).items:
                tree = codec.decode_tree(stored.raw)
                json.loads(stored.raw)
                metadata = tree["metadata"]
                assert (metadata["name"], metadata.get("namespace", "")) == (
                    stored.key.name,
                    stored.key.namespace,
                )
                assert metadata["uid"]
                assert metadata["resourceVersion"] == str(stored.revision)
                assert (tree["kind"], tree["apiVersion"]) == (row.kind, row.api_version())
                assert stored.revision not in seen
                seen.add(stored.revision)

    async def check_unchanged(self, user: User = ROOT) -> None:
        """Check that every stored object can be written again without change."""
        for row in RESOURCES:
            if row.stored_as or "update" not in row.verbs:
                continue
            for stored in self.store.list(row.storage_key).items:
                path = f"/apis/{row.group}/{row.versions[0]}" if row.group else f"/api/{row.versions[0]}"
                if row.namespaced:
                    path += f"/namespaces/{stored.key.namespace}"
                path += f"/{row.plural}/{stored.key.name}"
                with describe_failure(f"PUT {path} {stored.raw!r}"):
                    answer = await self.send(ApiRequest("PUT", path, user, (), {}, stored.raw))
                    if answer.status == 422 and _is_loose(row.kind, answer):
                        continue
                    assert answer.status == 200, answer.body
                    after = self.store.get(stored.key)
                    if after is None or after == stored:
                        continue
                    await self.send(ApiRequest("PUT", path, user, (), {}, after.raw))
                    assert self.store.get(stored.key) == after


def _is_loose(kind: str, answer: ApiResponse) -> bool:
    """Return whether a write may store values that validation of the object refuses.

    As in Kubernetes, a write of a status may set generateName: it is not among the fields that are reset.
    """
    assert isinstance(answer.body, bytes)
    fields = [cause["field"] for cause in json.loads(answer.body)["details"]["causes"]]
    if set(fields) == {"metadata.generateName"}:
        return True
    return kind in ("Node", "Namespace") and all(name.startswith(("metadata.", "status.")) for name in fields)


def check_answer(answer: ApiResponse) -> None:
    assert isinstance(answer.body, bytes)
    assert answer.status < 500 or answer.status in MAY_FAIL, answer.body
    assert answer.status >= 200
    for name, value in answer.headers.items():
        assert not {"\n", "\r"} & set(name + value)
        (name + value).encode("latin-1")
    if answer.content_type.startswith("application/json") and answer.body:
        tree = json.loads(answer.body)
        if answer.status >= 400:
            assert (tree["kind"], tree["code"], tree["status"]) == ("Status", answer.status, "Failure"), tree
            assert tree["message"]


async def check_stream(answer: ApiResponse) -> None:
    """Check the beginning of a watch: complete frames of known types."""
    assert not isinstance(answer.body, bytes)
    assert answer.status == 200
    try:
        async with asyncio.timeout(0.005):
            async for chunk in answer.body:
                for type, tree in read_frames(answer.content_type, chunk):
                    assert type in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"), tree
                    assert isinstance(tree, dict)
    except TimeoutError:
        pass
    finally:
        await answer.body.aclose()


def show(request: ApiRequest) -> str:
    body = request.body if len(request.body) < 3000 else request.body[:1500] + b"..." + request.body[-200:]
    line = f"{request.method} {request.path[:300]} {request.query} {request.headers}"
    return f"{line} as {request.user.name}\n{body!r}"


@contextmanager
def describe_failure(what: str) -> Iterator[None]:
    """Add the request to the message of a failure."""
    try:
        yield
    except Exception as error:
        error.add_note(what)
        raise


@contextmanager
def alarm(seconds: int) -> Iterator[None]:
    """Turn a hang into a failure with a traceback."""

    def ring(number: int, frame: FrameType | None) -> Any:
        raise AssertionError(f"no answer within {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
