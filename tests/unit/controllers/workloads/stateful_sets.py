"""StatefulSets of tests, and the rollout of their pods."""

from __future__ import annotations

from typing import Any

from tests.unit.controllers.cluster import Cluster, Tree
from tests.unit.controllers.workloads.makers import end_deleted_pods, run_pods, workload

ONLY = ["statefulset-controller", "garbage-collector-controller"]


CLAIM = {
    "metadata": {"name": "data"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}


def stateful_set(**spec: Any) -> Tree:
    return workload("StatefulSet", serviceName="s", **{"replicas": 3, "image": "v1", **spec})


async def roll(cluster: Cluster, rounds: int = 10) -> None:
    for _ in range(rounds):
        await cluster.settle(max_wait=0.1)
        await run_pods(cluster)
        await end_deleted_pods(cluster)
    await cluster.settle(max_wait=0.1)
