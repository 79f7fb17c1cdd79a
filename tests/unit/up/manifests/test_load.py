"""Manifests loaded into a running cluster: a dump restores the same ledgers; loading it twice is harmless."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_OID, uuid5

import pytest

from plimsoll.client import Client
from plimsoll.tools.cluster_state import ClusterState, Source, read_cluster_state
from plimsoll.tools.cluster_state.live import read_live
from plimsoll.tools.cluster_state.manifests import ParsedObject, parse_objects, read_objects
from plimsoll.tools.top.nodes import node_rows
from plimsoll.up.local_cluster import LocalCluster
from plimsoll.up.manifests import LoadResult, load
from tests.dumps import big_cluster, usecase_dump, write_dump

MANIFESTS = """
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop}
spec: {containers: [{name: a, image: a, resources: {requests: {cpu: "1"}}}]}
---
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {capacity: {cpu: "4", memory: 4Gi, pods: "10"}, allocatable: {cpu: "3", memory: 4Gi, pods: "10"}}
"""


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as running:
        yield running


def bring(cluster: LocalCluster, found: list[ParsedObject], own: tuple[str, ...] = ()) -> LoadResult:
    async def work() -> LoadResult:
        async with cluster.connect() as client:
            return await load(client, found, own)

    return asyncio.run(work())


def cluster_state(cluster: LocalCluster) -> ClusterState:
    async def read(client: Client) -> Any:
        async with client:
            return await read_live(client)

    return ClusterState(asyncio.run(read(cluster.connect())))


def test_manifests_in_any_order_and_again(cluster: LocalCluster) -> None:
    found = list(parse_objects(MANIFESTS, "file.yaml"))
    first = bring(cluster, found)
    assert (first.new, first.known, first.problems) == (2, 0, [])
    pod, node = cluster.client.get("pods", "web", "shop"), cluster.client.get("nodes", "n1")
    assert node["status"]["allocatable"]["cpu"] == "3"
    assert node["metadata"]["annotations"] == {"plimsoll.dev/simulated": "true"}
    again = bring(cluster, list(reversed(found)))
    assert (again.new, again.known, again.problems) == (0, 2, [])
    assert cluster.client.get("pods", "web", "shop")["metadata"]["uid"] == pod["metadata"]["uid"]
    assert cluster.client.get("nodes", "n1")["status"] == node["status"]


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


def test_workloads_of_a_dump_keep_their_pods(cluster: LocalCluster) -> None:
    template = "template: {metadata: {labels: LABELS}, spec: {containers: [{name: c, image: x}]}}"
    text = f"""
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web, namespace: default, uid: "1"}}
spec: {{replicas: 1, selector: {{matchLabels: {{app: web}}}}, {template.replace("LABELS", "{app: web}")}}}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata:
  name: web-abc
  namespace: default
  uid: "2"
  labels: {{app: web, pod-template-hash: abc}}
  ownerReferences: [{{apiVersion: apps/v1, kind: Deployment, name: web, uid: "1", controller: true}}]
spec:
  replicas: 1
  selector: {{matchLabels: {{app: web, pod-template-hash: abc}}}}
  {template.replace("LABELS", "{app: web, pod-template-hash: abc}")}
---
apiVersion: v1
kind: Pod
metadata:
  name: web-abc-1
  namespace: default
  uid: "3"
  labels: {{app: web, pod-template-hash: abc}}
  ownerReferences: [{{apiVersion: apps/v1, kind: ReplicaSet, name: web-abc, uid: "2", controller: true}}]
spec: {{nodeName: n1, containers: [{{name: c, image: x}}]}}
"""
    assert bring(cluster, list(parse_objects(text, "dump"))).problems == []
    observed = lambda tree: "observedGeneration" in tree.get("status", {})  # noqa: E731
    cluster.wait_for("deployments", "web", condition=observed)
    names = [each["metadata"]["name"] for each in cluster.client.list("pods", "default")]
    sets = [each["metadata"]["name"] for each in cluster.client.list("replicasets", "default")]
    assert (names, sets) == (["web-abc-1"], ["web-abc"])
    (owner,) = cluster.client.get("pods", "web-abc-1", "default")["metadata"]["ownerReferences"]
    assert owner["uid"] == cluster.client.get("replicasets", "web-abc", "default")["metadata"]["uid"]


def test_objects_of_the_dumped_cluster_are_skipped(cluster: LocalCluster) -> None:
    text = """
apiVersion: example.com/v1
kind: Widget
metadata: {name: w, uid: "1"}
---
apiVersion: v1
kind: Event
metadata: {name: e, namespace: default, uid: "2"}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: s, uid: "3"}
spec: {driver: d.example.com, nodeName: own, pool: {name: own, generation: 1, resourceSliceCount: 1}}
---
apiVersion: v1
kind: Node
metadata: {name: own, uid: "4", labels: {a: b}}
status: {capacity: {cpu: "4", memory: 4Gi, pods: "10"}}
"""
    loaded = bring(cluster, list(parse_objects(text, "dump")), own=("own",))
    assert loaded.problems == []
    assert loaded.lines() == [
        "skipped: 1 Event, 1 ResourceSlice of nodes that publish their own, "
        "1 example.com/v1 Widget (not served)"
    ]
    node = cluster.client.get("nodes", "own")
    assert node["metadata"]["labels"] == {"a": "b"}
    assert "annotations" not in node["metadata"]
    assert "capacity" not in node.get("status", {})


def test_a_claim_from_a_template_comes_back_with_its_pod(cluster: LocalCluster, tmp_path: Path) -> None:
    """Devices, reservation and owner are those of the new pod; no second claim is made."""
    path = usecase_dump("overcommit")
    found = list(read_objects([path]))
    assert bring(cluster, found).problems == []
    pod = cluster.client.get("pods", "dra-two-plus-one", "uc-overcommit")
    (entry,) = pod["spec"]["resourceClaims"]
    claim = cluster.client.get("resourceclaims", entry["resourceClaimName"], "uc-overcommit")
    assert [each["uid"] for each in claim["status"]["reservedFor"]] == [pod["metadata"]["uid"]]
    assert [each["uid"] for each in claim["metadata"]["ownerReferences"]] == [pod["metadata"]["uid"]]
    assert claim["status"]["allocation"]["devices"]["results"]
    claims = cluster.client.list("resourceclaims", "uc-overcommit")
    assert len(claims) == sum(each.kind == "ResourceClaim" for each in found)
    # What has changed since stays as it is.
    cluster.client.delete("pods", "dra-two-plus-one", "uc-overcommit", grace=0)
    cluster.wait_for("resourceclaims", entry["resourceClaimName"], "uc-overcommit", gone=True)


@pytest.mark.parametrize(
    "name", ["overcommit", "uc1", "uc3", "uc4", "hugepages-ephemeral", "individual-devices", "admin-access"]
)
def test_the_ledgers_of_a_dump_round_trip(cluster: LocalCluster, name: str) -> None:
    path = usecase_dump(name)
    loaded = bring(cluster, list(read_objects([path])))
    assert loaded.problems == []
    assert node_rows(cluster_state(cluster)) == node_rows(read_cluster_state(Source((str(path),))))


def test_the_ledgers_of_a_generated_cluster_round_trip(cluster: LocalCluster, tmp_path: Path) -> None:
    trees = big_cluster(5)
    for tree in trees:
        for result in tree.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ()):
            if "shareID" in result:
                result["shareID"] = str(uuid5(NAMESPACE_OID, result["shareID"]))
    path = write_dump(trees, tmp_path / "dump.json", "json")
    loaded = bring(cluster, list(read_objects([path])))
    assert loaded.problems == []
    assert node_rows(cluster_state(cluster)) == node_rows(read_cluster_state(Source((str(path),))))


def test_service_accounts_that_a_dump_leaves_out_are_created(cluster: LocalCluster) -> None:
    text = """
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop UID}
spec: {serviceAccountName: robot, containers: [{name: a, image: a}]}
"""
    manifest = bring(cluster, list(parse_objects(text.replace(" UID", ""), "file.yaml")))
    (problem,) = manifest.problems
    assert 'serviceaccount "robot" not found' in problem
    dumped = bring(cluster, list(parse_objects(text.replace(" UID", ", uid: u"), "dump.yaml")))
    assert (dumped.new, dumped.known, dumped.problems) == (1, 1, [])
    assert cluster.client.get("pods", "web", "shop")["spec"]["serviceAccountName"] == "robot"
    assert cluster.client.get("serviceaccounts", "robot", "shop")
