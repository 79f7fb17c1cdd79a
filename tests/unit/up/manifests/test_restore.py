"""Recorded objects come back as they were, and controllers find nothing to do."""

from __future__ import annotations

from typing import Any
from uuid import NAMESPACE_OID, uuid5

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.kept import KEPT
from plimsoll.apiserver.context import ApiContext
from plimsoll.apiserver.storage import Store
from plimsoll.client.endpoints import PODS, RESOURCE_CLAIMS
from plimsoll.ledger.placeholders import NAMESPACE
from plimsoll.tools.cluster_state.manifests import parse_objects, read_objects
from plimsoll.tools.top.nodes import node_rows
from plimsoll.up.manifests import LoadResult, restore
from plimsoll.up.manifests.completion import SIMULATED, can_be_simulated
from tests.dumps import big_cluster, make_cluster_state, usecase_dump
from tests.unit.tools.stock_cluster import placeholders_in, stock_trees
from tests.unit.up.manifests.restored import parsed, restored_cluster, stored

Tree = dict[str, Any]
CONTAINERS = "containers: [{name: c, image: x}]"
NODE = """
---
apiVersion: v1
kind: Node
metadata: {name: n1, uid: node}
status: {allocatable: {cpu: "8", memory: 8Gi, pods: "110"}, conditions: [{type: Ready, status: "True"}]}
"""


def pod(name: str, owner: str = "", metadata: str = "", spec: str = "", status: str = "") -> str:
    """Return a running pod of a dump. `owner` is the kind of its controller, called `w`."""
    version = "batch/v1" if owner == "Job" else "apps/v1"
    reference = f"{{apiVersion: {version}, kind: {owner}, name: w, uid: w, controller: true}}"
    owners = f", ownerReferences: [{reference}]" if owner else ""
    return f"""
---
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: x, uid: {name}{owners}{metadata}}}
spec: {{nodeName: n1, {CONTAINERS}{spec}}}
status: {{phase: Running, conditions: [{{type: Ready, status: "True"}}]{status}}}
"""


def workload(kind: str, spec: str, metadata: str = "", status: str = "") -> str:
    version = "batch/v1" if kind == "Job" else "apps/v1"
    return f"""
---
apiVersion: {version}
kind: {kind}
metadata: {{name: w, namespace: x, uid: w{metadata}}}
spec: {{{spec}}}
status: {{{status}}}
"""


def template(labels: str = "", spec: str = "") -> str:
    return f"template: {{metadata: {{labels: {{{labels}}}}}, spec: {{{CONTAINERS}{spec}}}}}"


SELECTOR = "selector: {matchLabels: {app: w}}, "
APP = ", labels: {app: w}"
NUMBER = "it did not have the pods that it should have"
JOB_LABELS = (
    "{batch.kubernetes.io/controller-uid: w, batch.kubernetes.io/job-name: w, controller-uid: w, job-name: w}"
)


@pytest.mark.parametrize(
    "dump",
    [
        # As kubectl shows them, with everything that the server set.
        workload(
            "Job",
            "backoffLimit: 6, completions: 1, manualSelector: false, parallelism: 1, "
            "selector: {matchLabels: {batch.kubernetes.io/controller-uid: w}}, suspend: false, "
            + template(JOB_LABELS[1:-1], ", restartPolicy: Never"),
            ", generation: 1, resourceVersion: '7', labels: " + JOB_LABELS,
            "active: 1, ready: 1, startTime: 2026-01-01T00:00:00Z, uncountedTerminatedPods: {}",
        )
        + pod("w-abcde", "Job", f", generateName: w-, labels: {JOB_LABELS}", ", restartPolicy: Never"),
        # As written by hand.
        workload("Job", template(spec=", restartPolicy: Never"))
        + pod("p", "Job", spec=", restartPolicy: Never"),
        workload("ReplicaSet", f"replicas: 2, {SELECTOR}{template('app: w')}", status="replicas: 2")
        + pod("a", "ReplicaSet", APP)
        + pod("b", "ReplicaSet"),
        workload("DaemonSet", SELECTOR + template("app: w"), status="numberReady: 1") + pod("a", "DaemonSet"),
        workload("DaemonSet", SELECTOR + template("app: w"), status="numberReady: 1")
        + pod("a", "DaemonSet", ", labels: {app: w, controller-revision-hash: 6d4cf56db6}"),
        workload(
            "StatefulSet",
            f"replicas: 2, serviceName: w, {SELECTOR}{template('app: w')}",
            ", generation: 3",
            "observedGeneration: 3, replicas: 2, currentRevision: w-6d4cf56db6, "
            "updateRevision: w-6d4cf56db6, currentReplicas: 2, updatedReplicas: 2, readyReplicas: 2",
        )
        + pod("w-0", "StatefulSet", ", labels: {app: w, controller-revision-hash: w-6d4cf56db6}")
        + pod("w-1", "StatefulSet", ", labels: {app: w, controller-revision-hash: w-6d4cf56db6}"),
    ],
)
async def test_workloads_keep_their_pods(dump: str) -> None:
    async with restored_cluster(NODE + dump) as (cluster, result):
        await cluster.advance(120)
        assert (result.problems, result.left_out) == ([], {})
        there = stored(cluster.store)
        pods = {name: tree for (kind, _, name), tree in there.items() if kind == "Pod"}
        assert {name: tree["metadata"]["uid"] for name, tree in pods.items()} == {
            name: name for name in pods
        }  # all have the uid of the dump: none was created
        assert len(pods) == result.new - 2  # the node and the workload
        for tree in pods.values():
            (owner,) = tree["metadata"]["ownerReferences"]
            assert (owner["uid"], tree["metadata"].get("deletionTimestamp")) == ("w", None)
        if ("Job", "x", "w") in there:
            assert there["Job", "x", "w"]["status"]["active"] == 1


async def test_quotas_count_what_they_counted() -> None:
    quota = """
---
{apiVersion: v1, kind: ResourceQuota, metadata: {name: q, namespace: x, uid: q}, spec: {hard: {pods: "2"}},
status: {hard: {pods: "2"}, used: {pods: "2"}}}
"""
    async with restored_cluster(quota + pod("a") + pod("b") + NODE) as (cluster, result):
        await cluster.advance(60)
        assert (result.new, result.problems) == (4, [])
        assert stored(cluster.store)["ResourceQuota", "x", "q"]["status"]["used"] == {"pods": "2"}
        assert await cluster.names(PODS, "x") == ["a", "b"]


CLAIM = """
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: c, namespace: x, uid: c, finalizers: [resource.kubernetes.io/delete-protection]}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: d}}]}}
status:
  allocation: {devices: {results: [{request: r, driver: d.example.com, pool: n1, device: d}]}}
  RESERVED
"""
USES = ", resourceClaims: [{name: c, resourceClaimName: c}]"
SLICE = """
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: s, uid: s}
spec:
  {driver: d.example.com, nodeName: n1, pool: {name: n1, generation: 1, resourceSliceCount: 1},
   devices: [{name: d, taints: [{key: k, effect: NoExecute, timeAdded: 2026-01-01T00:00:00Z}]}]}
"""
UNREACHABLE = NODE.replace('"True"', "Unknown").replace(
    "status:", "spec: {taints: [{key: node.kubernetes.io/unreachable, effect: NoExecute}]}\nstatus:", 1
)
JOB = workload(
    "Job",
    "ttlSecondsAfterFinished: 1, activeDeadlineSeconds: 60, completions: 1, parallelism: 1, "
    + template(spec=", restartPolicy: Never"),
    status="STATUS",
)


@pytest.mark.parametrize(
    ("dump", "kept", "reason"),
    [
        (pod("p", "ReplicaSet") + NODE, "Pod x/p", "its ReplicaSet is not in the files"),
        (pod("p"), "Pod x/p", "its node is not in the files"),
        (pod("p") + UNREACHABLE, "Pod x/p", "a NoExecute taint of its node"),
        (UNREACHABLE, "Node n1", "it was not ready"),
        (
            pod("p", metadata=", deletionTimestamp: 2026-01-01T00:00:00Z, deletionGracePeriodSeconds: 30")
            + NODE,
            "Pod x/p",
            "it was terminating",
        ),
        (
            pod("p", spec=", activeDeadlineSeconds: 60", status=", startTime: 2026-01-01T00:00:00Z") + NODE,
            "Pod x/p",
            "its active deadline has passed since",
        ),
        (
            pod("p", spec=USES)
            + NODE
            + SLICE
            + CLAIM.replace("RESERVED", "reservedFor: [{resource: pods, name: p, uid: p}]"),
            "Pod x/p",
            "a NoExecute taint of its device",
        ),
        (
            CLAIM.replace("RESERVED", "reservedFor: [{resource: pods, name: p, uid: gone}]"),
            "ResourceClaim x/c",
            "reserved for a pod that does not run",
        ),
        (
            JOB.replace("STATUS", "startTime: 2026-01-01T00:00:00Z, active: 1") + pod("p", "Job") + NODE,
            "Job x/w",
            "its active deadline has passed since",
        ),
        (
            JOB.replace(
                "STATUS",
                "succeeded: 1, startTime: 2026-01-01T00:00:00Z, completionTime: 2026-01-01T00:00:30Z, "
                "conditions: [{type: Complete, status: 'True', lastTransitionTime: 2026-01-01T00:00:30Z}]",
            ),
            "Job x/w",
            "its time to live has passed since",
        ),
    ],
)
async def test_what_controllers_would_remove_is_kept_and_named(dump: str, kept: str, reason: str) -> None:
    async with restored_cluster(dump) as (cluster, result):
        assert kept in result.notes[f"kept as in the files: {reason}"]
        before = stored(cluster.store)
        await cluster.advance(600)
        after = stored(cluster.store)
        kinds = ("Pod", "ResourceClaim", "Job")
        assert {key for key in after if key[0] in kinds} == {key for key in before if key[0] in kinds}
        for key, tree in before.items():
            for name in ("deletionTimestamp", "ownerReferences"):
                assert after[key]["metadata"].get(name) == tree["metadata"].get(name)
            if key[0] == "ResourceClaim":
                assert after[key]["status"] == tree["status"]


WITH_APP = SELECTOR + template("app: w")


@pytest.mark.parametrize(
    ("dump", "kept", "reason"),
    [
        (
            """
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: w, namespace: x, uid: w, creationTimestamp: 2026-01-01T00:00:00Z}
spec:
  schedule: "0 3 * * *"
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: x}]}}}}
status: {lastScheduleTime: 2026-01-02T03:00:00Z}
""",
            "CronJob x/w",
            "a time of its schedule has passed since",
        ),
        (
            workload("ReplicaSet", f"replicas: 3, {WITH_APP}", status="replicas: 1")
            + pod("a", "ReplicaSet", APP),
            "ReplicaSet x/w",
            NUMBER,
        ),
        (
            workload("Job", "parallelism: 3, " + template(spec=", restartPolicy: Never"))
            + pod("a", "Job", spec=", restartPolicy: Never"),
            "Job x/w",
            NUMBER,
        ),
        (
            workload("StatefulSet", f"replicas: 3, serviceName: w, {WITH_APP}", status="replicas: 1")
            + pod("w-0", "StatefulSet", APP),
            "StatefulSet x/w",
            NUMBER,
        ),
        (
            workload("DaemonSet", WITH_APP, status="currentNumberScheduled: 1")
            + pod("a", "DaemonSet", APP)
            + NODE.replace("n1, uid: node", "n2, uid: second"),
            "DaemonSet x/w",
            NUMBER,
        ),
        (
            workload("Deployment", f"replicas: 1, {WITH_APP}").replace("uid: w", "uid: d")
            + workload("ReplicaSet", f"replicas: 1, {WITH_APP}".replace("image: x", "image: z")).replace(
                "uid: w",
                "uid: w, labels: {app: w}, ownerReferences: "
                "[{apiVersion: apps/v1, kind: Deployment, name: w, uid: d, controller: true}]",
            )
            + pod("a", "ReplicaSet", APP),
            "Deployment x/w",
            "its ReplicaSets would be scaled",
        ),
    ],
)
async def test_workloads_that_would_start_or_stop_pods_are_kept(dump: str, kept: str, reason: str) -> None:
    async with restored_cluster(NODE + dump) as (cluster, result):
        assert result.notes[f"kept as in the files: {reason}"] == [kept]
        before = stored(cluster.store)
        await cluster.advance(600)
        assert stored(cluster.store).keys() == before.keys()


async def test_pods_that_the_files_lack_are_created() -> None:
    dump = workload("ReplicaSet", f"replicas: 2, {WITH_APP}", status="replicas: 2")
    async with restored_cluster(NODE + dump + pod("a", "ReplicaSet", APP)) as (cluster, _):
        assert len(await cluster.names(PODS, "x")) == 2


async def test_controllers_act_once_an_object_is_kept_no_longer() -> None:
    claim = CLAIM.replace("RESERVED", "reservedFor: [{resource: pods, name: p, uid: gone}]")
    async with restored_cluster(claim + pod("p") + UNREACHABLE) as (cluster, _):
        for endpoint, name in ((RESOURCE_CLAIMS, "c"), (PODS, "p")):
            await cluster.client.patch(endpoint, name, {"metadata": {"annotations": {KEPT: None}}}, "x")
        await cluster.advance(600)
        released, evicted = await cluster.get(RESOURCE_CLAIMS, "c", "x"), await cluster.get(PODS, "p", "x")
        assert released is not None
        assert "allocation" not in released["status"]
        assert evicted is None or evicted["metadata"]["deletionTimestamp"]


PENDING = """
---
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: x, uid: {name}}}
spec:
  schedulerName: {scheduler}
  containers: [{{name: c, image: x, resources: {{requests: {{cpu: "{cpu}"}}}}}}]
status: {{phase: Pending}}
"""


async def test_pending_pods_that_could_be_scheduled_are_kept() -> None:
    pods = [
        ("fits", "default-scheduler", 5),
        ("too", "default-scheduler", 6),
        ("large", "default-scheduler", 9),
    ]
    pods.append(("other", "volcano", 1))
    dump = "".join(PENDING.format(name=name, scheduler=scheduler, cpu=cpu) for name, scheduler, cpu in pods)
    async with restored_cluster(dump + NODE) as (_, result):
        assert result.notes["kept as in the files: it was pending, and could be scheduled"] == [
            "Pod x/fits",
            "Pod x/too",
        ]


async def test_what_is_not_restored_is_named() -> None:
    dump = """
---
apiVersion: example.com/v1
kind: Widget
metadata: {name: w, namespace: x, uid: "1"}
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
---
apiVersion: policy/v1beta1
kind: PodDisruptionBudget
metadata: {name: old, namespace: x, uid: "5"}
---
apiVersion: v1
kind: Pod
metadata: {name: No-Name, namespace: x, uid: "6"}
spec: {containers: [{name: a, image: a}]}
---
apiVersion: v1
kind: Pod
metadata: {name: wrong, namespace: x, uid: "7"}
spec: {containers: 7}
status: {phase: Running}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: fine, namespace: x, uid: "8"}
"""
    async with restored_cluster(dump, own=("own",)) as (cluster, result):
        assert result.new == 2
        assert sorted(result.left_out.values()) == [
            ["PodDisruptionBudget x/old"],
            ["ResourceSlice s"],
            ["Widget x/w"],
        ]
        assert result.skipped == {"Event": 1}
        assert ["Pod x/No-Name" in text or "Pod x/wrong" in text for text in result.problems] == [True, True]
        text = "\n".join(result.lines())
        for name in ("Widget x/w", "example.com/v1 is not served", "policy/v1beta1", "policy/v1", "1 Event"):
            assert name in text
        node = stored(cluster.store)["Node", "", "own"]
        assert node["metadata"]["labels"] == {"a": "b"}
        assert "capacity" not in node["status"]


async def test_namespaces_and_service_accounts_that_a_dump_leaves_out_are_added() -> None:
    requests = "spec: {devices: {requests: [{name: r, exactly: {deviceClassName: c, adminAccess: true}}]}}"
    claim = f"""
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {{name: c, namespace: other, uid: c}}
{requests}
"""
    dump = pod("p", spec=", serviceAccountName: robot") + NODE + claim
    async with restored_cluster(dump) as (cluster, result):
        there = stored(cluster.store)
        assert {("Namespace", "", "x"), ("ServiceAccount", "x", "robot")} <= there.keys()
        labels = there["Namespace", "", "other"]["metadata"]["labels"]
        assert labels["resource.kubernetes.io/admin-access"] == "true"
        assert (result.new, result.problems) == (3, [])


def context() -> ApiContext:
    return ApiContext.for_store(Store.open(None))


def test_existing_objects_stay_and_references_to_them_are_right() -> None:
    cluster = context()
    first = restore(cluster, parse_objects(NODE, "dump"))
    again = restore(cluster, parse_objects(NODE, "dump"))
    assert (first.new, again.new, again.known, again.notes) == (1, 0, 1, {})
    dump = NODE.replace("uid: node", "uid: other") + pod(
        "p", metadata=", ownerReferences: [{apiVersion: v1, kind: Node, name: n1, uid: other}]"
    )
    third = restore(cluster, parse_objects(dump, "dump"))
    assert third.notes["not restored, another object of this name exists"] == ["Node n1"]
    (owner,) = stored(cluster.store)["Pod", "x", "p"]["metadata"]["ownerReferences"]
    assert owner["uid"] == "node"


@pytest.mark.parametrize(
    "name", ["overcommit", "uc1", "uc3", "uc4", "hugepages-ephemeral", "individual-devices", "admin-access"]
)
async def test_the_ledgers_of_a_dump_round_trip(name: str) -> None:
    trees = [each.tree for each in read_objects([usecase_dump(name)])]
    async with restored_cluster(trees) as (cluster, result):
        assert result.problems == []
        after = [tree for tree in stored(cluster.store).values() if tree["kind"] != "Event"]
    assert node_rows(make_cluster_state(after)) == node_rows(make_cluster_state(trees))


async def test_the_ledgers_of_a_generated_cluster_round_trip() -> None:
    trees = big_cluster(5)
    for tree in trees:
        for result in tree.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ()):
            if "shareID" in result:
                result["shareID"] = str(uuid5(NAMESPACE_OID, result["shareID"]))
    async with restored_cluster(trees) as (cluster, loaded):
        assert loaded.problems == []
        after = [tree for tree in stored(cluster.store).values() if tree["kind"] != "Event"]
    assert node_rows(make_cluster_state(after)) == node_rows(make_cluster_state(trees))


async def test_placeholders_come_back_and_are_counted_once() -> None:
    trees = stock_trees()
    for each in trees:
        for found in each.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ()):
            found["shareID"] = str(uuid5(NAMESPACE_OID, found["device"]))
    async with restored_cluster(trees) as (cluster, loaded):
        assert loaded.problems == []
        assert not any(NAMESPACE in name for names in loaded.notes.values() for name in names)
        await cluster.advance(600)
        after = [tree for tree in stored(cluster.store).values() if tree["kind"] != "Event"]
    assert len([each for each in placeholders_in(after) if each["kind"] == "Pod"]) == 2
    assert node_rows(make_cluster_state(after)) == node_rows(make_cluster_state(trees))


def node(annotations: Any = None, **status: Any) -> Tree:
    metadata = {"name": "n", "uid": "n", **({"annotations": annotations} if annotations else {})}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}


def test_ready_nodes_are_simulated() -> None:
    amounts = {"cpu": "8", "memory": "1Gi"}
    ready = [{"type": "Ready", "status": "True"}]
    assert can_be_simulated(node(allocatable=amounts, conditions=ready))
    assert not can_be_simulated(
        node(allocatable=amounts, conditions=[{"type": "Ready", "status": "Unknown"}])
    )
    assert not can_be_simulated(node(capacity={"cpu": "8"}))
    assert not can_be_simulated({"kind": "Node", "metadata": {"name": "n"}})
    for given_annotations, expected in (
        ({}, "true"),
        ({SIMULATED: "false"}, "false"),
        ({SIMULATED: "true"}, "true"),
    ):
        cluster = context()
        restore(cluster, parsed([node(given_annotations, capacity=amounts)]))
        assert stored(cluster.store)["Node", "", "n"]["metadata"]["annotations"] == {SIMULATED: expected}


def test_long_lists_of_names_are_cut() -> None:
    result = LoadResult()
    for number in range(60):
        result.leave_out("reason", {"kind": "Pod", "metadata": {"name": f"p{number}"}})
    (line,) = result.lines()
    assert line.startswith("60 not restored: reason: Pod p0, Pod p1")
    assert line.endswith("and 20 more (see the log)")


# Whatever stands in a file: it is restored, or named with the reason.
plain: st.SearchStrategy[Any] = st.sampled_from([None, True, 0, 3, "", "ab"])
wrong: st.SearchStrategy[Any] = st.one_of(
    plain, st.lists(plain, max_size=2), st.dictionaries(st.sampled_from(["name", "uid"]), plain)
)


def some(**right: Any) -> Any:
    """Mapping with valid, invalid and missing fields; or no mapping at all."""
    fields = {name: wrong | st.just(value) for name, value in right.items()}
    return wrong | st.fixed_dictionaries({}, optional=fields)


TREES = st.fixed_dictionaries(
    {
        "apiVersion": st.sampled_from(["v1", "apps/v1", "batch/v1", "resource.k8s.io/v1"]),
        "kind": st.sampled_from(
            ["Pod", "Node", "Namespace", "ResourceClaim", "ResourceSlice", "StatefulSet", "Job", "Other"]
        ),
    },
    optional={
        "metadata": some(
            name="a",
            uid="1",
            namespace="x",
            finalizers=["a/b"],
            annotations={},
            ownerReferences=[{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "a", "uid": "1"}],
        ),
        "spec": some(
            nodeName="n",
            containers=[{"name": "c", "image": "i"}],
            resourceClaims=[{"name": "a", "resourceClaimTemplateName": "t"}],
            selector={"matchLabels": {"a": "b"}},
            template={"metadata": {"labels": {"a": "b"}}, "spec": {"serviceAccountName": "s"}},
        ),
        "status": some(
            phase="Failed",
            resourceClaimStatuses=[{"name": "a", "resourceClaimName": "a"}, 1],
            conditions=[{"type": "Ready", "status": "False"}],
            capacity={"cpu": 1, "memory": 1},
            reservedFor=[{"name": "a", "resource": "pods"}],
        ),
    },
)


@given(st.lists(TREES, max_size=4))
def test_every_recorded_object_is_restored_or_named(trees: list[Tree]) -> None:
    cluster = context()
    result = restore(cluster, parsed(trees))
    named = [name for names in result.left_out.values() for name in names]
    recorded = len(trees) - sum(not _is_recorded(tree) for tree in trees)
    duplicates = recorded - result.new - len(result.problems) - len(named)
    assert 0 <= duplicates < max(recorded, 1)
    again = restore(cluster, parsed(trees))
    assert again.new == 0
    assert again.known == result.new


def _is_recorded(tree: Tree) -> bool:
    metadata = tree.get("metadata")
    known = metadata if isinstance(metadata, dict) else {}
    return bool(known.get("uid") or known.get("resourceVersion") or tree.get("status"))
