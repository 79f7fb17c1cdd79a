"""Clients on servers that serve other versions of resource.k8s.io, by recorded discovery of each release."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from plimsoll.client import Client
from plimsoll.client.endpoints import DEVICE_TAINT_RULES, POD_GROUPS, PODS, RESOURCE_CLAIMS, Endpoint
from plimsoll.client.responses import read_tree
from plimsoll.client.transport import Reply, Request, ResponseStream
from plimsoll.errors import ApiError
from tests.manifests import claim

Tree = dict[str, Any]
RESOURCE, SCHEDULING = "resource.k8s.io", "scheduling.k8s.io"
_DRA = ("deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices")

#: Kinds by version with the APIs that a release serves by default, or that can be enabled in it; the defaults
#: of 1.34 to 1.36 are recorded from a kube-apiserver 1.36.4 that emulates the release.
DISCOVERY: Mapping[str, Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "1.34": {RESOURCE: {"v1": _DRA}},
    "1.34-all": {RESOURCE: {"v1": _DRA, "v1beta2": _DRA, "v1beta1": _DRA, "v1alpha3": ("devicetaintrules",)}},
    "1.35": {RESOURCE: {"v1": _DRA}},
    "1.36": {RESOURCE: {"v1": _DRA}},
    "1.36-beta": {
        RESOURCE: {"v1": _DRA, "v1beta2": (*_DRA, "devicetaintrules")},
        SCHEDULING: {"v1alpha2": ("podgroups",)},
    },
    "1.37": {RESOURCE: {"v1": (*_DRA, "devicetaintrules")}},
    "1.37-beta": {RESOURCE: {"v1": (*_DRA, "devicetaintrules")}, SCHEDULING: {"v1beta1": ("podgroups",)}},
    "v1beta2": {RESOURCE: {"v1beta2": _DRA}},
    "v1beta1": {RESOURCE: {"v1beta1": _DRA}},
    "none": {},
}


class VersionedServer:
    """Transport of a server with one object, which is stored as it was sent."""

    def __init__(self, release: str) -> None:
        self.served = DISCOVERY[release]
        self.stored: Tree | None = None
        self.requests: list[tuple[str, str]] = []

    async def send(self, request: Request) -> Reply:
        self.requests.append((request.method, request.path))
        status, tree = self._answer(request)
        return Reply(status, {}, json.dumps(tree).encode())

    def _answer(self, request: Request) -> tuple[int, Tree]:
        match request.path.strip("/").split("/"):
            case ["apis", group] if group in self.served:
                return 200, {
                    "kind": "APIGroup",
                    "versions": [{"version": each} for each in self.served[group]],
                }
            case ["apis", group, version] if version in self.served.get(group, {}):
                names = self.served[group][version]
                return 200, {"kind": "APIResourceList", "resources": [{"name": name} for name in names]}
            case ["apis", group, version, *rest] if set(rest) & set(
                self.served.get(group, {}).get(version, ())
            ):
                return self._object(request, f"{group}/{version}")
        return 404, {"kind": "Status", "code": 404, "reason": "NotFound", "message": "not served"}

    def _object(self, request: Request, api_version: str) -> tuple[int, Tree]:
        if request.method in ("POST", "PUT"):
            assert request.body is not None
            self.stored = json.loads(request.body)
            assert self.stored is not None
            if self.stored["apiVersion"] != api_version:
                return 400, {"kind": "Status", "code": 400, "message": "the API version does not match"}
        if self.stored is None or "missing" in request.path:
            details = {"name": "missing"}
            return 404, {"kind": "Status", "code": 404, "reason": "NotFound", "details": details}
        if request.method == "GET" and request.path.endswith("s"):
            bare = {key: value for key, value in self.stored.items() if key not in ("kind", "apiVersion")}
            return 200, {"kind": "TheList", "metadata": {"resourceVersion": "1"}, "items": [bare]}
        return 200, self.stored

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[ResponseStream]:
        status, _ = self._answer(request)
        self.requests.append(("WATCH", request.path))

        async def chunks() -> AsyncIterator[bytes]:
            body: Any = {"kind": "Status", "code": 404, "reason": "NotFound"}
            if status == 200:
                body = {"type": "ADDED", "object": self.stored}
            yield json.dumps(body).encode() + b"\n"

        yield ResponseStream(status, {}, chunks())

    async def renew(self) -> bool:
        return False

    async def close(self) -> None:
        pass


def on(release: str) -> tuple[VersionedServer, Client]:
    server = VersionedServer(release)
    return server, Client(server, attempts=1)


@pytest.mark.parametrize("release", ["1.34", "1.35", "1.36", "1.37"])
def test_releases_that_serve_v1_need_no_discovery(release: str) -> None:
    server, client = on(release)

    async def scenario() -> None:
        await client.create(RESOURCE_CLAIMS, claim("c"), "default")
        assert await client.get(RESOURCE_CLAIMS, "c", "default") == claim("c")
        with pytest.raises(ApiError, match="NotFound"):
            await client.get(RESOURCE_CLAIMS, "missing", "default")

    asyncio.run(scenario())
    assert all("/v1/namespaces/" in path for _, path in server.requests)
    assert len(server.requests) == 3


@pytest.mark.parametrize("version", ["v1beta2", "v1beta1"])
def test_another_version_is_found_and_converted(version: str) -> None:
    server, client = on(version)

    async def scenario() -> None:
        created = await client.create(RESOURCE_CLAIMS, claim("c"), "default")
        assert created == claim("c")
        assert server.stored is not None
        (request,) = server.stored["spec"]["devices"]["requests"]
        assert ("exactly" in request) == (version == "v1beta2")
        assert await client.get(RESOURCE_CLAIMS, "c", "default") == claim("c")
        (listed,) = (await client.list(RESOURCE_CLAIMS)).items
        assert read_tree(listed) == claim("c")
        (event,) = [each async for each in client.watch(RESOURCE_CLAIMS)]
        assert read_tree(event.raw) == claim("c")
        assert await client.update(RESOURCE_CLAIMS, claim("c"), "default") == claim("c")
        assert client.served_endpoint(RESOURCE_CLAIMS) == RESOURCE_CLAIMS.at(version)

    asyncio.run(scenario())
    # Discovery once, then every call at the version that was found.
    assert [path for _, path in server.requests if "namespaces" not in path][:3] == [
        f"/apis/{RESOURCE}",
        f"/apis/{RESOURCE}/{version}",
        f"/apis/{RESOURCE}/{version}/resourceclaims",
    ]


async def test_a_watch_finds_its_version_too() -> None:
    server, client = on("v1beta1")
    server.stored = {**claim("c"), "apiVersion": f"{RESOURCE}/v1beta1"}
    (event,) = [each async for each in client.watch(RESOURCE_CLAIMS)]
    assert read_tree(event.raw)["apiVersion"] == f"{RESOURCE}/v1"


@pytest.mark.parametrize(
    ("release", "endpoint", "version"),
    [
        ("1.34", DEVICE_TAINT_RULES, ""),
        ("1.34-all", DEVICE_TAINT_RULES, "v1alpha3"),
        ("1.36-beta", DEVICE_TAINT_RULES, "v1beta2"),
        ("1.37", DEVICE_TAINT_RULES, "v1"),
        ("1.36-beta", POD_GROUPS, "v1alpha2"),
        ("1.37-beta", POD_GROUPS, "v1beta1"),
        ("1.37", POD_GROUPS, ""),
        ("none", RESOURCE_CLAIMS, ""),
    ],
)
async def test_the_version_of_a_kind_depends_on_the_release(
    release: str, endpoint: Endpoint, version: str
) -> None:
    server, client = on(release)
    server.stored = {"kind": endpoint.kind, "apiVersion": endpoint.api_version, "metadata": {"name": "r"}}
    if not version:
        with pytest.raises(ApiError, match="not served"):
            await client.get(endpoint, "r")
    else:
        found = await client.get(endpoint, "r")
        assert found["apiVersion"] == endpoint.api_version
        assert client.served_endpoint(endpoint).version == version


async def test_a_server_that_was_upgraded_is_discovered_again() -> None:
    server, client = on("v1beta1")
    await client.create(RESOURCE_CLAIMS, claim("c"), "default")
    server.served = DISCOVERY["1.37"]
    await client.update(RESOURCE_CLAIMS, claim("c"), "default")
    assert client.served_endpoint(RESOURCE_CLAIMS) == RESOURCE_CLAIMS
    assert server.stored == claim("c")


def test_other_kinds_are_not_discovered() -> None:
    server, client = on("none")

    async def scenario() -> None:
        with pytest.raises(ApiError):
            await client.get(PODS, "p", "default")

    asyncio.run(scenario())
    assert len(server.requests) == 1


def group(**spec: Any) -> Tree:
    return {
        "kind": "PodGroup",
        "apiVersion": f"{SCHEDULING}/v1beta1",
        "metadata": {"name": "g"},
        "spec": spec,
    }


async def test_pod_groups_of_137() -> None:
    server, client = on("1.37-beta")

    async def read(tree: Tree) -> list[Tree]:
        server.stored = tree
        return [read_tree(raw) for raw in (await client.list(POD_GROUPS)).items]

    gang = {"gang": {"minCount": 2}}
    (found,) = await read(group(schedulingPolicy=gang, disruptionMode={"all": {}}))
    assert found["apiVersion"] == f"{SCHEDULING}/v1alpha2"
    assert found["spec"] == {"schedulingPolicy": gang, "disruptionMode": "PodGroup"}
    (found,) = await read(group(schedulingPolicy=gang, disruptionMode={"single": {}}))
    assert found["spec"]["disruptionMode"] == "Pod"
    # What v1alpha2 cannot express is left out, so that the pods stay pending.
    assert await read(group(schedulingPolicy=gang, parentCompositePodGroupName="parent")) == []
    assert await read(group(schedulingPolicy=gang, disruptionMode={"other": {}})) == []
