"""Identity of the pods of a StatefulSet: names, labels and volume claims by ordinal."""

from __future__ import annotations

from typing import Any

from plimsoll.api.core import Pod
from plimsoll.api.meta import ObjectMeta
from plimsoll.client.endpoints import PERSISTENT_VOLUME_CLAIMS, PODS, STATEFUL_SETS
from plimsoll.controllers.actions import CreateAction, PatchAction
from plimsoll.controllers.workload_views import ControllerRevisionView, StatefulSetView
from plimsoll.controllers.workloads.ownership import controller_reference
from plimsoll.controllers.workloads.revisions import REVISION_LABEL, template_of
from plimsoll.controllers.workloads.templates import create_pod

_POD_NAME = "statefulset.kubernetes.io/pod-name"
_POD_INDEX = "apps.kubernetes.io/pod-index"
_RETAIN, _DELETE = "Retain", "Delete"


def pod_name(owner: StatefulSetView, ordinal: int) -> str:
    return f"{owner.metadata.name}-{ordinal}"


def ordinal_of(owner: StatefulSetView, pod: Pod) -> int | None:
    """Return the ordinal of a pod by its name; None if it has none."""
    parent, _, number = pod.metadata.name.rpartition("-")
    if parent != owner.metadata.name or not (number.isascii() and number.isdigit()):
        return None
    return int(number) if len(number) < 10 else None


def claim_names(owner: StatefulSetView, ordinal: int) -> dict[str, str]:
    """Return the volume claims of a pod: name of the template -> name of the claim."""
    names = (each["metadata"]["name"] for each in owner.spec.volume_claim_templates)
    return {name: f"{name}-{pod_name(owner, ordinal)}" for name in names}


def make_pod(owner: StatefulSetView, revision: ControllerRevisionView, ordinal: int) -> CreateAction:
    """Build the creation of the pod with an ordinal, from the template of a revision."""
    template = template_of(revision)
    name = pod_name(owner, ordinal)
    claims = claim_names(owner, ordinal)
    volumes = [each for each in _volumes(template) if each.get("name") not in claims]
    volumes += [
        {"name": volume, "persistentVolumeClaim": {"claimName": claim}} for volume, claim in claims.items()
    ]
    spec: dict[str, Any] = {"hostname": name}
    if owner.spec.service_name:
        spec["subdomain"] = owner.spec.service_name
    if volumes:
        spec["volumes"] = volumes
    labels = {_POD_NAME: name, _POD_INDEX: str(ordinal), REVISION_LABEL: revision.metadata.name}
    return create_pod(owner.metadata, STATEFUL_SETS, template, name=name, labels=labels, spec=spec)


def _volumes(template: dict[str, Any]) -> list[dict[str, Any]]:
    volumes: list[dict[str, Any]] = (template.get("spec") or {}).get("volumes") or []
    return volumes


def make_claims(owner: StatefulSetView, ordinal: int) -> list[CreateAction]:
    """Build the creation of the volume claims of a pod."""
    names = claim_names(owner, ordinal)
    selector = owner.spec.selector.match_labels if owner.spec.selector is not None else {}
    actions = []
    for template in owner.spec.volume_claim_templates:
        source = template["metadata"]
        labels = {**(source.get("labels") or {}), **selector}
        metadata = {"name": names[source["name"]], "labels": labels}
        if source.get("annotations"):
            metadata["annotations"] = source["annotations"]
        if _policy(owner)[0] == "Delete":
            metadata["ownerReferences"] = [controller_reference(owner.metadata, STATEFUL_SETS)]
        tree = {
            "apiVersion": "v1",
            "kind": PERSISTENT_VOLUME_CLAIMS.kind,
            "metadata": metadata,
            "spec": template.get("spec") or {},
        }
        actions.append(CreateAction(PERSISTENT_VOLUME_CLAIMS, tree, owner.metadata.namespace))
    return actions


def _policy(owner: StatefulSetView) -> tuple[str, str]:
    """Return what happens to claims when the set is deleted, and when it is scaled down."""
    policy = owner.spec.persistent_volume_claim_retention_policy
    return (_RETAIN, _RETAIN) if policy is None else (policy.when_deleted, policy.when_scaled)


def plan_claim_owners(
    owner: StatefulSetView, pod: Pod, claim: ObjectMeta, *, condemned: bool
) -> PatchAction | None:
    """Plan the controller of a volume claim by the retention policy, as upstream.

    The set controls it if it goes with the set; a pod that is scaled away controls it if it goes with that
    pod. A claim that refers to an earlier set or pod of the name is left to the garbage collector, and one
    that something else controls to its controller.
    """
    when_deleted, when_scaled = _policy(owner)
    own = {
        (STATEFUL_SETS.api_version, STATEFUL_SETS.kind, owner.metadata.name): owner.metadata.uid,
        (PODS.api_version, PODS.kind, pod.metadata.name): pod.metadata.uid,
    }
    references = claim.owner_references
    names = [(each.api_version, each.kind, each.name) for each in references]
    if any(own.get(name, each.uid) != each.uid for name, each in zip(names, references, strict=True)):
        return None
    ours = [each for each in references if each.uid in own.values()]
    wanted: list[dict[str, Any]] = []
    if (when_deleted, when_scaled) != (_RETAIN, _RETAIN) and any(
        each.controller for each in references if each not in ours
    ):
        pass  # another controller: ours are removed
    elif when_scaled == _DELETE and condemned:
        wanted = [controller_reference(pod.metadata, PODS)]
    elif when_deleted == _DELETE:
        wanted = [controller_reference(owner.metadata, STATEFUL_SETS)]
    uids = {each["uid"] for each in wanted}
    if {(each.uid, bool(each.controller)) for each in ours} == {(uid, True) for uid in uids}:
        return None
    removed = [{"$patch": "delete", "uid": each.uid} for each in ours if each.uid not in uids]
    change: dict[str, Any] = {"uid": claim.uid, "ownerReferences": [*removed, *wanted]}
    gone = {each["uid"] for each in removed}
    kept = [each.uid for each in references if each.uid not in gone]
    # A merged list begins with the entries of the patch otherwise.
    order = [{"uid": uid} for uid in dict.fromkeys([*kept, *uids])]
    if len(order) > 1:
        change["$setElementOrder/ownerReferences"] = order
    return PatchAction(
        PERSISTENT_VOLUME_CLAIMS, claim.name, {"metadata": change}, claim.namespace, type="strategic"
    )
