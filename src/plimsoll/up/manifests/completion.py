"""Completion of recorded objects: what a dump leaves out and controllers would miss.

A dump is rarely everything that a cluster has. Namespaces and service accounts that its objects refer to have
to be there, and the revisions of templates and labels by which workloads know their pods. Functions of trees,
which they change in place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from plimsoll.api.meta import ObjectMeta
from plimsoll.apiserver.registry.resources import find_resource_by_kind
from plimsoll.client.endpoints import DAEMON_SETS, STATEFUL_SETS
from plimsoll.controllers.actions import CreateAction
from plimsoll.controllers.workloads.revisions import REVISION_LABEL, plan_revision
from plimsoll.controllers.workloads.templates import prune
from plimsoll.up.manifests.apply import metadata_of, name_of, namespace_of

Tree = dict[str, Any]
#: A node with this annotation is simulated by `plimsoll up`: its pods run no processes.
SIMULATED = "plimsoll.dev/simulated"
#: Namespaces with this label may have claims with admin access.
ADMIN_ACCESS = "resource.kubernetes.io/admin-access"
#: Workloads that find the template of a pod by the name of its revision.
_WITH_REVISIONS = {"StatefulSet": STATEFUL_SETS, "DaemonSet": DAEMON_SETS}
_WORKLOADS = frozenset({*_WITH_REVISIONS, "Deployment", "Job", "ReplicaSet", "ReplicationController"})


# -- nodes


def set_simulated(node: Tree) -> None:
    """Have `plimsoll up` simulate a node if it was ready, unless its annotation is "false"."""
    annotations = dict(mapping_of(metadata_of(node).get("annotations")))
    if annotations.get(SIMULATED) == "false":
        return
    annotations.pop(SIMULATED, None)
    if can_be_simulated(node):
        annotations[SIMULATED] = "true"
    if annotations or "annotations" in node["metadata"]:
        node["metadata"]["annotations"] = annotations


def can_be_simulated(node: Mapping[str, Any]) -> bool:
    """Return whether a Node has allocatable resources and is not marked as not ready."""
    status = mapping_of(node.get("status"))
    amounts = [mapping_of(status.get(name)) for name in ("allocatable", "capacity")]
    conditions = [mapping_of(each) for each in _items(status.get("conditions"))]
    return any(each.get("cpu") and each.get("memory") for each in amounts) and all(
        each.get("status") == "True" for each in conditions if each.get("type") == "Ready"
    )


# -- objects that others refer to


def missing_objects(trees: Collection[Tree]) -> Iterator[Tree]:
    """Yield the namespaces and service accounts that objects name and the dump leaves out."""
    there = {(tree["kind"], _namespace(tree), name_of(tree)) for tree in trees}
    there |= {("Namespace", "", "default"), ("ServiceAccount", "*", "default")}
    labels: dict[str, dict[str, str]] = {}
    needed: dict[tuple[str, str, str], None] = {}
    for tree in trees:
        if namespace := _namespace(tree):
            needed["Namespace", "", namespace] = None
            if tree["kind"] == "ResourceClaim" and _wants_admin_access(tree):
                labels[namespace] = {ADMIN_ACCESS: "true"}
        account = _account_of(tree)
        if account not in ("", "default"):
            needed["ServiceAccount", namespace, account] = None
    for kind, namespace, name in needed:
        if (kind, namespace, name) in there:
            continue
        metadata: Tree = {"name": name}
        if namespace:
            metadata["namespace"] = namespace
        if kind == "Namespace" and name in labels:
            metadata["labels"] = labels[name]
        yield {"apiVersion": "v1", "kind": kind, "metadata": metadata}


def _account_of(tree: Mapping[str, Any]) -> str:
    """Return the service account that a pod, or the pod template of a workload, names."""
    spec = mapping_of(tree.get("spec"))
    while nested := mapping_of(spec.get("template")) or mapping_of(spec.get("jobTemplate")):
        spec = mapping_of(nested.get("spec"))
    return str(spec.get("serviceAccountName") or "")


def _wants_admin_access(claim: Mapping[str, Any]) -> bool:
    requests = mapping_of(mapping_of(claim.get("spec")).get("devices")).get("requests")
    return any(
        mapping_of(mapping_of(each).get("exactly") or each).get("adminAccess") is True
        for each in _items(requests)
    )


# -- workloads and their pods


def complete_workloads(trees: Sequence[Tree]) -> Iterator[Tree]:
    """Let workloads recognize their pods; yield the revisions of templates that the dump leaves out.

    A pod (or a ReplicaSet) that its controller would not select gets the labels of the controller's template:
    real ones have them, those of dumps that were written by hand may not.
    """
    workloads = {tree["metadata"]["uid"]: tree for tree in trees if tree["kind"] in _WORKLOADS}
    dependents: dict[str, list[Tree]] = {}
    for tree in trees:
        for owner in _items(tree["metadata"].get("ownerReferences")):
            if owner.get("controller") and owner.get("uid") in workloads:
                dependents.setdefault(owner["uid"], []).append(tree)
    for uid, workload in workloads.items():
        owned = dependents.get(uid, [])
        wanted = mapping_of(mapping_of(workload["spec"].get("template")).get("metadata")).get("labels") or {}
        for each in owned:
            labels = each["metadata"].get("labels") or {}
            if not _selector_labels(workload).items() <= labels.items():
                each["metadata"]["labels"] = {**labels, **wanted}
        if workload["kind"] in _WITH_REVISIONS:
            pods = [each for each in owned if each["kind"] == "Pod"]
            revisions = [each for each in owned if each["kind"] == "ControllerRevision"]
            yield from _complete_revision(workload, pods, revisions)


def _selector_labels(workload: Mapping[str, Any]) -> Mapping[str, str]:
    selector = mapping_of(workload["spec"].get("selector"))
    return selector if workload["kind"] == "ReplicationController" else selector.get("matchLabels") or {}


def _complete_revision(workload: Tree, pods: list[Tree], revisions: list[Tree]) -> Iterator[Tree]:
    """Record the current template under the revision that the pods have: pods of another are replaced."""
    spec, status = workload["spec"], mapping_of(workload.get("status"))
    generation = workload["metadata"].get("generation")
    is_current = status.get("observedGeneration") in (None, generation)
    metadata = workload["metadata"]
    owner = ObjectMeta(name=metadata["name"], namespace=metadata["namespace"], uid=metadata["uid"])
    plan = plan_revision(owner, _WITH_REVISIONS[workload["kind"]], spec["template"], (), None)
    assert isinstance(plan.action, CreateAction)
    made = dict(plan.action.tree)
    if revisions:
        newest = max(revisions, key=lambda each: each.get("revision") or 0)
        if is_current and prune(newest.get("data")) != prune(made["data"]):
            newest["data"] = made["data"]
        return
    is_set = workload["kind"] == "StatefulSet"
    name = str(status.get("updateRevision") or "") if is_set else ""
    used = Counter(str((each["metadata"].get("labels") or {}).get(REVISION_LABEL) or "") for each in pods)
    used.pop("", None)
    if not name and used:
        label = used.most_common(1)[0][0]
        name = label if is_set else f"{metadata['name']}-{label}"
    if name:
        hash = name.removeprefix(f"{metadata['name']}-")
        made["metadata"]["name"] = name
        made["metadata"]["labels"] |= {REVISION_LABEL: hash, "controller.kubernetes.io/hash": hash}
    own = made["metadata"]["name"] if is_set else made["metadata"]["labels"][REVISION_LABEL]
    for pod in pods:
        pod["metadata"].setdefault("labels", {}).setdefault(REVISION_LABEL, own)
    made["metadata"]["namespace"] = metadata["namespace"]
    yield made


# -- trees


def mapping_of(value: Any) -> Mapping[str, Any]:
    """Return a mapping; anything else is left to validation."""
    return value if isinstance(value, Mapping) else {}


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _namespace(tree: Mapping[str, Any]) -> str:
    """Return the namespace of an object, "" for kinds without."""
    group, _, version = str(tree.get("apiVersion", "")).rpartition("/")
    resource = find_resource_by_kind(group, version, str(tree.get("kind")))
    return namespace_of(tree) if resource is not None and resource.namespaced else ""
