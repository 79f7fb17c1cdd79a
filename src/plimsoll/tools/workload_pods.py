"""Pods of workloads, by their controllers."""

from __future__ import annotations

from typing import Any

from plimsoll.api.core import Pod
from plimsoll.api.workloads import ReplicaSet
from plimsoll.controllers.workloads.ownership import controller_of
from plimsoll.tools.cluster_state.objects import ClusterObjects


def subjects_of(objects: ClusterObjects, kind: str, namespace: str, name: str) -> list[tuple[str, str]]:
    """Return the workload and the objects between it and its pods, by kind and name."""
    pods = find_pods(objects, kind, namespace, name)
    owners = {owner.name for pod in pods if (owner := controller_of(pod.metadata)) and owner.kind != kind}
    between = {"Deployment": "ReplicaSet", "CronJob": "Job"}.get(kind, "")
    if kind == "Deployment":
        sets = objects.all(ReplicaSet)
        owners |= {each.metadata.name for each in sets if _is_owned(each, kind, namespace, name)}
    return [(kind, name), *((between, owner) for owner in sorted(owners) if between)]


def find_pods(objects: ClusterObjects, kind: str, namespace: str, name: str) -> list[Pod]:
    """Return the pods of a workload, directly or through a ReplicaSet or Job; "" is any namespace."""
    found = []
    for pod in objects.all(Pod):
        owner = controller_of(pod.metadata)
        if owner is None or namespace not in ("", pod.metadata.namespace):
            continue
        if (owner.kind, owner.name) == (kind, name):
            found.append(pod)
        elif (kind, owner.kind) in (("Deployment", "ReplicaSet"), ("CronJob", "Job")):
            between: Any = objects.find(ReplicaSet, pod.metadata.namespace, owner.name)
            if between is not None and owner.kind == "ReplicaSet" and between.metadata.owner_references:
                is_own = _is_owned(between, kind, pod.metadata.namespace, name)
            else:  # names are those that the controllers give
                is_own = owner.name.rpartition("-")[0] == name
            found += [pod] if is_own else []
    return found


def _is_owned(thing: Any, kind: str, namespace: str, name: str) -> bool:
    owner = controller_of(thing.metadata)
    return owner is not None and (owner.kind, owner.name, thing.metadata.namespace) == (kind, name, namespace)
