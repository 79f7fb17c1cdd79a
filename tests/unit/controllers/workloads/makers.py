"""Builders of workloads and their pods for controller tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plimsoll.api.core import Pod
from plimsoll.api.timestamps import format_time
from plimsoll.client.endpoints import PODS
from plimsoll.controllers.workload_views import JobView, ReplicaSetView
from tests.unit.controllers.cluster import START, Cluster
from tests.unit.controllers.makers import metadata, owner, pod_tree, view

Tree = dict[str, Any]
LABELS = {"app": "a"}


def template(image: str = "i", **spec: Any) -> Tree:
    containers = [{"name": "c", "image": image}]
    return {"metadata": {"labels": LABELS}, "spec": {"containers": containers, **spec}}


def workload(kind: str, name: str = "w", *, image: str = "i", api: str = "apps/v1", **spec: Any) -> Tree:
    """Return a workload as a user writes it."""
    fields = {"selector": {"matchLabels": LABELS}, "template": template(image), **spec}
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name}, "spec": fields}


def job_tree(name: str = "j", *, restart: str = "Never", **spec: Any) -> Tree:
    containers = [{"name": "c", "image": "i"}]
    pod = {"metadata": {}, "spec": {"containers": containers, "restartPolicy": restart}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": pod, **spec},
    }


def replica_set(replicas: int = 1, **fields: Any) -> ReplicaSetView:
    tree = {
        "metadata": metadata("w", generation=1),
        "spec": {"replicas": replicas, "selector": {"matchLabels": LABELS}, "template": template()},
        **fields,
    }
    return view(tree, ReplicaSetView)


def job(status: Mapping[str, Any] | None = None, **spec: Any) -> JobView:
    fields = {"parallelism": 1, "backoffLimit": 6, "completionMode": "NonIndexed", "template": template()}
    if "parallelism" not in spec and "completions" not in spec:
        fields["completions"] = 1
    tree = {"metadata": metadata("j"), "spec": {**fields, **spec}, "status": dict(status or {})}
    return view(tree, JobView)


def owned_pod(
    name: str,
    kind: str = "ReplicaSet",
    of: str = "w",
    *,
    phase: str = "Running",
    ready: bool | None = None,
    since: float = START,
    node: str = "n1",
    status: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Pod:
    """Return a pod of a workload; a running one is ready by default."""
    is_up = phase == "Running" if ready is None else ready
    condition = {"type": "Ready", "status": str(is_up), "lastTransitionTime": format_time(since)}
    tree = pod_tree(
        name,
        phase=phase,
        node=node,
        status={"conditions": [condition], **(status or {})},
        **{
            "labels": LABELS,
            "ownerReferences": [owner(of, kind, "apps/v1", controller=True)],
            "creationTimestamp": format_time(START),
            **fields,
        },
    )
    return view(tree, Pod)


async def run_pods(cluster: Cluster, *names: str, phase: str = "Running") -> None:
    """Report pods as running and ready, as a node does; all that are pending if none is named."""
    for tree in await cluster.trees(PODS):
        name = tree["metadata"]["name"]
        if (names and name not in names) or (not names and tree["status"].get("phase") != "Pending"):
            continue
        time = format_time(cluster.clock.now())
        condition = {"type": "Ready", "status": str(phase == "Running"), "lastTransitionTime": time}
        status = {"phase": phase, "conditions": [condition]}
        await cluster.client.patch(PODS, name, {"status": status}, "n", subresource="status")


async def end_deleted_pods(cluster: Cluster) -> None:
    """Remove pods that are being deleted, as their node does."""
    for tree in await cluster.trees(PODS):
        meta = tree["metadata"]
        if "deletionTimestamp" in meta:
            await cluster.client.delete(PODS, meta["name"], "n", grace=0)
