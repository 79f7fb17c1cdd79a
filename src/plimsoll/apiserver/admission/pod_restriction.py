"""NodeRestriction for pods: a node creates mirror pods of itself and writes the status of pods bound to it.

A mirror pod represents a static pod of the node. It must reference no other API object, since a node may read
whatever its pods reference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from plimsoll.apiserver.admission.node_write import NodeWrite
from plimsoll.apiserver.auth.pod_references import CONFIG_MAPS, MIRROR, SECRETS, is_mirror, list_references
from plimsoll.apiserver.json_values import items, mapping, text

#: Volumes that reference no API object.
_PLAIN_VOLUMES = frozenset(
    {
        "awsElasticBlockStore",
        "azureDisk",
        "cephfs",
        "cinder",
        "downwardAPI",
        "emptyDir",
        "fc",
        "flexVolume",
        "flocker",
        "gcePersistentDisk",
        "gitRepo",
        "hostPath",
        "image",
        "iscsi",
        "nfs",
        "photonPersistentDisk",
        "portworxVolume",
        "quobyte",
        "rbd",
        "scaleIO",
        "storageos",
        "vsphereVolume",
    }
)
_API_VOLUMES = {
    "configMap": "configmaps (via configmap volumes)",
    "secret": "secrets (via secret volumes)",
    "csi": "csidrivers (via CSI volumes)",
    "glusterfs": "endpoints (via glusterFS volumes)",
    "persistentVolumeClaim": "persistentvolumeclaims",
    "ephemeral": "persistentvolumeclaims (via ephemeral volumes)",
    "azureFile": "secrets (via azureFile volumes)",
}
_API_PROJECTIONS = {
    "configMap": "configmaps (via projected volumes)",
    "secret": "secrets (via projected volumes)",
    "serviceAccountToken": "serviceaccounts (via projected volumes)",
    "clusterTrustBundle": "clustertrustbundles",
    "podCertificate": "podcertificates",
}


def check_pod(write: NodeWrite) -> None:
    """Reject writes to a pod that a node is not allowed to make."""
    check = _CHECKS.get(write.subresource)
    if check is None:
        allowed = "only 'status' and 'eviction' are allowed"
        raise write.refusal(f'unexpected pod subresource "{write.subresource}", {allowed}')
    check(write)


def _check_itself(write: NodeWrite) -> None:
    node = write.node
    if write.operation == "delete":
        if not _is_bound(write.old or write.require("pods", write.namespace, write.name), node):
            raise write.refusal(f'node "{node}" can only delete pods with spec.nodeName set to itself')
    elif write.operation == "create":
        _check_mirror(write)
    else:
        allowed = f'node "{node}" can only create and delete mirror pods'
        raise write.refusal(f'unexpected operation "{write.operation.upper()}", {allowed}')


def _check_mirror(write: NodeWrite) -> None:
    node, pod = write.node, write.tree
    if not is_mirror(pod):
        why = f'pod does not have "{MIRROR}" annotation, node "{node}" can only create mirror pods'
        raise write.refusal(why)
    if not _is_bound(pod, node):
        raise write.refusal(f'node "{node}" can only create pods with spec.nodeName set to itself')
    owners = list(items(mapping(pod.get("metadata")).get("ownerReferences")))
    if len(owners) > 1:
        raise write.refusal(f'node "{node}" can only create pods with a single owner reference set to itself')
    _check_owner(write, owners[0] if owners else {})
    named = _api_object_of(pod)
    if named:
        raise write.refusal(f'node "{node}" can not create pods that reference {named}')


def _check_owner(write: NodeWrite, owner: Mapping[str, Any]) -> None:
    node = write.node
    if (owner.get("apiVersion"), owner.get("kind"), owner.get("name")) != ("v1", "Node", node):
        raise write.refusal(f'node "{node}" can only create pods with an owner reference set to itself')
    if owner.get("controller") is not True:
        why = f'node "{node}" can only create pods with a controller owner reference set to itself'
        raise write.refusal(why)
    if owner.get("blockOwnerDeletion"):
        raise write.refusal(f'node "{node}" must not set blockOwnerDeletion on an owner reference')
    uid = text(mapping(write.require("nodes", "", node).get("metadata")).get("uid"))
    if owner.get("uid") != uid:
        raise write.refusal(f"node {node} UID mismatch: expected {text(owner.get('uid'))} got {uid}")


def _check_status(write: NodeWrite) -> None:
    node, pod, old = write.node, write.tree, write.old
    if write.operation != "update":
        raise write.unexpected()
    if not _is_bound(old, node):
        why = f'node "{node}" can only update pod status for pods with spec.nodeName set to itself'
        raise write.refusal(why)
    if _labels(pod) != _labels(old):
        raise write.refusal(f'node "{node}" cannot update labels through pod status')
    if _claim_statuses(pod) != _claim_statuses(old):
        raise write.refusal(f'node "{node}" cannot update resource claim statuses')
    if _extended(pod) != _extended(old):
        raise write.refusal(f'node "{node}" cannot update extended resource claim status')


def _check_eviction(write: NodeWrite) -> None:
    if write.operation != "create":
        raise write.unexpected()
    if not write.name:
        raise write.refusal("could not determine pod from request data")
    if not _is_bound(write.require("pods", write.namespace, write.name), write.node):
        raise write.refusal(f"node {write.node} can only evict pods with spec.nodeName set to itself")


_CHECKS = {"": _check_itself, "status": _check_status, "eviction": _check_eviction}


def _is_bound(pod: Mapping[str, Any], node: str) -> bool:
    return mapping(pod.get("spec")).get("nodeName") == node


def _labels(pod: Mapping[str, Any]) -> Any:
    return mapping(pod.get("metadata")).get("labels") or {}


def _claim_statuses(pod: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    entries = items(mapping(pod.get("status")).get("resourceClaimStatuses"))
    return [(entry.get("name"), entry.get("resourceClaimName")) for entry in entries]


def _extended(pod: Mapping[str, Any]) -> tuple[Any, list[Any]] | None:
    entry = mapping(pod.get("status")).get("extendedResourceClaimStatus")
    if not isinstance(entry, dict):
        return None
    return entry.get("resourceClaimName"), list(items(entry.get("requestMappings")))


def _api_object_of(pod: Mapping[str, Any]) -> str:
    """Return the kind of API object that a pod references, or "". Unknown kinds of volumes count."""
    spec = mapping(pod.get("spec"))
    if spec.get("serviceAccountName"):
        return "serviceaccounts"
    named = {reference.resource for reference in list_references(pod)}
    for resource in (SECRETS, CONFIG_MAPS):
        if resource in named:
            return resource
    if spec.get("resourceClaims"):
        return "resourceclaims"
    for volume in items(spec.get("volumes")):
        for source in sorted(volume.keys() - {"name"} - _PLAIN_VOLUMES):
            if source != "projected":
                return _API_VOLUMES.get(source, f"an unknown kind of volume ({source})")
            found = _projected(items(mapping(volume[source]).get("sources")))
            if found:
                return found
    return ""


def _projected(projections: Iterable[Mapping[str, Any]]) -> str:
    for projection in projections:
        for source in sorted(projection.keys() - {"downwardAPI"}):
            return _API_PROJECTIONS.get(source, f"an unknown source of a projected volume ({source})")
    return ""
