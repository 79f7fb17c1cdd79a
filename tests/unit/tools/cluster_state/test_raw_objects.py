"""Objects with all of their fields, from files and from a cluster."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from plimsoll.errors import InputError, UnreachableError
from plimsoll.tools.cluster_state import Source
from plimsoll.tools.cluster_state.missing_kinds import summarize_gaps
from plimsoll.tools.cluster_state.raw_objects import (
    ObjectQuery,
    RawObjects,
    list_raw_objects,
    read_raw_objects,
)
from tests.dumps import big_cluster, write_dump
from tests.unit.tools.cluster_state.beta_versions import to_beta
from tests.unit.tools.cluster_state.fake_api_server import FakeApiServer

ALL = ("nodes", "resourceslices", "deviceclasses", "resourceclaims", "pods")
KINDS = ("Node", "ResourceSlice", "DeviceClass", "ResourceClaim", "Pod")
RULE = {
    "apiVersion": "resource.k8s.io/v1alpha3",
    "kind": "DeviceTaintRule",
    "metadata": {"name": "by-class"},
    "spec": {"deviceSelector": {"deviceClassName": "gpu"}},
}


def read(api_server: FakeApiServer, *plurals: str, namespace: str = "", **options: Any) -> RawObjects:
    asked = ObjectQuery(plurals, **options)
    return asyncio.run(list_raw_objects(api_server.client(), "https://c", asked, namespace))


def in_file(trees: list[dict[str, Any]], directory: Path, namespace: str = "", **options: Any) -> RawObjects:
    path = write_dump(trees, directory / "dump.json", "json")
    return read_raw_objects(Source((str(path),), namespace=namespace), ObjectQuery(ALL, **options))


def names(trees: RawObjects) -> set[tuple[str, str]]:
    return {(found.kind, found.full_name) for found in trees.found}


def test_a_cluster_and_its_dump_have_the_same_trees(tmp_path: Path) -> None:
    trees = [tree for tree in big_cluster(2) if tree["kind"] != "Namespace"]
    trees[0]["spec"]["someday"] = {"a": [1, None]}  # unknown kinds
    of_cluster, of_file = read(FakeApiServer(trees), *ALL), in_file(trees, tmp_path)
    assert [found.tree for found in of_cluster.found] == sorted(
        (found.tree for found in of_file.found), key=lambda tree: KINDS.index(tree["kind"])
    )
    assert (of_cluster.gaps, of_file.gaps) == ([], [])


def test_only_requested_kinds_are_read() -> None:
    api_server = FakeApiServer(big_cluster(2))
    found = read(api_server, "resourceslices").found
    assert {each.kind for each in found} == {"ResourceSlice"}
    assert [path for path in api_server.requests if path not in ("/api", "/apis")] == [
        "/apis/resource.k8s.io/v1/resourceslices"
    ]
    assert found[0].where == "https://c, resourceslices node-0000-cpu"


def test_pages_are_put_together() -> None:
    assert len(read(FakeApiServer(big_cluster(600, pods_per_node=0)), "nodes").found) == 600


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2", "v1alpha3"])
def test_older_versions_are_read_as_v1(version: str, tmp_path: Path) -> None:
    trees = [tree for tree in big_cluster(1) if tree["kind"] == "ResourceSlice"]
    old = [to_beta(tree, version) for tree in trees]
    wanted = [tree["spec"] for tree in trees]
    of_cluster = read(FakeApiServer(old, {"resource.k8s.io": version}), "resourceslices")
    assert [found.tree["spec"] for found in of_cluster.found] == wanted
    assert [found.tree["spec"] for found in in_file(old, tmp_path).found] == wanted


def test_fields_missing_from_v1_are_dropped_and_reported(tmp_path: Path) -> None:
    trees = in_file([RULE, RULE], tmp_path)
    assert trees.found == []
    assert summarize_gaps(trees.gaps) == [
        "devicetaintrules: 2 skipped: it selects devices by class or CEL, which Kubernetes removed in 1.35"
    ]


# -- one namespace


def test_a_namespace_selects_its_objects_and_cluster_scoped_ones(tmp_path: Path) -> None:
    trees = big_cluster(1)
    other = next(tree for tree in trees if tree["kind"] == "Pod")
    trees.append({**other, "metadata": {**other["metadata"], "namespace": "other"}})
    wide, narrow = (
        read(FakeApiServer(trees), *ALL),
        read(FakeApiServer(trees), *ALL, namespace="work", narrow=True),
    )
    gone = names(wide) - names(narrow)
    assert gone == {("Pod", f"other/{other['metadata']['name']}")}
    assert names(read(FakeApiServer(trees), *ALL, namespace="work")) == names(wide)
    kept = names(in_file(trees, tmp_path, "work", narrow=True)) - {("Namespace", "work")}
    assert kept == names(narrow)


def test_rights_in_one_namespace() -> None:
    api_server = FakeApiServer(big_cluster(1))
    api_server.refused["/api/v1/pods"] = 403
    trees = read(api_server, "pods", namespace="work", needed=("pods",))
    assert trees.found
    assert summarize_gaps(trees.gaps) == ["pods: only namespace work can be listed"]
    with pytest.raises(InputError, match=r"https://c: pods cannot be read: .*or select a namespace with -n"):
        read(api_server, "pods")


# -- unreadable kinds


def test_forbidden_optional_kinds_are_gaps() -> None:
    api_server = FakeApiServer(big_cluster(1))
    api_server.refused["/api/v1/nodes"] = 403
    api_server.unserved = {"devicetaintrules"}
    trees = read(api_server, "nodes", "resourceslices", "devicetaintrules", needed=("resourceslices",))
    assert {found.kind for found in trees.found} == {"ResourceSlice"}
    assert summarize_gaps(trees.gaps) == ["nodes: forbidden for this user"]


@pytest.mark.parametrize(("code", "fix"), [(401, "credentials"), (403, "a user who can list"), (500, "")])
def test_forbidden_required_kinds_are_errors(code: int, fix: str) -> None:
    api_server = FakeApiServer(big_cluster(1))
    api_server.refused["/apis/resource.k8s.io/v1/resourceslices"] = code
    with pytest.raises(InputError, match=f"https://c: resourceslices cannot be read: .*{fix}"):
        read(api_server, "nodes", "resourceslices", needed=("resourceslices",))


def test_a_cluster_without_the_kinds() -> None:
    api_server = FakeApiServer(big_cluster(1))
    api_server.unserved = {"resourceslices", "deviceclasses"}
    with pytest.raises(InputError, match="https://c: deviceclasses cannot be read: not served"):
        read(api_server, "resourceslices", "deviceclasses")


def test_a_cluster_that_does_not_answer() -> None:
    api_server = FakeApiServer([])
    api_server.dead = True
    with pytest.raises(UnreachableError):
        read(api_server, "nodes")
