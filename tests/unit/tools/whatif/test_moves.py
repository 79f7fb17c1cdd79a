"""Changes to a cluster, and their effect on pods, claims and devices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plimsoll.api.core import Node, Pod
from plimsoll.api.resource import ResourceClaim, ResourceSlice
from plimsoll.errors import DecodeError, InputError
from plimsoll.scheduler.snapshot.verify import verify
from plimsoll.tools.cluster_state import ClusterObjects, ClusterState
from plimsoll.tools.whatif import EvictionReason, Whatif
from plimsoll.tools.whatif.manifests import read_manifests
from plimsoll.tools.whatif.outcome import moved_pods
from tests.build import (
    DRIVER,
    charging_device,
    claim,
    device,
    device_class,
    exactly,
    node,
    pod,
    resource_slice,
)
from tests.unit.tools.whatif.workloads import CLAIMING, TEMPLATE, owned, workload

POD = "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: i}]}}"


def whatif_of(*objects: Any) -> Whatif:
    return Whatif(ClusterState(ClusterObjects(objects)))


# -- adding


@pytest.mark.parametrize(
    ("tree", "count"),
    [
        (workload("Deployment", "apps/v1", replicas=3), 3),
        (workload("Deployment", "apps/v1"), 1),
        (workload("StatefulSet", "apps/v1", replicas=2), 2),
        (workload("ReplicaSet", "apps/v1", replicas=0), 0),
        (workload("Job", "batch/v1", parallelism=4), 4),
        (workload("Job", "batch/v1", parallelism=4, completions=2), 2),
    ],
)
def test_workloads_become_their_pods(tree: dict[str, Any], count: int) -> None:
    pods = read_manifests([tree]).things
    assert [each.metadata.name for each in pods] == [f"w-{number}" for number in range(count)]
    for each in pods:
        assert each.metadata.namespace == "team"
        assert each.metadata.labels == {"app": "w"}
        assert each.metadata.owner_references[0].kind == tree["kind"]
        assert each.spec.scheduler_name == "default-scheduler"  # the API's defaults are filled in


def test_replicas_are_for_pods_and_workloads() -> None:
    made = read_manifests([POD, workload("Deployment", "apps/v1", replicas=9)], replicas=2)
    assert [each.metadata.name for each in made.things] == ["p-0", "p-1", "w-0", "w-1"]
    assert len({each.metadata.uid for each in made.things}) == 4


def test_ignored_kinds_are_named() -> None:
    made = read_manifests(["{apiVersion: v1, kind: ConfigMap, metadata: {name: s}}", POD])
    assert made.passed_by == ["ConfigMap/s"]


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        (
            "{apiVersion: v1, kind: Pod, metadata: {name: p}}",
            "spec.containers: at least one container is required",
        ),
        ("{apiVersion: v1, kind: Pod, spec: {containers: [{name: c}]}}", "metadata.name: must not be empty"),
        (
            "{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {}}",
            "spec.template is missing",
        ),
        (
            "{apiVersion: apps/v1, kind: Job, metadata: {name: d}, spec: {parallelism: -1, template: {}}}",
            "from 0",
        ),
        ("{kind: Pod, metadata: 7}", "metadata: must be a mapping"),
        (
            "{apiVersion: apps/v1, kind: Pod, metadata: {name: p}}",
            "apiVersion: must be v1 for a Pod, not 'apps/v1'",
        ),
        ("[]", "an object must be a mapping"),
        (
            "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: c}, value: high}",
            "value: must be a whole number",
        ),
        (": : :", "manifest"),
    ],
)
def test_invalid_manifests_name_the_problem(manifest: str, words: str) -> None:
    with pytest.raises(InputError, match=r".") as error:
        read_manifests([manifest])
    assert words in str(error.value)


def test_an_existing_pod_is_not_replaced() -> None:
    whatif = whatif_of(node("n"), pod("p", node="n"))
    with pytest.raises(InputError, match="pod default/p already exists"):
        whatif.add(POD)


def test_claims_are_made_from_templates() -> None:
    whatif = whatif_of(node("n"), resource_slice([device("d")], "n"), device_class())
    whatif.add(CLAIMING)
    assert whatif.schedule().pending[0].why == 'pod "p": ResourceClaim not created yet'
    whatif.add(TEMPLATE)  # from now on there is one
    outcome = whatif.schedule()
    assert [(each.node, each.devices) for each in outcome.placed] == [("n", (f"{DRIVER}/n/d",))]
    made = whatif.cluster_state.objects.all(ResourceClaim)
    assert [each.metadata.name for each in made] == ["p-r-whatif"]
    assert [user.name for user in made[0].status.reserved_for] == ["p"]
    assert verify(whatif.cluster_state.snapshot) == []


def test_later_changes_see_earlier_ones() -> None:
    """Three pods, two devices: each alone would fit."""
    whatif = whatif_of(node("n"), resource_slice([device("d"), device("e")], "n"), device_class())
    whatif.add(TEMPLATE, CLAIMING, replicas=3)
    outcome = whatif.schedule()
    assert len(outcome.placed) == 2
    assert [each.pod for each in outcome.pending] == [("default", "p-2")]


def test_priority_classes_and_limit_ranges_of_the_cluster_apply_to_added_pods() -> None:
    whatif = whatif_of(node("n", cpu="1"))
    whatif.add(
        """
        {apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: low},
         value: 3, globalDefault: true}
        ---
        {apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: other},
         value: 5, globalDefault: true}
        ---
        apiVersion: v1
        kind: LimitRange
        metadata: {name: defaults}
        spec: {limits: [{type: Container, default: {cpu: 600m}, max: {cpu: "2"}}]}
        """
    )
    whatif.add(POD, replicas=2)
    outcome = whatif.schedule()
    (placed,) = outcome.placed  # 600m each: one of the two fits
    assert (placed.charges["cpu"], len(outcome.pending)) == (600, 1)
    assert {each.spec.priority for each in whatif.cluster_state.pods} == {3}
    container = {"name": "c", "resources": {"limits": {"cpu": "3"}}}
    big = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "big"},
        "spec": {"containers": [container]},
    }
    with pytest.raises(
        InputError,
        match=r"^pod default/big is forbidden: maximum cpu usage per Container is 2, but limit is 3$",
    ):
        whatif.add(big)


def test_priority_classes_are_looked_up() -> None:
    whatif = whatif_of(node("n", cpu="1"), pod("low", cpu="1", node="n", metadata=owned()))
    urgent = {**CLAIMING, "spec": {"priorityClassName": "urgent", "containers": [
        {"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}  # fmt: skip
    with pytest.raises(InputError, match="urgent not found"):
        whatif.add(urgent)
    whatif.add("{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: urgent}, value: 9}")
    whatif.add(urgent)
    outcome = whatif.schedule()
    assert outcome.where() == {("default", "p"): "n", ("default", "low"): None}
    (gone,) = outcome.evicted
    assert (gone.pod, gone.because, gone.by, gone.comes_back) == (
        ("default", "low"), EvictionReason.PREEMPTED, "default/p", True,
    )  # fmt: skip


# -- removing


def test_removing_a_pod_removes_its_claims() -> None:
    whatif = whatif_of(
        node("n"), resource_slice([device("d")], "n"), device_class(), claim("named", exactly())
    )
    whatif.add(pod("user", claims=["named"]))
    whatif.schedule()
    whatif.remove("Pod/default/user")
    assert whatif.cluster_state.claim("named", "default").status.allocation is None
    whatif.add(TEMPLATE, CLAIMING)
    assert whatif.schedule().all_placed
    whatif.remove("pods/p")
    assert [each.metadata.name for each in whatif.cluster_state.objects.all(ResourceClaim)] == ["named"]
    assert verify(whatif.cluster_state.snapshot) == []


def test_removing_a_node_removes_its_devices_and_reschedules_its_pods() -> None:
    objects = [device_class(), claim("c", exactly())]
    for name in ("a", "b"):
        objects += [node(name), resource_slice([device("d")], name)]
    whatif = whatif_of(*objects)
    whatif.add(pod("p", claims=["c"], metadata=owned()))
    first = whatif.schedule().placed[0].node
    whatif.remove(f"Node/{first}")
    assert [each.because for each in whatif.evicted] == [EvictionReason.NODE_GONE]
    assert whatif.schedule().placed[0].node != first
    assert [each.spec.node_name for each in whatif.cluster_state.objects.all(ResourceSlice)] != [first]


def test_workloads_are_removed_by_name() -> None:
    whatif = whatif_of(node("n"), pod("web-7d4-x", node="n", metadata=owned()), pod("other", node="n"))
    whatif.remove("deployment/web")
    assert [each.metadata.name for each in whatif.cluster_state.pods] == ["other"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Pod/default/wen-0", "Pod not found; did you mean web-0?"),
        ("Node/default/n", "a Node is cluster-scoped: write Node/n"),
        ("ConfigMap/default/x", "unknown kind ConfigMap"),
        ("web-0", "must be KIND/NAMESPACE/NAME"),
        ("deployment/nope", "no pods found"),
        ("Pod//x", "must be KIND/NAMESPACE/NAME"),
    ],
)
def test_unknown_names(name: str, words: str) -> None:
    whatif = whatif_of(node("n"), pod("web-0", node="n"))
    with pytest.raises(InputError, match=r".") as error:
        whatif.remove(name)
    assert words in str(error.value)


# -- nodes


def test_nodes_are_cloned_with_devices_and_daemons() -> None:
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    daemon = pod(
        "agent-x",
        cpu="1",
        node="n",
        metadata=owned("DaemonSet", "agent"),
        affinity={"nodeAffinity": required},
    )
    labels = {"kubernetes.io/hostname": "n", "zone": "z"}
    whatif = whatif_of(
        node("n", labels=labels), resource_slice([device("d")], "n"), device_class(), daemon,
        pod("other", cpu="1", node="n"),
    )  # fmt: skip
    assert whatif.add_nodes(2) == ["n-copy-1", "n-copy-2"]
    outcome = whatif.schedule()
    assert sorted(each.node for each in outcome.placed) == ["n-copy-1", "n-copy-2"]
    made = whatif.cluster_state.objects.find(Node, "", "n-copy-1")
    assert made is not None
    assert made.metadata.labels == {"kubernetes.io/hostname": "n-copy-1", "zone": "z"}
    pools = {each.spec.pool.name for each in whatif.cluster_state.objects.all(ResourceSlice)}
    assert pools == {"n", "n-copy-1", "n-copy-2"}
    whatif.add(TEMPLATE, CLAIMING, replicas=3)
    assert whatif.schedule().all_placed
    assert verify(whatif.cluster_state.snapshot) == []


def test_the_node_to_clone_must_be_named_if_there_are_several() -> None:
    whatif = whatif_of(node("a"), node("b"))
    with pytest.raises(InputError, match=r"name the node to copy \(there are 2 nodes\)"):
        whatif.add_nodes(1)
    with pytest.raises(InputError, match="from 1 to"):
        whatif.add_nodes(0, "a")


def test_a_drain_leaves_daemons_and_static_pods() -> None:
    static = {**owned("Node", "a"), "annotations": {"kubernetes.io/config.mirror": "x"}}
    whatif = whatif_of(
        node("a", cpu="4"), node("b", cpu="4"),
        pod("daemon", cpu="1", node="a", metadata=owned("DaemonSet")),
        pod("static", cpu="1", node="a", metadata=static),
        pod("web", cpu="1", node="a", metadata=owned()),
        pod("bare", cpu="1", node="a"),
    )  # fmt: skip
    before = whatif.state()
    whatif.drain("a")
    assert {each.pod[1]: each.bare for each in whatif.evicted} == {"web": False, "bare": True}
    assert whatif.schedule().all_placed
    after = whatif.state()
    assert {name[1]: (before[name].node, after[name].node) for name in moved_pods(before, after)} == {
        "bare": ("a", "b"), "web": ("a", "b"),
    }  # fmt: skip


# -- taints


def test_no_execute_evicts_pods_without_toleration() -> None:
    patient = [{"key": "x", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}]
    always = [{"key": "x", "operator": "Exists"}]
    whatif = whatif_of(
        node("a"), pod("goes", node="a", metadata=owned()), pod("bare", node="a"),
        pod("later", node="a", tolerations=patient, metadata=owned()),
        pod("stays", node="a", tolerations=always),
    )  # fmt: skip
    whatif.taint("a", "x=1:NoExecute")
    found = {each.pod[1]: (each.after, each.comes_back, each.by) for each in whatif.evicted}
    assert found == {
        "goes": (0, True, "x=1:NoExecute"), "bare": (0, False, "x=1:NoExecute"),
        "later": (60, True, "x=1:NoExecute"),
    }  # fmt: skip
    assert {each.pod[1] for each in whatif.schedule().pending} == {"goes"}  # who tolerates it may come again
    whatif.taint("a", "x:NoExecute-")
    assert whatif.schedule().all_placed


def test_no_schedule_does_not_evict() -> None:
    whatif = whatif_of(node("a"), pod("p", node="a"))
    whatif.taint("a", "x:NoSchedule")
    assert whatif.evicted == ()
    whatif.add(POD.replace("name: p}", "name: q}"))
    assert whatif.schedule().pending[0].why == "0/1 nodes are available: 1 node(s) had untolerated taint(s)."


def test_a_tainted_device_evicts_its_pod() -> None:
    whatif = whatif_of(node("n"), resource_slice([device("d"), device("e")], "n"), device_class())
    whatif.add(TEMPLATE, workload("Deployment", "apps/v1"))
    whatif.remove("Deployment/team/w")
    claiming = {**CLAIMING, "metadata": {"name": "p", **owned()}}
    whatif.add(claiming)
    assert whatif.schedule().placed[0].devices == (f"{DRIVER}/n/d",)
    whatif.taint_devices(f"driver={DRIVER},device=d:broken=yes:NoExecute")
    assert [each.because for each in whatif.evicted] == [EvictionReason.DEVICE_TAINT]
    assert whatif.schedule().placed[0].devices == (f"{DRIVER}/n/e",)
    whatif.taint_devices(f"driver={DRIVER}:broken=yes:NoSchedule")
    assert len(whatif.evicted) == 1


@pytest.mark.parametrize("text", ["x", "x=y", "=y:NoSchedule", "x:Nope", "-", "x:Nope-"])
def test_bad_taints(text: str) -> None:
    with pytest.raises(InputError, match="invalid taint"):
        whatif_of(node("n")).taint("n", text)


@pytest.mark.parametrize("text", ["x", "driver=d", "driver=d:k=v", "shape=d:k=v:NoSchedule", ":k:NoSchedule",
                                  "driver=d:k:Nope", "driver=d,driver=e:k:NoExecute"])  # fmt: skip
def test_bad_device_taints(text: str) -> None:
    with pytest.raises(InputError, match="driver=D,pool=P,device=V"):
        whatif_of(node("n")).taint_devices(text)


def test_a_missing_taint_cannot_be_removed() -> None:
    with pytest.raises(InputError, match="not found"):
        whatif_of(node("n")).taint("n", "x:NoSchedule-")


# -- policies


def test_another_policy_applies_to_running_pods() -> None:
    whatif = whatif_of(
        node("n", cpu="8"), resource_slice([charging_device("d", cpu="4")], "n"), device_class(),
        claim("c", exactly()),
    )  # fmt: skip
    whatif.add(pod("p", cpu="3", claims=["c"]))
    whatif.schedule()
    ledger = whatif.cluster_state.snapshot.ledger(0)
    assert ledger.requested["cpu"] == 7000
    with whatif.branch() as branch:
        branch.replace_policy("Max")
        assert branch.cluster_state.snapshot.ledger(0).requested["cpu"] == 4000
        assert verify(branch.cluster_state.snapshot) == []
    assert whatif.cluster_state.snapshot.ledger(0).requested["cpu"] == 7000
    with pytest.raises(InputError, match="unknown accounting policy"):
        whatif.replace_policy("Min")


# -- other changes


def test_pods_that_need_each_other_are_tried_again() -> None:
    term = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "kubernetes.io/hostname"}
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    whatif = whatif_of(node("n", labels={"kubernetes.io/hostname": "n"}))
    whatif.add(pod("a", affinity=near), pod("b", labels={"app": "db"}))
    assert whatif.schedule().all_placed


def test_gated_pods_wait() -> None:
    whatif = whatif_of(node("n"), pod("p", scheduling_gates=[{"name": "later"}]))
    assert [each.why for each in whatif.schedule().pending] == ["scheduling gates: later"]


def test_capacity_for_more_replicas() -> None:
    whatif = whatif_of(node("a", cpu="3"), node("b", cpu="2"), pod("p", cpu="1", node="a"))
    assert whatif.count_more(("default", "p")) == (4, "")
    assert whatif.count_more(("default", "p"), 2) == (2, "")
    assert len(whatif.cluster_state.objects.all(Pod)) == 1


def test_from_a_dump(tmp_path: Path) -> None:
    file = tmp_path / "dump.yaml"
    file.write_text("{apiVersion: v1, kind: Node, metadata: {name: n1}, "
                    "status: {allocatable: {cpu: '1', pods: '9'}}}\n---\n" + POD)  # fmt: skip
    with Whatif.of_dump(file) as whatif:
        assert whatif.schedule().all_placed
        assert whatif.pending == []
    assert len(whatif.pending) == 1
    file.write_text("{apiVersion: v1, kind: Node, metadata: {name: n1}, status: 7}")
    with pytest.raises(DecodeError, match="status"):
        Whatif.of_dump(file)
