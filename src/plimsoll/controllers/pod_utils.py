"""Helpers for pods shared by the plans: termination, claims, conditions and status patches."""

from __future__ import annotations

from typing import Any, NamedTuple

from plimsoll.api.core import Pod
from plimsoll.api.meta import Condition, ObjectMeta
from plimsoll.api.pod_claims import resolve_claim_names
from plimsoll.api.resource import ResourceClaimConsumerReference
from plimsoll.api.timestamps import format_time
from plimsoll.client.endpoints import PODS
from plimsoll.controllers.actions import PatchAction

#: Annotation of a generated claim: its name within the pod.
POD_CLAIM_ANNOTATION = "resource.kubernetes.io/pod-claim-name"
DISRUPTION_TARGET = "DisruptionTarget"


class ObjectName(NamedTuple):
    """Namespace and name of an object."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def object_name(metadata: ObjectMeta) -> ObjectName:
    return ObjectName(*metadata.key)


def is_finished(pod: Pod) -> bool:
    """Return whether a pod has terminated (phase Succeeded or Failed)."""
    return pod.status.phase in ("Succeeded", "Failed")


def is_done(pod: Pod) -> bool:
    """Return whether no container runs or ever will: terminated, or deleted before it was scheduled."""
    return is_finished(pod) or (pod.metadata.deletion_timestamp is not None and not pod.spec.node_name)


# -- claims


def claim_names(pod: Pod) -> list[str]:
    """Return the claims that a pod is known to use, including the one for its extended resources."""
    return list(dict.fromkeys(resolve_claim_names(pod).values()))


def is_pod(consumer: ResourceClaimConsumerReference) -> bool:
    return not consumer.api_group and consumer.resource == "pods"


# -- conditions


def find_condition(conditions: tuple[Condition, ...], type: str) -> Condition | None:
    return next((condition for condition in conditions if condition.type == type), None)


def set_condition(old: tuple[Condition, ...], condition: dict[str, Any]) -> dict[str, Any]:
    """Build the part of a strategic merge patch that sets a condition; a new one is appended."""
    types = list(dict.fromkeys([*(item.type for item in old), condition["type"]]))
    order = [{"type": type} for type in types]
    return {"$setElementOrder/conditions": order, "conditions": [condition]}


def plan_disruption_condition(
    pod: Pod, reason: str, message: str, now: float, *, observed: bool = True, phase: str = ""
) -> PatchAction | None:
    """Build the patch that sets DisruptionTarget before a deletion; None if it is set already."""
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


def patch_status(pod: Pod, status: dict[str, Any]) -> PatchAction:
    """Build a patch of a pod's status with its UID as precondition."""
    metadata = pod.metadata
    return PatchAction(
        PODS,
        metadata.name,
        {"metadata": {"uid": metadata.uid}, "status": status},
        namespace=metadata.namespace,
        subresource="status",
        type="strategic",
    )
