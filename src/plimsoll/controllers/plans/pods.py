"""Pods as controllers see them: whether they are done, which claims they use, how they are marked.

Owns the questions that several plans ask about a pod, and the patches of its status.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from plimsoll.api.core import Pod, PodResourceClaim
from plimsoll.api.meta import Condition, ObjectMeta, ObjectReference
from plimsoll.api.resource import ClaimConsumer, ResourceClaim
from plimsoll.api.timestamps import format_time
from plimsoll.client.endpoints import PODS
from plimsoll.controllers.actions import Patch

#: What a claim generated for a pod carries: the name it has inside the pod.
POD_CLAIM_ANNOTATION = "resource.kubernetes.io/pod-claim-name"
DISRUPTION_TARGET = "DisruptionTarget"


class Ref(NamedTuple):
    """An object by name, of a kind that the context tells."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def ref(metadata: ObjectMeta) -> Ref:
    return Ref(metadata.namespace, metadata.name)


def reference(pod: Pod) -> ObjectReference:
    """A pod as events name it."""
    metadata = pod.metadata
    return ObjectReference(
        api_version="v1",
        kind="Pod",
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
    )


def is_finished(pod: Pod) -> bool:
    """Whether all containers have ended for good."""
    return pod.status.phase in ("Succeeded", "Failed")


def is_done(pod: Pod) -> bool:
    """Whether no container runs or ever will: finished, or deleted before it had a node."""
    return is_finished(pod) or (pod.metadata.deletion_timestamp is not None and not pod.spec.node_name)


# -- claims


class Named(NamedTuple):
    """Which claim an entry of `spec.resourceClaims` stands for."""

    name: str | None  #: None: not made yet, or not needed
    generated: bool = False  #: made for the pod, whose owner must be checked
    known: bool = True  #: whether the pod's status, or its spec, says anything about it


def claim_of(pod: Pod, entry: PodResourceClaim) -> Named:
    """The claim of an entry: named by the user, or recorded in the pod's status when it was made."""
    if entry.resource_claim_name is not None:
        return Named(entry.resource_claim_name)
    if entry.resource_claim_template_name is not None:
        for status in pod.status.resource_claim_statuses:
            if status.name == entry.name:
                return Named(status.resource_claim_name, generated=True)
        return Named(None, generated=True, known=False)
    return Named(None, known=False)


def claim_names(pod: Pod) -> list[str]:
    """The claims a pod is known to use, those for its extended resources included."""
    named = (claim_of(pod, entry).name for entry in pod.spec.resource_claims)
    names = [name for name in named if name]
    if pod.status.extended_resource_claim_status is not None:
        names.append(pod.status.extended_resource_claim_status.resource_claim_name)
    return list(dict.fromkeys(name for name in names if name))


def owning_pod(claim: ResourceClaim) -> tuple[str, str] | None:
    """Name and UID of the pod a claim was made for."""
    for owner in claim.metadata.owner_references:
        if owner.controller and owner.api_version == "v1" and owner.kind == "Pod":
            return owner.name, owner.uid
    return None


def is_made_for(claim: ResourceClaim, pod: Pod) -> bool:
    """Whether a pod is the controller of a claim."""
    owners = claim.metadata.owner_references
    return any(owner.controller and owner.uid == pod.metadata.uid for owner in owners)


def is_reserved_for(claim: ResourceClaim, pod: Pod) -> bool:
    return any(consumer.uid == pod.metadata.uid for consumer in claim.status.reserved_for)


def is_pod(consumer: ClaimConsumer) -> bool:
    return not consumer.api_group and consumer.resource == "pods"


# -- marks


def find_condition(conditions: tuple[Condition, ...], type: str) -> Condition | None:
    return next((condition for condition in conditions if condition.type == type), None)


def set_condition(old: tuple[Condition, ...], condition: dict[str, Any]) -> dict[str, Any]:
    """The part of a strategic merge patch that sets a condition, a new one after those there are."""
    types = list(dict.fromkeys([*(item.type for item in old), condition["type"]]))
    order = [{"type": type} for type in types]
    return {"$setElementOrder/conditions": order, "conditions": [condition]}


def mark_disrupted(
    pod: Pod, reason: str, message: str, now: float, *, observed: bool = True, phase: str = ""
) -> Patch | None:
    """The patch that says why a pod is about to be deleted; None if it says so already."""
    old = find_condition(pod.status.conditions, DISRUPTION_TARGET)
    status: dict[str, Any] = {}
    if old is None or (old.status, old.reason, old.message) != ("True", reason, message):
        since = old.last_transition_time if old is not None and old.status == "True" else None
        condition: dict[str, Any] = {
            "type": DISRUPTION_TARGET,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": since or format_time(now),
        }
        if observed and pod.metadata.generation:
            condition["observedGeneration"] = pod.metadata.generation
        status.update(set_condition(pod.status.conditions, condition))
    if phase and pod.status.phase != phase:
        status["phase"] = phase
        if pod.metadata.generation:
            status["observedGeneration"] = pod.metadata.generation
    return patch_status(pod, status) if status else None


def patch_status(pod: Pod, status: dict[str, Any]) -> Patch:
    """A patch of a pod's status, for this very pod and no later one of its name."""
    metadata = pod.metadata
    return Patch(
        PODS,
        metadata.name,
        {"metadata": {"uid": metadata.uid}, "status": status},
        namespace=metadata.namespace,
        subresource="status",
        type="strategic",
    )
