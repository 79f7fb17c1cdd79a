"""Cluster state over the API: lists, gaps, errors, and watches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from plimsoll.api.core import Node, Pod
from plimsoll.api.resource import ResourceClaim, ResourceSlice
from plimsoll.errors import ConfigError, InputError, UnreachableError
from plimsoll.tools.cluster_state import ClusterObjects, ClusterState
from plimsoll.tools.cluster_state.kinds import KINDS
from plimsoll.tools.cluster_state.live import follow_live, read_live
from plimsoll.tools.cluster_state.missing_kinds import summarize_gaps
from tests.dumps import big_cluster, objects_of
from tests.unit.tools.cluster_state.beta_versions import to_beta
from tests.unit.tools.cluster_state.fake_api_server import FakeApiServer
from tests.waiting import DEADLINE, until

Tree = dict[str, Any]


def read(api_server: FakeApiServer, **options: Any) -> ClusterObjects:
    return asyncio.run(read_live(api_server.client(), **options))


def bodies(objects: ClusterObjects) -> list[Any]:
    return sorted(map(repr, objects))


def requested(objects: ClusterObjects) -> list[dict[str, int]]:
    snapshot = ClusterState(objects).snapshot
    return [snapshot.ledger(place).requested for place in snapshot.rows()]


def test_everything_is_read_and_nothing_is_missing() -> None:
    trees = big_cluster(3)
    found = read(FakeApiServer(trees))
    assert bodies(found) == bodies(objects_of(trees))
    assert found.gaps == []


def test_big_collections_are_read_in_pages() -> None:
    trees = big_cluster(600, pods_per_node=1)
    api_server = FakeApiServer(trees)
    ticks: list[tuple[str, int, int]] = []
    found = read(api_server, tick=lambda *tick: ticks.append(tick))
    assert len(found.all(Node)) == 600
    assert api_server.requests.count("/api/v1/nodes") == 2
    assert ("reading nodes", 500, 0) in ticks


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2", "v1alpha3"])
def test_a_cluster_that_serves_an_older_version_only(version: str) -> None:
    trees = big_cluster(2)
    old = [to_beta(tree, version) for tree in trees]
    found = read(FakeApiServer(old, {"resource.k8s.io": version}))
    assert found.gaps == []
    wanted = objects_of(trees)
    kinds: tuple[type[Any], ...] = (ResourceSlice, ResourceClaim)
    for kind in kinds:
        assert [each.spec for each in found.all(kind)] == [each.spec for each in wanted.all(kind)]
    # The ledgers are equal too.
    assert requested(found) == requested(wanted)
    assert requested(found)[0]["cpu"] == 9_000  # two plain pods of 2, 500m + 4 by claim, 500m


def test_an_unserved_kind_is_reported_and_skipped() -> None:
    api_server = FakeApiServer(big_cluster(1))
    api_server.unserved = {"devicetaintrules"}
    (gap,) = read(api_server).gaps
    assert (gap.kind, gap.served) == ("devicetaintrules", False)
    assert summarize_gaps([gap]) == []


def test_a_forbidden_optional_kind_is_a_gap() -> None:
    api_server = FakeApiServer(big_cluster(1))
    api_server.refused["/api/v1/persistentvolumes"] = 403
    (gap,) = read(api_server).gaps
    assert str(gap) == "persistentvolumes: Forbidden here"
    assert gap.served


@pytest.mark.parametrize(
    ("path", "status", "namespace", "message"),
    [
        ("nodes", 403, "", "nodes cannot be read: Forbidden here; use a user who can list them"),
        ("pods", 401, "", "pods cannot be read: .*check the credentials in the kubeconfig"),
        ("pods", 403, "", "in all namespaces, or select a namespace with -n"),
        ("pods", 403, "elsewhere", "pods cannot be read"),
    ],
)
def test_a_forbidden_required_kind_is_one_line(path: str, status: int, namespace: str, message: str) -> None:
    api_server = FakeApiServer(big_cluster(1))
    api_server.refused[f"/api/v1/{path}"] = status
    with pytest.raises(InputError, match=message) as caught:
        read(api_server, namespace=namespace)
    assert "\n" not in str(caught.value)


def test_rights_in_one_namespace_only() -> None:
    trees = big_cluster(2)
    other = next(tree for tree in trees if tree["kind"] == "Pod")
    trees.append({**other, "metadata": {**other["metadata"], "namespace": "secret", "uid": "x"}})
    api_server = FakeApiServer(trees)
    for path in ("/api/v1/pods", "/apis/resource.k8s.io/v1/resourceclaims"):
        api_server.refused[path] = 403
    found = read(api_server, namespace="work")
    assert {pod.metadata.namespace for pod in found.all(Pod)} == {"work"}
    assert found.all(ResourceClaim)
    assert [(gap.kind, gap.whole) for gap in found.gaps] == [("resourceclaims", False), ("pods", False)]
    assert "only namespace work is included" in found.gaps[0].why
    assert summarize_gaps(found.gaps) == ["resourceclaims, pods: only namespace work can be listed"]


def test_without_discovery_the_default_versions_are_used() -> None:
    trees = big_cluster(2)
    api_server = FakeApiServer(trees)
    api_server.refused = {"/api": 403, "/apis": 403}
    assert bodies(read(api_server)) == bodies(objects_of(trees))


def test_one_unreadable_object_is_a_gap_of_its_kind() -> None:
    trees = big_cluster(2)
    next(tree for tree in trees if tree["kind"] == "ResourceSlice")["spec"]["devices"] = "none"
    found = read(FakeApiServer(trees))
    (gap,) = found.gaps
    assert str(gap).startswith("resourceslices: 1 cannot be decoded; the first: spec.devices: must be a list")
    assert not gap.whole
    assert len(found.all(ResourceSlice)) == 3


def test_no_answer_is_one_error() -> None:
    api_server = FakeApiServer([])
    api_server.dead = True
    with pytest.raises(UnreachableError, match="connection refused"):
        read(api_server)


# -- watching


def follow(
    api_server: FakeApiServer, cluster_state: ClusterState, scenario: Callable[[list[int]], Any]
) -> None:
    async def run() -> None:
        changes: list[int] = []
        task = asyncio.create_task(follow_live(api_server.client(), cluster_state, lambda: changes.append(1)))
        try:
            await scenario(changes)
        finally:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(run())


async def test_problems_and_recovery_are_reported() -> None:
    """Also for kinds without changes: a watch that works again ends the problem."""
    api_server = FakeApiServer(big_cluster(2, pending=1))
    cluster_state = ClusterState(await read_live(api_server.client()))
    stored: list[str] = []
    following = follow_live(api_server.client(), cluster_state, lambda: None, on_error=stored.append)
    task = asyncio.create_task(following)
    await until(lambda: api_server.streams == len(KINDS))
    api_server.dead = True
    api_server.cut()
    await until(lambda: any("connection refused" in each for each in stored))
    api_server.dead = False
    await until(lambda: stored[-1] == "")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_changes_arrive_and_watches_reconnect() -> None:
    trees = big_cluster(2, pending=1)
    api_server = FakeApiServer(trees)
    cluster_state = ClusterState(read(api_server))
    node = next(tree for tree in trees if tree["kind"] == "Node")
    fresh = {**node, "metadata": {**node["metadata"], "name": "fresh", "uid": "fresh"}}

    async def scenario(changes: list[int]) -> None:
        await until(lambda: bool(changes))
        assert changes == [1]  # what was read before is not news; everything listed is
        api_server.emit("ADDED", fresh)
        await until(lambda: cluster_state.objects.find(Node, "", "fresh") is not None)
        assert cluster_state.snapshot.row_of("fresh") is not None
        before = api_server.streams
        api_server.cut()
        await until(lambda: api_server.streams > before)
        api_server.emit("DELETED", fresh)
        await until(lambda: cluster_state.objects.find(Node, "", "fresh") is None)
        assert cluster_state.snapshot.row_of("fresh") is None

    follow(api_server, cluster_state, scenario)


def test_ignored_fields_of_mappings_are_followed() -> None:
    trees = big_cluster(2, pending=1)
    api_server = FakeApiServer(trees)
    cluster_state = ClusterState(read(api_server))
    slice = next(tree for tree in trees if tree["kind"] == "ResourceSlice")
    name = slice["metadata"]["name"]
    mapping = {"nodeAllocatableResourceMappings": {"cpu": {"quantityFrom": {"capacity": "cpu"}}}}
    device = {**slice["spec"]["devices"][0], **mapping}
    mixed = {**slice, "spec": {**slice["spec"], "devices": [device]}}

    async def scenario(changes: list[int]) -> None:
        await until(lambda: bool(changes))
        assert cluster_state.objects.ignored_fields == {}
        api_server.emit("MODIFIED", mixed)
        await until(lambda: name in cluster_state.objects.ignored_fields)
        api_server.emit("MODIFIED", slice)
        await until(lambda: name not in cluster_state.objects.ignored_fields)
        api_server.emit("MODIFIED", mixed)
        await until(lambda: name in cluster_state.objects.ignored_fields)
        api_server.emit("DELETED", mixed)
        await until(lambda: name not in cluster_state.objects.ignored_fields)

    follow(api_server, cluster_state, scenario)


def test_objects_deleted_between_list_and_watch_are_removed() -> None:
    trees = big_cluster(2, pending=1)
    api_server = FakeApiServer(trees)
    cluster_state = ClusterState(read(api_server))
    gone = next(pod for pod in cluster_state.pods if pod.spec.node_name)
    api_server.trees = [tree for tree in trees if tree["metadata"]["name"] != gone.metadata.name]

    async def scenario(changes: list[int]) -> None:
        await until(lambda: cluster_state.objects.find(Pod, "work", gone.metadata.name) is None)
        await until(lambda: len(changes) >= 2)

    follow(api_server, cluster_state, scenario)


def test_a_wrong_configuration_is_one_error() -> None:
    api_server = FakeApiServer(big_cluster(1))
    cluster_state = ClusterState(read(api_server))

    async def run() -> None:
        task = asyncio.create_task(follow_live(api_server.client(), cluster_state, lambda: None))
        await asyncio.sleep(0)
        api_server.broken = True
        async with asyncio.timeout(DEADLINE):
            await task

    with pytest.raises(ConfigError, match="no such file"):
        asyncio.run(run())


def test_forbidden_kinds_are_not_watched() -> None:
    api_server = FakeApiServer(big_cluster(1))
    api_server.refused["/api/v1/persistentvolumes"] = 403
    cluster_state = ClusterState(ClusterObjects())

    async def scenario(changes: list[int]) -> None:
        await until(lambda: bool(cluster_state.objects.all(Pod)))

    follow(api_server, cluster_state, scenario)
    assert [gap.kind for gap in cluster_state.objects.gaps] == ["persistentvolumes"]
