"""Claims of a pod: generated from templates, recorded in its status, reserved if it was not scheduled by us.

As in kube-controller-manager's resource claim controller: one claim per template entry, named after the pod
and the entry and owned by the pod; the entries of `status.resourceClaimStatuses`; and, once the pod is
assigned to a node, its entry in `reservedFor` of allocated claims. A claim created before its name was
recorded is found by its owner and annotation. Pods that are deleted or terminated get nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from plimsoll.api import codec
from plimsoll.api.core import Pod, PodResourceClaim
from plimsoll.api.pod_claims import claim_for_entry, is_owned_by, is_reserved_for
from plimsoll.api.resource import ResourceClaim
from plimsoll.client.endpoints import PODS, RESOURCE_CLAIMS
from plimsoll.client.event_recorder import WARNING, EventRecord
from plimsoll.controllers.actions import EMPTY_PLAN, Action, ActionPlan, CreateAction, PatchAction
from plimsoll.controllers.object_views import ClaimTemplateView
from plimsoll.controllers.pod_utils import POD_CLAIM_ANNOTATION, is_done, object_reference

COMPONENT = "resource_claim"
#: Field manager of `status.resourceClaimStatuses`.
FIELD_MANAGER = "ResourceClaimController"
FAILED_CREATION = "FailedResourceClaimCreation"
_TEMPLATE = "resourceclaimtemplate.resource.k8s.io"
#: The server appends five characters; with a hyphen, names are limited to 63.
_LONGEST_BASE = 57


def plan_pod(
    pod: Pod,
    claims: Mapping[str, ResourceClaim],
    owned: Iterable[ResourceClaim],
    templates: Mapping[str, ClaimTemplateView],
) -> ActionPlan:
    """Plan for a pod; `claims` are those of its namespace, `owned` those that name it as their owner.

    Claims are created first; once they are among `owned`, their names are recorded; once those are in the
    pod's status, they can be reserved.

    DIFF: no claims are created for a finished pod (test_a_finished_pod_gets_nothing); upstream creates those
    again that were deleted because the pod had finished, and deletes them again.

    DIFF: all entries of the status are applied together (test_entries_are_applied_together); upstream applies
    only the new ones, which removes the others; it then applies those, which removes the first, endlessly.
    """
    if pod.metadata.deletion_timestamp is not None or is_done(pod):
        return EMPTY_PLAN
    existing = {
        claim.metadata.annotations.get(POD_CLAIM_ANNOTATION): claim for claim in reversed(list(owned))
    }
    actions: list[Action] = []
    names: dict[str, str | None] = {}
    changed = False
    for entry in pod.spec.resource_claims:
        if entry.resource_claim_template_name is None:
            continue
        named = claim_for_entry(pod, entry)
        if named.known:
            names[entry.name] = named.name
            known = claims.get(named.name) if named.name is not None else None
            if named.name is None or (known is not None and is_owned_by(known, pod)):
                continue
        claim = existing.get(entry.name)
        if claim is not None:
            names[entry.name] = claim.metadata.name
            changed = changed or named.name != claim.metadata.name
            continue
        template = templates.get(entry.resource_claim_template_name)
        if template is None:
            name = entry.resource_claim_template_name
            missing = f'resource claim template "{name}": {_TEMPLATE} "{name}" not found'
            return _failed(pod, entry, missing, actions)
        actions.append(_create_from_template(pod, entry, template))
    if actions:
        return ActionPlan(tuple(actions))
    if changed:
        return ActionPlan((_record_names(pod, names),))
    return _plan_reservations(pod, claims)


def _failed(pod: Pod, entry: PodResourceClaim, message: str, before: list[Action]) -> ActionPlan:
    message = f"PodResourceClaim {entry.name}: {message}"
    report = EventRecord(object_reference(pod), FAILED_CREATION, message, COMPONENT, WARNING)
    return ActionPlan((*before, report), error=message)


def creation_failed_event(pod: Pod, create: CreateAction, message: str) -> EventRecord:
    """Build the event for a claim that could not be created."""
    entry = create.tree["metadata"]["annotations"][POD_CLAIM_ANNOTATION]
    text = f"PodResourceClaim {entry}: create ResourceClaim : {message}"
    return EventRecord(object_reference(pod), FAILED_CREATION, text, COMPONENT, WARNING)


def generate_name_prefix(pod: str, entry: str) -> str:
    """Return the generateName prefix; long names are truncated in proportion so that both remain visible."""
    base = f"{pod}-{entry}-"
    if len(base) <= _LONGEST_BASE:
        return base
    cut = pod[: len(pod) * _LONGEST_BASE // len(base)]
    return f"{cut}-{entry[: len(entry) * _LONGEST_BASE // len(base)]}"


def _create_from_template(pod: Pod, entry: PodResourceClaim, template: ClaimTemplateView) -> CreateAction:
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": pod.metadata.name,
        "uid": pod.metadata.uid,
        "controller": True,
    }
    metadata: dict[str, Any] = {
        "generateName": generate_name_prefix(pod.metadata.name, entry.name),
        "namespace": pod.metadata.namespace,
        "annotations": {**template.spec.metadata.annotations, POD_CLAIM_ANNOTATION: entry.name},
        "ownerReferences": [owner],
    }
    if template.spec.metadata.labels:
        metadata["labels"] = dict(template.spec.metadata.labels)
    tree = {
        "apiVersion": RESOURCE_CLAIMS.api_version,
        "kind": RESOURCE_CLAIMS.kind,
        "metadata": metadata,
        "spec": template.spec.spec or {},
    }
    return CreateAction(RESOURCE_CLAIMS, tree, namespace=pod.metadata.namespace)


def _record_names(pod: Pod, names: Mapping[str, str | None]) -> PatchAction:
    statuses = [
        {"name": entry} if name is None else {"name": entry, "resourceClaimName": name}
        for entry, name in names.items()
    ]
    tree = {
        "apiVersion": PODS.api_version,
        "kind": PODS.kind,
        "metadata": {"name": pod.metadata.name, "namespace": pod.metadata.namespace, "uid": pod.metadata.uid},
        "status": {"resourceClaimStatuses": statuses},
    }
    return PatchAction(
        PODS,
        pod.metadata.name,
        tree,
        namespace=pod.metadata.namespace,
        subresource="status",
        type="apply",
        field_manager=FIELD_MANAGER,
    )


def _plan_reservations(pod: Pod, claims: Mapping[str, ResourceClaim]) -> ActionPlan:
    """Reserve allocated claims of a pod that was assigned to its node without reserving them."""
    if not pod.spec.node_name:
        return EMPTY_PLAN  # the scheduler reserves
    actions: list[Action] = []
    for entry in pod.spec.resource_claims:
        named = claim_for_entry(pod, entry)
        claim = claims.get(named.name) if named.name is not None else None
        if claim is None:
            return ActionPlan(tuple(actions))
        if named.generated and not is_owned_by(claim, pod):
            return ActionPlan(
                tuple(actions), error=f"claim {claim.metadata.name} was not created for this pod"
            )
        if claim.status.allocation is not None and not is_reserved_for(claim, pod):
            actions.append(_add_consumer(pod, claim))
    return ActionPlan(tuple(actions))


def _add_consumer(pod: Pod, claim: ResourceClaim) -> PatchAction:
    consumers = [codec.to_tree(consumer) for consumer in claim.status.reserved_for]
    consumers.append({"resource": "pods", "name": pod.metadata.name, "uid": pod.metadata.uid})
    return PatchAction(
        RESOURCE_CLAIMS,
        claim.metadata.name,
        {
            "metadata": {"resourceVersion": claim.metadata.resource_version},
            "status": {"reservedFor": consumers},
        },
        namespace=claim.metadata.namespace,
        subresource="status",
    )
