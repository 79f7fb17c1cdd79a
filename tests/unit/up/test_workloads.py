"""Workloads on a cluster with simulated nodes: server, controllers, scheduler and agents together."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from plimsoll.api.timestamps import format_time
from plimsoll.client.endpoints import (
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    JOBS,
    POD_DISRUPTION_BUDGETS,
    PODS,
    STATEFUL_SETS,
)
from plimsoll.errors import ApiError
from plimsoll.up.local_cluster import LocalCluster
from tests.waiting import DEADLINE, wait_until

LABELS = {"app": "a"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(nodes=2, scheduler=True) as running:
        yield running


def workload(kind: str, api: str = "apps/v1", **spec: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    fields = {"selector": {"matchLabels": LABELS}, "template": template, **spec}
    return {"apiVersion": api, "kind": kind, "metadata": {"name": "w"}, "spec": fields}


def wait(cluster: LocalCluster, endpoint: Any, namespace: str, **status: int) -> None:
    cluster.wait_for(
        endpoint,
        "w",
        namespace,
        lambda tree: all(tree["status"][field] == value for field, value in status.items()),
        timeout=DEADLINE,
    )


def test_a_deployment_becomes_available_and_is_scaled(cluster: LocalCluster) -> None:
    namespace = cluster.new_namespace()
    cluster.apply(workload("Deployment", replicas=3), namespace=namespace)
    wait(cluster, DEPLOYMENTS, namespace, availableReplicas=3, updatedReplicas=3)
    cluster.client.patch(DEPLOYMENTS, "w", {"spec": {"replicas": 1}}, namespace)
    wait(cluster, DEPLOYMENTS, namespace, availableReplicas=1, replicas=1)


def test_a_stateful_set_and_a_daemon_set_become_ready(cluster: LocalCluster) -> None:
    namespace = cluster.new_namespace()
    cluster.apply(workload("StatefulSet", replicas=2, serviceName="s"), namespace=namespace)
    wait(cluster, STATEFUL_SETS, namespace, readyReplicas=2, currentReplicas=2)
    namespace = cluster.new_namespace()
    cluster.apply(workload("DaemonSet"), namespace=namespace)
    wait(cluster, DAEMON_SETS, namespace, numberAvailable=2, desiredNumberScheduled=2)


@pytest.mark.parametrize(("code", "condition"), [("0", "Complete"), ("1", "Failed")])
def test_a_job_ends_as_its_annotations_specify(cluster: LocalCluster, code: str, condition: str) -> None:
    namespace = cluster.new_namespace()
    annotations = {"plimsoll.dev/run-seconds": "0.1", "plimsoll.dev/exit-code": code}
    pod = {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "w"},
        "spec": {
            "completions": 2,
            "parallelism": 2,
            "backoffLimit": 0,
            "template": {"metadata": {"annotations": annotations}, "spec": pod},
        },
    }
    cluster.apply(job, namespace=namespace)
    cluster.wait_for(
        JOBS,
        "w",
        namespace,
        lambda tree: tree["status"]["conditions"][-1]["type"] == condition,
        timeout=DEADLINE,
    )


def test_a_service_and_a_budget_follow_their_pods(cluster: LocalCluster) -> None:
    namespace = cluster.new_namespace()
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "s"},
        "spec": {"selector": LABELS, "ports": [{"port": 80}]},
    }
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b"},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": LABELS}},
    }
    cluster.apply(service, budget, workload("Deployment", replicas=2), namespace=namespace)
    wait(cluster, DEPLOYMENTS, namespace, availableReplicas=2)

    def ready_pods() -> set[str]:
        slices = cluster.client.list(ENDPOINT_SLICES, namespace, labels="kubernetes.io/service-name=s")
        return {
            endpoint["targetRef"]["name"]
            for tree in slices
            for endpoint in tree.get("endpoints") or ()
            if endpoint["conditions"]["ready"]
        }

    names = {tree["metadata"]["name"] for tree in cluster.client.list(PODS, namespace)}
    wait_until(lambda: ready_pods() == names)
    healthy = lambda tree: tree["status"]["currentHealthy"] == 2  # noqa: E731
    cluster.wait_for(POD_DISRUPTION_BUDGETS, "b", namespace, healthy, timeout=DEADLINE)
    name = min(names)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    with pytest.raises(ApiError, match="would violate the pod's disruption budget"):
        cluster.client.post(PODS, name, "eviction", eviction, namespace)
    cluster.client.patch(POD_DISRUPTION_BUDGETS, "b", {"spec": {"minAvailable": 1}}, namespace)
    allowed = lambda tree: tree["status"]["disruptionsAllowed"] == 1  # noqa: E731
    cluster.wait_for(POD_DISRUPTION_BUDGETS, "b", namespace, allowed, timeout=DEADLINE)
    cluster.client.post(PODS, name, "eviction", eviction, namespace)
    wait_until(lambda: name not in ready_pods() and len(ready_pods()) == 2)


def test_a_cron_job_creates_the_job_of_a_missed_time(cluster: LocalCluster) -> None:
    """A schedule that was resumed starts the latest missed job at once; a test need not wait a minute."""
    namespace = cluster.new_namespace()
    pod = {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}
    template = {"metadata": {"annotations": {"plimsoll.dev/run-seconds": "0.1"}}, "spec": pod}
    tree = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "w"},
        "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": template}}},
        "status": {"lastScheduleTime": format_time(time.time() - 300)},
    }
    cluster.apply(tree, namespace=namespace)
    done = lambda found: bool(found["status"]["lastSuccessfulTime"])  # noqa: E731
    cluster.wait_for(CRON_JOBS, "w", namespace, done, timeout=DEADLINE)
    assert len(cluster.client.list(JOBS, namespace)) >= 1
