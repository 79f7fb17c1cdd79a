"""Identity of the pods of a StatefulSet: names, labels and volume claims by ordinal."""

from __future__ import annotations

from typing import Any

from plimsoll.api.core import Pod
from plimsoll.api.meta import ObjectMeta
from plimsoll.client.endpoints import PERSISTENT_VOLUME_CLAIMS, STATEFUL_SETS
from plimsoll.controllers.actions import CreateAction, PatchAction
from plimsoll.controllers.workload_views import ControllerRevisionView, StatefulSetView
from plimsoll.controllers.workloads.ownership import controller_reference
from plimsoll.controllers.workloads.revisions import REVISION_LABEL, template_of
from plimsoll.controllers.workloads.templates import create_pod

_POD_NAME = "statefulset.kubernetes.io/pod-name"
_POD_INDEX = "apps.kubernetes.io/pod-index"


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
    return ("Retain", "Retain") if policy is None else (policy.when_deleted, policy.when_scaled)


def plan_claim_owners(
    owner: StatefulSetView, pod: Pod | None, claim: ObjectMeta, *, condemned: bool
) -> PatchAction | None:
    """Plan the owner of a volume claim by the retention policy.

    The set owns it if it goes with the set; a pod that is scaled away owns it if it goes with that pod.
    """
    when_deleted, when_scaled = _policy(owner)
    goes_with_pod = when_scaled == "Delete" and condemned and pod is not None
    goes_with_set = when_deleted == "Delete" and not goes_with_pod
    kept = [
        each
        for each in claim.owner_references
        if each.uid != owner.metadata.uid and not (each.kind == "Pod" and _is_of(owner, each.name, claim))
    ]
    wanted: list[dict[str, Any]] = []
    if goes_with_pod and pod is not None:
        metadata = pod.metadata
        wanted = [{"apiVersion": "v1", "kind": "Pod", "name": metadata.name, "uid": metadata.uid}]
    elif goes_with_set:
        wanted = [controller_reference(owner.metadata, STATEFUL_SETS)]
    uids = {each["uid"] for each in wanted}
    if {each.uid for each in claim.owner_references} == {each.uid for each in kept} | uids:
        return None
    removed = [
        {"$patch": "delete", "uid": each.uid}
        for each in claim.owner_references
        if each not in kept and each.uid not in uids
    ]
    change = {"uid": claim.uid, "ownerReferences": [*removed, *wanted]}
    return PatchAction(
        PERSISTENT_VOLUME_CLAIMS, claim.name, {"metadata": change}, claim.namespace, type="strategic"
    )


def _is_of(owner: StatefulSetView, pod: str, claim: ObjectMeta) -> bool:
    """Return whether a pod that owns a claim is the one of the set that uses it."""
    return pod.startswith(f"{owner.metadata.name}-") and claim.name.endswith(f"-{pod}")
