"""Order in which objects are created.

`arrange` is a pure function: an object comes after the objects it refers to, and objects of a kind keep the
order of the files. Unknown kinds come after everything that may define them and before pods and workloads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from plimsoll.tools.cluster_state.manifests import ParsedObject
from plimsoll.up.manifests.apply import metadata_of

#: Kinds in the order of creation; those in one string have no order.
_ORDER = (
    "CustomResourceDefinition",
    "Namespace",
    "PriorityClass StorageClass CSIDriver RuntimeClass DeviceClass",
    "ClusterRole ClusterRoleBinding ServiceAccount Role RoleBinding",
    "Node",
    "CSINode",
    "ResourceSlice DeviceTaintRule",
    "ResourceQuota LimitRange",
    "PersistentVolume ConfigMap Secret Service",
    "PersistentVolumeClaim ResourceClaimTemplate",
    "ResourceClaim",
    "",  # everything else
    "Pod",
)
_OTHER = _ORDER.index("")
#: Namespaces with this label may have claims with admin access.
ADMIN_ACCESS = "resource.kubernetes.io/admin-access"
#: Pending pods are created after all allocations: they must not get devices that others hold.
WAITING = len(_ORDER)
#: Workloads come after their pods, so that their controllers adopt these instead of creating others.
_WORKLOADS = ("ReplicaSet ReplicationController", "Deployment DaemonSet StatefulSet Job CronJob")
_RANKS = {kind: rank for rank, kinds in enumerate((*_ORDER, "", *_WORKLOADS)) for kind in kinds.split()}
#: Position of service accounts, which pods need.
ACCOUNTS = _RANKS["ServiceAccount"]


def rank_of(tree: Mapping[str, Any]) -> int:
    """Return the position of an object's kind in the order."""
    kind = str(tree.get("kind", ""))
    if kind == "Pod" and not has_node(tree):
        return WAITING
    return _RANKS.get(kind, _OTHER)


def has_node(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod is bound or has terminated."""
    spec, status = pod.get("spec"), pod.get("status")
    bound = isinstance(spec, Mapping) and bool(spec.get("nodeName"))
    return bound or (isinstance(status, Mapping) and status.get("phase") in ("Succeeded", "Failed"))


def arrange(found: Iterable[ParsedObject]) -> list[list[ParsedObject]]:
    """Return the objects in groups to apply in order; of objects with the same name the last one counts."""
    last: dict[tuple[str, ...], ParsedObject] = {}
    for each in found:
        last[identity(each.tree) if each.name else (each.where,)] = each
    groups: dict[int, list[ParsedObject]] = {}
    for each in last.values():
        groups.setdefault(rank_of(each.tree), []).append(each)
    return [groups[rank] for rank in sorted(groups)]


def identity(tree: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """Return the identity of an object: group, kind, namespace and name."""
    metadata = metadata_of(tree)
    group = str(tree.get("apiVersion", "")).rpartition("/")[0]
    namespace = str(metadata.get("namespace") or "default")
    return group, str(tree.get("kind", "")), namespace, str(metadata.get("name"))


def missing_namespaces(found: Iterable[ParsedObject]) -> dict[str, dict[str, str]]:
    """Return the namespaces that the objects use but do not include, with the labels they must have."""
    used: dict[str, dict[str, str]] = {}
    there = {"default"}
    for each in found:
        metadata = metadata_of(each.tree)
        if each.kind == "Namespace":
            there.add(str(metadata.get("name") or ""))
        elif metadata.get("namespace"):
            labels = used.setdefault(str(metadata["namespace"]), {})
            if each.kind == "ResourceClaim" and _wants_admin_access(each.tree):
                labels[ADMIN_ACCESS] = "true"
    return {name: labels for name, labels in sorted(used.items()) if name not in there}


def missing_accounts(found: Iterable[ParsedObject]) -> list[tuple[str, str]]:
    """Return namespace and name of the service accounts that dumped pods and workloads name and the files do
    not include: dumps leave them out, and a pod is admitted only if its account exists.
    """
    used: set[tuple[str, str]] = set()
    there: set[tuple[str, str]] = set()
    for each in found:
        metadata = metadata_of(each.tree)
        namespace = str(metadata.get("namespace") or "default")
        if each.kind == "ServiceAccount":
            there.add((namespace, each.name))
        elif metadata.get("uid"):
            name = _account_of(each.tree)
            if name not in ("", "default"):
                used.add((namespace, name))
    return sorted(used - there)


def _account_of(tree: Mapping[str, Any]) -> str:
    """Return the service account that a pod, or the pod template of a workload, names."""
    spec: Any = tree.get("spec")
    while isinstance(spec, Mapping):
        nested = spec.get("template") or spec.get("jobTemplate")
        if not isinstance(nested, Mapping):
            return str(spec.get("serviceAccountName") or "")
        spec = nested.get("spec")
    return ""


def _wants_admin_access(claim: Mapping[str, Any]) -> bool:
    """Return whether a claim requests admin access, which needs a labeled namespace."""
    if not metadata_of(claim).get("uid"):
        return False
    node: Any = claim
    for field in ("spec", "devices", "requests"):
        node = node.get(field) if isinstance(node, Mapping) else None
    requests = node if isinstance(node, list) else []
    exact = [each.get("exactly") for each in requests if isinstance(each, Mapping)]
    return any(isinstance(each, Mapping) and each.get("adminAccess") is True for each in exact)
