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
    "Pod ReplicaSet ReplicationController Deployment DaemonSet StatefulSet Job CronJob",
)
_OTHER = _ORDER.index("")
_RANKS = {kind: rank for rank, kinds in enumerate(_ORDER) for kind in kinds.split()}


def rank_of(tree: Mapping[str, Any]) -> int:
    """Return the position of an object's kind in the order."""
    return _RANKS.get(str(tree.get("kind", "")), _OTHER)


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


def missing_namespaces(found: Iterable[ParsedObject]) -> list[str]:
    """Return the namespaces that the objects use but do not include."""
    used, there = set(), {"default"}
    for each in found:
        if each.kind == "Namespace":
            there.add(each.name)
        elif metadata_of(each.tree).get("namespace"):
            used.add(each.namespace)
    return sorted(used - there)
