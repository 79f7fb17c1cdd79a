"""Workloads on a cluster with simulated nodes: server, controllers, scheduler and agents together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from plimsoll.client.endpoints import DAEMON_SETS, DEPLOYMENTS, JOBS, STATEFUL_SETS
from plimsoll.up.local_cluster import LocalCluster
from tests.waiting import DEADLINE

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
