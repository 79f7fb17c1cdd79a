"""Claims of a pod: generated from templates, recorded in its status, reserved if it was not scheduled by us.

As in kube-controller-manager's resource claim controller: one claim per template entry, named after the pod
and the entry and owned by the pod; the entries of `status.resourceClaimStatuses`; and, once the pod is
assigned to a node, its entry in `reservedFor` of allocated claims. A claim created before its name was
recorded is found by its owner and annotation. Pods that are deleted or terminated get nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from plimsoll.api import codec
from plimsoll.api.core import Pod, PodResourceClaim
from plimsoll.api.meta import ObjectReference
from plimsoll.api.pod_claims import (
    claim_for_entry,
    group_consumer,
    is_generated_for,
    is_group_entry,
    is_reserved_for,
)
from plimsoll.api.resource import ResourceClaim
from plimsoll.api.scheduling import PodGroup
from plimsoll.client.endpoints import PODS, RESOURCE_CLAIMS
from plimsoll.client.event_recorder import WARNING, EventRecord
from plimsoll.controllers.actions import EMPTY_PLAN, Action, ActionPlan, CreateAction, PatchAction
from plimsoll.controllers.object_views import ClaimTemplateView
from plimsoll.controllers.pod_utils import POD_CLAIM_ANNOTATION, is_done
from plimsoll.controllers.resource_claim.template_claims import (
    FAILED_CREATION,
    by_entry,
    create_from_template,
    missing_template,
    record_names,
)

COMPONENT = "resource_claim"


def plan_pod(
    pod: Pod,
    claims: Mapping[str, ResourceClaim],
    owned: Iterable[ResourceClaim],
    templates: Mapping[str, ClaimTemplateView],
    group: PodGroup | None = None,
    group_owned: Iterable[ResourceClaim] = (),
) -> ActionPlan:
    """Plan for a pod; `claims` are those of its namespace, `owned` those that name it as their owner.

    `group` is the PodGroup of the pod, `group_owned` are the claims that the group owns: entries that the pod
    shares with the group refer to those.

    Claims are created first; once they are among `owned`, their names are recorded; once those are in the
    pod's status, they can be reserved.

    DIFF: no claims are created for a finished pod (test_a_finished_pod_gets_nothing); upstream creates those
    again that were deleted because the pod had finished, and deletes them again.

    DIFF: all entries of the status are applied together (test_entries_are_applied_together); upstream applies
    only the new ones, which removes the others; it then applies those, which removes the first, endlessly.
    """
    if pod.metadata.deletion_timestamp is not None or is_done(pod):
        return EMPTY_PLAN
    owned = list(owned)
    existing, shared = by_entry(owned), by_entry(group_owned)
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
            if named.name is None or (known is not None and is_generated_for(known, pod)):
                continue
        in_group = is_group_entry(entry, group)
        claim = (shared if in_group else existing).get(entry.name)
        if claim is not None:
            names[entry.name] = claim.metadata.name
            changed = changed or named.name != claim.metadata.name
            continue
        if in_group:
            continue  # not created yet
        template = templates.get(entry.resource_claim_template_name)
        if template is None:
            missing = missing_template(entry.resource_claim_template_name)
            return _failed(pod, entry, missing, actions)
        actions.append(create_from_template(PODS, pod.metadata, entry.name, template))
    if actions:
        return ActionPlan(tuple(actions))
    if changed:
        is_unsure = len(existing) < len(owned)
        return ActionPlan((record_names(PODS, pod.metadata, names, is_unsure=is_unsure),))
    return _plan_reservations(pod, claims, group)


def _failed(pod: Pod, entry: PodResourceClaim, message: str, before: list[Action]) -> ActionPlan:
    message = f"PodResourceClaim {entry.name}: {message}"
    report = EventRecord(
        ObjectReference.to_version(pod.metadata, "Pod"), FAILED_CREATION, message, COMPONENT, WARNING
    )
    return ActionPlan((*before, report), error=message)


def creation_failed_event(pod: Pod, create: CreateAction, message: str) -> EventRecord:
    """Build the event for a claim that could not be created."""
    entry = create.tree["metadata"]["annotations"][POD_CLAIM_ANNOTATION]
    text = f"PodResourceClaim {entry}: create ResourceClaim : {message}"
    return EventRecord(
        ObjectReference.to_version(pod.metadata, "Pod"), FAILED_CREATION, text, COMPONENT, WARNING
    )


def _plan_reservations(pod: Pod, claims: Mapping[str, ResourceClaim], group: PodGroup | None) -> ActionPlan:
    """Reserve allocated claims of a pod that was assigned to its node without reserving them."""
    if not pod.spec.node_name:
        return EMPTY_PLAN  # the scheduler reserves
    actions: list[Action] = []
    for entry in pod.spec.resource_claims:
        named = claim_for_entry(pod, entry)
        claim = claims.get(named.name) if named.name is not None else None
        if claim is None:
            return ActionPlan(tuple(actions))
        if named.generated and not is_generated_for(claim, pod):
            return ActionPlan(
                tuple(actions), error=f"claim {claim.metadata.name} was not created for this pod"
            )
        if claim.status.allocation is not None and not is_reserved_for(claim, pod):
            actions.append(_add_consumer(pod, claim, group if is_group_entry(entry, group) else None))
    return ActionPlan(tuple(actions))


def _add_consumer(pod: Pod, claim: ResourceClaim, group: PodGroup | None) -> PatchAction:
    """Reserve a claim for a pod, or for its group."""
    consumers = [codec.to_tree(consumer) for consumer in claim.status.reserved_for]
    if group is not None:
        consumers.append(codec.to_tree(group_consumer(group)))
    else:
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
