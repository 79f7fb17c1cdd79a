"""Workloads of a cluster, for the what-if form: a list, and a manifest of one more pod of each.

Pods of the same controller are one workload, whose name is that of the controller; pods without one are
workloads of their own.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import yaml

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.resource import ResourceClaim
from plimsoll.errors import ApiError
from plimsoll.tools.cluster_state import ClusterState

Tree = dict[str, Any]
#: Workloads that are listed, largest first.
MOST = 1000
_DROPPED = ("nodeName", "hostname", "subdomain", "schedulingGates", "ephemeralContainers")


def list_workloads(cluster_state: ClusterState) -> Tree:
    """Return the workloads with their numbers of pods, largest first."""
    ranked = sorted(Counter(map(_key, cluster_state.pods)).items(), key=lambda item: (-item[1], item[0]))
    rows = [
        {"namespace": namespace, "kind": kind, "name": name, "pods": count}
        for (namespace, kind, name), count in ranked[:MOST]
    ]
    return {"total": len(ranked), "items": rows}


def workload_manifest(cluster_state: ClusterState, namespace: str, kind: str, name: str) -> Tree:
    """Return the YAML of one more pod of a workload, with claims of its own. Raise ApiError 404."""
    pods = [pod for pod in cluster_state.pods if _key(pod) == (namespace, kind, name)]
    if not pods:
        raise ApiError(404, "NotFound", f"{kind} {namespace}/{name} not found")
    pod = min(pods, key=lambda each: each.metadata.name)
    objects = _objects(cluster_state, pod, f"{name[:50].rstrip('-.')}-more")
    return {"yaml": yaml.safe_dump_all(objects, sort_keys=False, width=110)}


def _key(pod: Pod) -> tuple[str, str, str]:
    for owner in pod.metadata.owner_references:
        if owner.controller:
            return pod.metadata.namespace, owner.kind, owner.name
    return pod.metadata.namespace, "Pod", pod.metadata.name


def _objects(cluster_state: ClusterState, pod: Pod, name: str) -> list[Tree]:
    meta = pod.metadata
    spec = {key: value for key, value in codec.to_tree(pod)["spec"].items() if key not in _DROPPED}
    objects: list[Tree] = []
    for entry in spec.get("resourceClaims", []):
        claim_name = entry.pop("resourceClaimName", None)
        if claim_name is None:
            continue
        template = f"{name}-{entry['name']}"
        entry["resourceClaimTemplateName"] = template
        claim = cluster_state.objects.find(ResourceClaim, meta.namespace, claim_name)
        if claim is not None:
            objects.append(
                {
                    "apiVersion": "resource.k8s.io/v1",
                    "kind": "ResourceClaimTemplate",
                    "metadata": {"name": template, "namespace": meta.namespace},
                    "spec": {"spec": codec.to_tree(claim)["spec"]},
                }
            )
    labels = {"labels": dict(meta.labels)} if meta.labels else {}
    head = {"name": name, "namespace": meta.namespace, **labels}
    return [*objects, {"apiVersion": "v1", "kind": "Pod", "metadata": head, "spec": spec}]
