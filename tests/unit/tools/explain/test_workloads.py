"""Workloads in explanations: their pods, and why they have none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plimsoll.errors import InputError
from plimsoll.tools.cluster_state import ClusterState, Source, read_cluster_state
from plimsoll.tools.explain import ExplainVerdict, WorkloadExplanation, explain_workload
from plimsoll.tools.explain.targets import read_subject
from tests.dumps import write_dump

Tree = dict[str, Any]
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1"},
    "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "10"}},
}
GROUPS = {"Job": "batch/v1", "CronJob": "batch/v1", "ReplicationController": "v1"}


def workload(
    kind: str, cpu: str = "1", namespace: str = "d", status: Tree | None = None, **spec: Any
) -> Tree:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}}
    whole: Tree = {"template": template, **spec}
    if kind == "CronJob":
        whole = {"jobTemplate": {"spec": {"template": template}}, **spec}
    return {
        "apiVersion": GROUPS.get(kind, "apps/v1"),
        "kind": kind,
        "metadata": {"name": "w", "namespace": namespace, "uid": "w"},
        "spec": whole,
        "status": status or {},
    }


def pod(name: str, kind: str, owner: str, cpu: str = "1", node: str = "") -> Tree:
    reference = {"apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": owner, "controller": True}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "d", "uid": name, "ownerReferences": [reference]},
        "spec": {"containers": [container], **({"nodeName": node} if node else {})},
    }


def quota(**hard: str) -> Tree:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": "d"},
        "spec": {"hard": hard},
    }


LIMITS = {
    "apiVersion": "v1",
    "kind": "LimitRange",
    "metadata": {"name": "l", "namespace": "d"},
    "spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}}]},
}


def state(directory: Path, *trees: Tree) -> ClusterState:
    return read_cluster_state(Source((str(write_dump([NODE, *trees], directory / "c.json", "json")),)))


def explain(directory: Path, kind: str, *trees: Tree) -> WorkloadExplanation:
    return explain_workload(state(directory, *trees), kind, "w")


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "StatefulSet", "Job", "ReplicationController"])
@pytest.mark.parametrize(
    ("obstacle", "cpu", "word"),
    [(quota(pods="0"), "1", "exceeded quota: q"), (LIMITS, "3", "maximum cpu usage")],
)
def test_admission_refuses_the_pods(tmp_path: Path, kind: str, obstacle: Tree, cpu: str, word: str) -> None:
    refused = explain(tmp_path, kind, obstacle, workload(kind, cpu))
    assert refused.is_pending
    assert word in " ".join(refused.missing)
    accepted = explain(tmp_path, kind, workload(kind, cpu))
    assert word not in " ".join(accepted.missing)


def test_a_daemon_set_with_a_priority_class_that_does_not_exist(tmp_path: Path) -> None:
    daemon_set = workload("DaemonSet", status={"desiredNumberScheduled": 1})
    daemon_set["spec"]["template"]["spec"]["priorityClassName"] = "urgent"
    assert "urgent" in " ".join(explain(tmp_path, "DaemonSet", daemon_set).missing)


def test_a_quota_of_claims_counts(tmp_path: Path) -> None:
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "t", "namespace": "d", "uid": "t"},
        "spec": {"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}},
    }
    deployment = workload("Deployment")
    spec = deployment["spec"]["template"]["spec"]
    spec["resourceClaims"] = [{"name": "r", "resourceClaimTemplateName": "t"}]
    hard = quota(**{"count/resourceclaims.resource.k8s.io": "0"})
    assert "exceeded quota" in " ".join(explain(tmp_path, "Deployment", hard, template, deployment).missing)


@pytest.mark.parametrize(
    ("kind", "spec", "status", "word"),
    [
        ("Deployment", {"replicas": 0}, {}, "replicas"),
        ("Deployment", {"paused": True}, {}, "paused"),
        ("Job", {"suspend": True}, {}, "suspend"),
        ("CronJob", {"suspend": True, "schedule": "* * * * *"}, {}, "suspend"),
        (
            "Job",
            {},
            {"conditions": [{"type": "Failed", "status": "True", "message": "BackoffLimitExceeded"}]},
            "BackoffLimitExceeded",
        ),
        (
            "ReplicaSet",
            {"replicas": 1},
            {"conditions": [{"type": "ReplicaFailure", "status": "True", "message": "webhook denied it"}]},
            "webhook denied it",
        ),
        ("DaemonSet", {}, {"desiredNumberScheduled": 0}, "no node matches"),
        ("Deployment", {"replicas": 2}, {}, "kube-controller-manager"),
    ],
)
def test_what_the_workload_itself_says(
    tmp_path: Path, kind: str, spec: Tree, status: Tree, word: str
) -> None:
    found = explain(tmp_path, kind, workload(kind, status=status, **spec))
    assert word in " ".join(found.missing)


def test_pending_pods_are_explained_once_for_each_cause(tmp_path: Path) -> None:
    pods = [pod(f"w-abc-{number}", "ReplicaSet", "w-abc", cpu="20") for number in range(3)]
    pods += [
        pod("w-abc-x", "ReplicaSet", "w-abc", cpu="30"),
        pod("w-abc-y", "ReplicaSet", "w-abc", node="n1"),
    ]
    pods.append(pod("other-abc-1", "ReplicaSet", "other-abc", cpu="20"))
    found = explain(tmp_path, "Deployment", *pods, workload("Deployment", replicas=5))
    assert sum(count for count, _ in found.pods) == 4
    assert all(each.verdict is ExplainVerdict.PENDING and each.groups for _, each in found.pods)
    assert not found.missing


def test_pods_are_found_without_the_workload_itself(tmp_path: Path) -> None:
    found = explain(tmp_path, "Deployment", pod("w-abc-1", "ReplicaSet", "w-abc", cpu="20"))
    assert [count for count, _ in found.pods] == [1]
    running = explain(tmp_path, "StatefulSet", pod("w-0", "StatefulSet", "w", node="n1"))
    assert not running.is_pending


def test_a_replica_set_of_another_deployment_with_a_longer_name(tmp_path: Path) -> None:
    replica_set = workload("ReplicaSet")
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "w-long", "uid": "u", "controller": True}
    replica_set["metadata"] |= {"name": "w-long", "ownerReferences": [owner]}
    cluster = state(
        tmp_path, replica_set, pod("w-long-1", "ReplicaSet", "w-long", cpu="20"), workload("Deployment")
    )
    assert explain_workload(cluster, "Deployment", "w").pods == ()


def test_a_workload_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Job default/nix not found"):
        explain_workload(state(tmp_path), "Job", "nix")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("deploy/w", "Deployment"),
        ("deployments.apps/w", "Deployment"),
        ("rs/w", "ReplicaSet"),
        ("sts/w", "StatefulSet"),
        ("daemonset/w", "DaemonSet"),
        ("ds/w", "DaemonSet"),
        ("job/w", "Job"),
        ("jobs/w", "Job"),
        ("CronJob/w", "CronJob"),
        ("rc/w", "ReplicationController"),
    ],
)
def test_words_for_workloads(text: str, kind: str) -> None:
    assert read_subject(text, "d") == (kind, "d", "w")
    assert read_subject(text.replace("/w", "/d/w")) == (kind, "d", "w")


@pytest.mark.parametrize("broken", [{"spec": 3}, {"status": []}, {"spec": {"replicas": "many"}}])
def test_a_malformed_workload_does_no_harm(tmp_path: Path, broken: Tree) -> None:
    assert explain(tmp_path, "Job", workload("Job") | broken).subject == "d/w"
