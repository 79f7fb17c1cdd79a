"""Manifests loaded into a running cluster; loading them twice is harmless."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from plimsoll.tools.cluster_state.manifests import ParsedObject, parse_objects
from plimsoll.up.local_cluster import LocalCluster
from plimsoll.up.manifests import LoadResult, load

MANIFESTS = """
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop}
spec: {containers: [{name: a, image: a, resources: {requests: {cpu: "1"}}}]}
---
apiVersion: v1
kind: Node
metadata: {name: n1}
"""


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as running:
        yield running


def bring(cluster: LocalCluster, found: list[ParsedObject]) -> LoadResult:
    async def work() -> LoadResult:
        async with cluster.connect() as client:
            return await load(client, found)

    return asyncio.run(work())


def test_manifests_in_any_order_and_again(cluster: LocalCluster) -> None:
    found = list(parse_objects(MANIFESTS, "file.yaml"))
    first = bring(cluster, found)
    assert (first.new, first.known, first.problems) == (2, 0, [])
    pod = cluster.client.get("pods", "web", "shop")
    again = bring(cluster, list(reversed(found)))
    assert (again.new, again.known, again.problems) == (0, 2, [])
    assert cluster.client.get("pods", "web", "shop")["metadata"]["uid"] == pod["metadata"]["uid"]


def test_recorded_objects_are_restored_and_not_loaded(cluster: LocalCluster) -> None:
    text = "{apiVersion: v1, kind: Node, metadata: {name: n}, status: {capacity: {cpu: 1}}}"
    assert bring(cluster, list(parse_objects(text, "dump"))).all == 0


def test_refused_objects_have_one_line_each(cluster: LocalCluster) -> None:
    text = """
apiVersion: v1
kind: Pod
metadata: {name: No-Name, namespace: shop}
spec: {containers: [{name: a, image: a}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {generateName: some-}
---
apiVersion: example.com/v1
kind: Widget
metadata: {name: w}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: fine}
---
apiVersion: v1
kind: ConfigMap
metadata: 7
---
kind: ConfigMap
metadata: {name: old}
"""
    loaded = bring(cluster, list(parse_objects(text, "file.yaml")))
    assert loaded.new == 1
    assert sorted(problem.split(":")[0] for problem in loaded.problems) == [
        "file.yaml, document 1, line 2",
        "file.yaml, document 2, line 6",
        "file.yaml, document 3, line 10",
        "file.yaml, document 5, line 18",
        "file.yaml, document 6, line 22",
    ]
    assert 'Pod shop/No-Name: Pod "No-Name" is invalid: metadata.name' in "\n".join(loaded.problems)
    assert "example.com/v1 Widget: the cluster serves no such kind" in "\n".join(loaded.problems)
    assert "ConfigMap old: apiVersion: must be given; use v1" in "\n".join(loaded.problems)
    assert "ConfigMap without a name: metadata.name: required" in "\n".join(loaded.problems)
    assert all("\n" not in problem for problem in loaded.problems)
    assert len(loaded.lines(most=2)) == 3
    assert loaded.lines(most=2)[-1] == "and 3 more rejected: see the log"
