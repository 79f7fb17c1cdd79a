"""API fuzzing: no 5xx except 503 and 504, no hang, and valid stored objects."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.apiserver.auth.users import CONTROLLERS
from plimsoll.apiserver.in_process import connect_in_process
from plimsoll.apiserver.request import ApiRequest, ApiResponse
from plimsoll.controllers import ControllerManager
from tests.fuzz.harness import ROOT, FuzzHarness, alarm
from tests.fuzz.requests import ACCEPTS, JSON, PATCHES, PROTOBUF, QUERIES, YAML
from tests.fuzz.templates import TEMPLATES
from tests.fuzz.trees import WORDS
from tests.sizes import examples
from tests.waiting import until

SEEDS = int(os.environ.get("PLIMSOLL_FUZZ_SEEDS", "12"))
MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"


def fire(seed: int, rounds: int, count: int) -> FuzzHarness:
    """Send several rounds of random requests and check the store after each."""

    async def run() -> FuzzHarness:
        harness = FuzzHarness(seed)
        await harness.begin()
        for _ in range(rounds):
            await harness.strike(count)
            harness.check()
            await harness.check_unchanged()
        await harness.store.close()
        return harness

    with alarm(600):
        return asyncio.run(run())


@pytest.mark.parametrize("seed", range(3))
def test_random_requests(seed: int) -> None:
    harness = fire(seed, 2, 800)
    assert harness.answers[200] + harness.answers[201] > 200, "the requests must not all be refused"
    assert {400, 404, 409, 422} <= harness.answers.keys()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1000 + SEEDS))
def test_many_random_requests(seed: int) -> None:
    fire(seed, 10, 1000)


# -- controllers


def fire_at_controllers(seed: int, count: int) -> None:
    """Run the controllers on objects that passed validation: they neither crash nor loop."""

    async def run() -> None:
        harness = FuzzHarness(seed)
        await harness.begin()
        async with connect_in_process(harness.api.handle, CONTROLLERS) as client:
            running = asyncio.create_task(ControllerManager(client).run())
            for _ in range(count // 20):
                await harness.strike(20)
                await asyncio.sleep(0.001)
            await until(lambda: is_at_rest(harness))
            assert not running.done(), running
            harness.check()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        await harness.store.close()

    with alarm(600):
        asyncio.run(run())


async def is_at_rest(harness: FuzzHarness) -> bool:
    """Return whether the controllers do next to nothing for a while."""
    began, head = time.thread_time(), harness.store.revision
    await asyncio.sleep(0.3)
    return time.thread_time() - began < 0.25 and harness.store.revision - head < 10


def test_controllers_under_random_requests(caplog: pytest.LogCaptureFixture) -> None:
    fire_at_controllers(7, 1000)
    assert not [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2000, 2000 + SEEDS))
def test_controllers_under_many_random_requests(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    fire_at_controllers(seed, 6000)
    assert not [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


# -- property tests


class SharedServer:
    """Server shared by all examples of a test."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self.harness = FuzzHarness(0)
        self._runner.run(self.harness.begin())

    def send(
        self, method: str, path: str, body: bytes = b"", query: dict[str, str] | None = None, **headers: str
    ) -> ApiResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request = ApiRequest(method, path, ROOT, list((query or {}).items()), named, body)
        answer = self._runner.run(self.harness.send(request))
        self.harness.check()
        return answer

    def close(self) -> None:
        self._runner.run(self.harness.store.close())
        self._runner.close()


@pytest.fixture(scope="module")
def shared() -> Iterator[SharedServer]:
    found = SharedServer()
    yield found
    found.close()


#: Where the objects of the templates are, by key.
PLACES = {
    key: (
        (f"/apis/{version}" if "/" in version else f"/api/{version}")
        + ("/namespaces/default/" if namespaced else "/")
        + key.partition(".")[0]
    )
    for key, (version, _, namespaced, _) in TEMPLATES.items()
}
names = st.sampled_from(WORDS) | st.text(max_size=8)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=examples(100))
@given(
    place=st.sampled_from(sorted(PLACES.values())),
    method=st.sampled_from(["POST", "PUT", "DELETE"]),
    data=st.data(),
)
def test_any_body(shared: SharedServer, place: str, method: str, data: st.DataObject) -> None:
    media = data.draw(st.sampled_from([JSON, YAML, PROTOBUF]))
    body = data.draw(st.binary(max_size=60) | st.builds(lambda tree: json.dumps(tree).encode(), json_values))
    if media == PROTOBUF and data.draw(st.booleans()):
        body = b"k8s\x00" + body
    path = place if method == "POST" else f"{place}/first"
    shared.send(method, path, body, {"dryRun": "All"} if method == "DELETE" else {}, content_type=media)


def pieces_of(tree: Any) -> st.SearchStrategy[Any]:
    """Return a patch of a part of a tree: kept, replaced or removed."""
    if not isinstance(tree, dict) or not tree:
        return st.just(tree) | json_values
    some = st.sampled_from(sorted(tree)).flatmap(
        lambda name: st.builds(lambda inner: {name: inner}, pieces_of(tree[name]))
    )
    return some | st.just(tree) | json_values


@settings(max_examples=examples(200))
@given(
    key=st.sampled_from(sorted(PLACES)), kind=st.sampled_from(["merge", "strategic", "apply"]), data=st.data()
)
def test_any_patch_of_trees(shared: SharedServer, key: str, kind: str, data: st.DataObject) -> None:
    version, object_kind, _, rest = TEMPLATES[key]
    patch = data.draw(pieces_of({"metadata": {"labels": {"a": "b"}, "finalizers": ["a.b/c"]}, **rest}))
    if kind == "apply" and isinstance(patch, dict):
        patch = {"apiVersion": version, "kind": object_kind, **patch}
    query = {"fieldManager": "me", "force": "true"} if kind == "apply" else {"dryRun": "All"}
    shared.send(
        "PATCH", f"{PLACES[key]}/first", json.dumps(patch).encode(), query, content_type=PATCHES[kind]
    )


pointers = st.lists(
    st.sampled_from(["metadata", "spec", "labels", "containers", "0", "-", "name", "~0", "~1", "", "99"]),
    max_size=5,
).map(lambda parts: "".join(f"/{part}" for part in parts))
operations = st.fixed_dictionaries(
    {"op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test"]), "path": pointers},
    optional={"value": json_values, "from": pointers},
)


@settings(max_examples=examples(100))
@given(key=st.sampled_from(sorted(PLACES)), patch=st.lists(operations, max_size=4))
def test_any_patch_of_operations(shared: SharedServer, key: str, patch: list[Any]) -> None:
    shared.send("PATCH", f"{PLACES[key]}/first", json.dumps(patch).encode(), content_type=PATCHES["json"])


@settings(max_examples=examples(200))
@given(
    path=st.sampled_from(
        [MAPS, PODS, "/api/v1/nodes", f"{PODS}/first", "/apis/resource.k8s.io/v1/resourceslices"]
    ),
    query=st.dictionaries(
        st.sampled_from(sorted(QUERIES)),
        st.text(max_size=20)
        | st.text("ab=!<>,() in\\.", max_size=20)
        | st.sampled_from([v for vs in QUERIES.values() for v in vs]),
        max_size=3,
    ),
    accept=st.sampled_from(ACCEPTS) | st.text("aj/*;,=q01. ", max_size=20),
)
def test_any_parameters(shared: SharedServer, path: str, query: dict[str, str], accept: str) -> None:
    shared.send("GET", path, b"", query, accept=accept)


@settings(max_examples=examples(100))
@given(
    method=st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE"]),
    parts=st.lists(names, max_size=6),
    api=st.booleans(),
)
def test_any_path(shared: SharedServer, method: str, parts: list[str], api: bool) -> None:
    shared.send(method, ("/api/v1/" if api else "/") + "/".join(parts), b"{}")


# -- large bodies take linear time


def many(count: int, make: Callable[[int], Any]) -> list[Any]:
    return [make(number) for number in range(count)]


def _pod(**spec: Any) -> Any:
    return {"metadata": {"name": "large"}, "spec": {"containers": [{"name": "c", "image": "i"}], **spec}}


def _container(**more: Any) -> Any:
    return _pod(containers=[{"name": "c", "image": "i", **more}])


LARGE: dict[str, Callable[[int], tuple[str, Any]]] = {
    "data": lambda n: (MAPS, {"metadata": {"name": "large"}, "data": {f"k{i}": "v" for i in range(n)}}),
    "labels": lambda n: (MAPS, {"metadata": {"name": "large", "labels": {f"k{i}": "v" for i in range(n)}}}),
    "finalizers": lambda n: (
        MAPS,
        {"metadata": {"name": "large", "finalizers": many(n, lambda i: f"a.b/k{i}")}},
    ),
    "containers": lambda n: (PODS, _pod(containers=many(n, lambda i: {"name": f"c{i}", "image": "i"}))),
    "same containers": lambda n: (PODS, _pod(containers=many(n, lambda i: {"name": "c", "image": "i"}))),
    "environment": lambda n: (PODS, _container(env=many(n, lambda i: {"name": f"E{i}", "value": "v"}))),
    "ports": lambda n: (PODS, _container(ports=many(n, lambda i: {"containerPort": i % 65000 + 1}))),
    "mounts": lambda n: (
        PODS,
        _container(volumeMounts=many(n, lambda i: {"name": "v", "mountPath": f"/{i}"})),
    ),
    "volumes": lambda n: (PODS, _pod(volumes=many(n, lambda i: {"name": f"v{i}", "emptyDir": {}}))),
    "tolerations": lambda n: (
        PODS,
        _pod(tolerations=many(n, lambda i: {"key": f"k{i}", "operator": "Exists"})),
    ),
    "claims": lambda n: (
        PODS,
        _pod(resourceClaims=many(n, lambda i: {"name": f"c{i}", "resourceClaimName": "x"})),
    ),
    "gates": lambda n: (PODS, _pod(schedulingGates=many(n, lambda i: {"name": f"a/g{i}"}))),
    "spreading": lambda n: (
        PODS,
        _pod(
            topologySpreadConstraints=many(
                n, lambda i: {"maxSkew": 1, "topologyKey": f"z{i}", "whenUnsatisfiable": "DoNotSchedule"}
            )
        ),
    ),
    "taints": lambda n: (
        "/api/v1/nodes",
        {
            "metadata": {"name": "large"},
            "spec": {"taints": many(n, lambda i: {"key": f"k{i}", "effect": "NoSchedule"})},
        },
    ),
    "devices": lambda n: (
        "/apis/resource.k8s.io/v1/resourceslices",
        {
            "metadata": {"name": "large"},
            "spec": {
                "driver": "d",
                "nodeName": "n",
                "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
                "devices": many(n, lambda i: {"name": f"d{i}"}),
            },
        },
    ),
    "rules": lambda n: (
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        {
            "metadata": {"name": "large"},
            "rules": many(n, lambda i: {"apiGroups": [""], "resources": [f"r{i}"], "verbs": ["get"]}),
        },
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_large_bodies_take_time_by_their_length(shared: SharedServer, name: str) -> None:
    def measure(count: int) -> float:
        path, tree = LARGE[name](count)
        body = json.dumps(tree).encode()
        began = time.process_time()
        shared.send("POST", path, body, {"dryRun": "All"})
        return time.process_time() - began

    measure(10)
    short, long = measure(2000), measure(16_000)
    assert long < 1 or long < 30 * short, f"eight times the length took {long / short:.0f} times as long"
