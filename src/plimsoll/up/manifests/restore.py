"""Preparation of dumped objects for another cluster.

Pure functions of trees. Fields set by the server are removed. References by UID (owners, reservations of
claims) are rewritten once the new UIDs are known. A pod whose claim was created from a template refers to
that claim directly, so that no second claim is created. Nodes that were ready become simulated nodes.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from plimsoll.api.storage import BIND_COMPLETED
from plimsoll.up.manifests.apply import metadata_of, name_of, namespace_of
from plimsoll.up.manifests.order import has_node

Tree = dict[str, Any]
#: A node with this annotation is simulated by `plimsoll up`: its pods run no processes.
SIMULATED = "plimsoll.dev/simulated"
#: Kinds that are not restored, because they belong to the running cluster.
FLEETING = frozenset({"Event", "Lease", "Endpoints", "EndpointSlice"})
_SERVER_SET = (
    "uid",
    "resourceVersion",
    "managedFields",
    "creationTimestamp",
    "generation",
    "selfLink",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)
_OURS = "resource.kubernetes.io/"


def is_dumped(tree: Mapping[str, Any]) -> bool:
    """Return whether an object comes from a server, that is, has fields set by the server."""
    metadata = metadata_of(tree)
    return bool(metadata.get("uid") or metadata.get("resourceVersion"))


def restored(tree: Mapping[str, Any], claims: Container[tuple[str, str]] = ()) -> Tree:
    """Return an object in a form that can be applied, with its status if that is valid in another cluster.

    `claims` are the claims that are loaded as well, by namespace and name.
    """
    made = dict(tree)
    metadata = {key: value for key, value in metadata_of(tree).items() if key not in _SERVER_SET}
    metadata.pop("ownerReferences", None)  # see `owners`
    if is_dumped(tree) and metadata.get("finalizers"):
        # The components that would remove other finalizers do not run in this cluster.
        metadata["finalizers"] = [
            each for each in _items(metadata["finalizers"]) if str(each).startswith(_OURS)
        ]
    made["metadata"] = metadata
    kind = made.get("kind")
    if kind == "Namespace":
        made.pop("status", None)
        made.pop("spec", None)
    elif kind == "Pod":
        _restore_pod(made, claims)
    elif kind == "Node":
        _restore_node(made)
    elif kind in ("PersistentVolume", "PersistentVolumeClaim"):
        _restore_binding(made)
    return made


def _restore_pod(pod: Tree, claims: Container[tuple[str, str]]) -> None:
    status = pod.get("status")
    spec = pod.get("spec")
    if not isinstance(status, Mapping) or not isinstance(spec, Mapping):
        pod.pop("status", None)
        return
    given = {
        str(each.get("name")): str(each.get("resourceClaimName") or "")
        for each in _items(status.get("resourceClaimStatuses"))
        if isinstance(each, Mapping)
    }
    place = namespace_of(pod)
    entries = spec.get("resourceClaims")
    if isinstance(entries, list):
        pod["spec"] = {**spec, "resourceClaims": [_named(each, given, place, claims) for each in entries]}
    if has_node(pod):
        pod["status"] = {key: value for key, value in status.items() if key != "resourceClaimStatuses"}
    else:
        del pod["status"]  # it is scheduled again


def _named(entry: Any, given: Mapping[str, str], namespace: str, claims: Container[tuple[str, str]]) -> Any:
    """Return a pod's claim from a template as a reference to the generated claim, if that exists."""
    if not isinstance(entry, Mapping) or not entry.get("resourceClaimTemplateName"):
        return entry
    claim = given.get(str(entry.get("name")), "")
    if not claim or (namespace, claim) not in claims:
        return entry
    kept = {key: value for key, value in entry.items() if key != "resourceClaimTemplateName"}
    return {**kept, "resourceClaimName": claim}


def _restore_binding(storage: Tree) -> None:
    """Make a volume and its claim refer to each other by name; the controller binds them again."""
    spec, annotations = storage.get("spec"), storage["metadata"].get("annotations")
    reference = spec.get("claimRef") if isinstance(spec, Mapping) else None
    if isinstance(spec, Mapping) and isinstance(reference, Mapping):
        kept = {key: value for key, value in reference.items() if key not in ("uid", "resourceVersion")}
        storage["spec"] = {**spec, "claimRef": kept}
    if isinstance(annotations, Mapping):
        kept = {key: value for key, value in annotations.items() if key != BIND_COMPLETED}
        storage["metadata"] = {**storage["metadata"], "annotations": kept}


def _restore_node(node: Tree) -> None:
    metadata = node["metadata"]
    annotations = metadata.get("annotations")
    known = annotations if isinstance(annotations, Mapping) else {}
    if SIMULATED not in known and can_be_simulated(node):
        metadata["annotations"] = {**known, SIMULATED: "true"}


def can_be_simulated(node: Mapping[str, Any]) -> bool:
    """Return whether a Node has allocatable resources and is not marked as not ready."""
    status = node.get("status")
    if not isinstance(status, Mapping):
        return False
    amounts = [status.get(name) for name in ("allocatable", "capacity")]
    if not any(isinstance(each, Mapping) and each.get("cpu") and each.get("memory") for each in amounts):
        return False
    return not any(
        isinstance(each, Mapping) and each.get("type") == "Ready" and each.get("status") != "True"
        for each in _items(status.get("conditions"))
    )


# -- when the new UIDs are known


def owners(tree: Mapping[str, Any], uids: Mapping[str, str]) -> list[Tree]:
    """Return the owners of an object that were loaded as well, with their new UIDs."""
    return [
        {**each, "uid": uids[str(each["uid"])]}
        for each in _items(metadata_of(tree).get("ownerReferences"))
        if isinstance(each, Mapping) and str(each.get("uid")) in uids
    ]


def claim_status(tree: Mapping[str, Any], pods: Mapping[tuple[str, str], str]) -> Tree | None:
    """Return the status of a claim with the UIDs of the loaded pods (by namespace and name), or None.

    Reservations of pods that were not loaded are omitted.
    """
    status = tree.get("status")
    if not isinstance(status, Mapping) or not status:
        return None
    place = namespace_of(tree)
    kept = []
    for each in _items(status.get("reservedFor")):
        uid = pods.get((place, str(each.get("name")))) if isinstance(each, Mapping) else None
        if uid is not None and each.get("resource") == "pods":
            kept.append({**each, "uid": uid})
    made = {key: value for key, value in status.items() if key != "reservedFor"}
    return {**made, "reservedFor": kept} if kept else made


def _items(value: Any) -> list[Any]:
    """Return a list field; anything else is left to the server's validation."""
    return value if isinstance(value, list) else []


def describe(tree: Mapping[str, Any]) -> str:
    """Describe an object for messages: `Pod demo/web`."""
    namespace = metadata_of(tree).get("namespace")
    name = name_of(tree) or "without a name"
    return f"{tree.get('kind')} {namespace}/{name}" if namespace else f"{tree.get('kind')} {name}"
