"""Claims from templates, and reservations for pods that came to their node without the scheduler.

Owns what is done for a pod with `spec.resourceClaims` (document 000, "ResourceClaim"; upstream's resource
claim controller): a claim for each template, named after the pod and its entry, owned by the pod; the
entries of `status.resourceClaimStatuses`; and, once the pod has a node, its place in `reservedFor` of
allocated claims. Promises: a claim that was made before its name could be recorded is found again by its
owner and annotation; pods that are deleted or finished get nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from plimsoll.api import codec
from plimsoll.api.core import Pod, PodResourceClaim
from plimsoll.api.resource import ResourceClaim
from plimsoll.client.endpoints import PODS, RESOURCE_CLAIMS
from plimsoll.client.event_recorder import WARNING, Report
from plimsoll.controllers.actions import NOTHING, Action, Create, Patch, Plan
from plimsoll.controllers.plans.pods import (
    POD_CLAIM_ANNOTATION,
    claim_of,
    is_done,
    is_made_for,
    is_reserved_for,
    reference,
)
from plimsoll.controllers.plans.views import Template

COMPONENT = "resource_claim"
#: Who owns `status.resourceClaimStatuses` of pods.
FIELD_MANAGER = "ResourceClaimController"
FAILED_CREATION = "FailedResourceClaimCreation"
_TEMPLATE = "resourceclaimtemplate.resource.k8s.io"
#: The server adds five characters; with them and a hyphen a name may have 63.
_LONGEST_BASE = 57


def plan_pod(
    pod: Pod,
    claims: Mapping[str, ResourceClaim],
    owned: Iterable[ResourceClaim],
    templates: Mapping[str, Template],
) -> Plan:
    """What to do for a pod; `claims` are those of its namespace, `owned` those that name it as their owner.

    Claims are made first; once they are among `owned`, their names are recorded; once those are in the pod's
    status, they can be reserved.

    DIFF: a pod that has finished gets no new claims (test_a_finished_pod_gets_nothing); upstream makes one
    for each that was deleted because the pod had finished, and deletes it again.

    DIFF: all entries of the status are applied together (test_entries_are_applied_together); upstream applies
    only the new ones and so takes back the others, which it then adds taking back the first, without end.
    """
    if pod.metadata.deletion_timestamp is not None or is_done(pod):
        return NOTHING
    made = {claim.metadata.annotations.get(POD_CLAIM_ANNOTATION): claim for claim in reversed(list(owned))}
    actions: list[Action] = []
    names: dict[str, str | None] = {}
    news = False
    for entry in pod.spec.resource_claims:
        if entry.resource_claim_template_name is None:
            continue
        named = claim_of(pod, entry)
        if named.known:
            names[entry.name] = named.name
            known = claims.get(named.name) if named.name is not None else None
            if named.name is None or (known is not None and is_made_for(known, pod)):
                continue
        claim = made.get(entry.name)
        if claim is not None:
            names[entry.name] = claim.metadata.name
            news = news or named.name != claim.metadata.name
            continue
        template = templates.get(entry.resource_claim_template_name)
        if template is None:
            name = entry.resource_claim_template_name
            missing = f'resource claim template "{name}": {_TEMPLATE} "{name}" not found'
            return _trouble(pod, entry, missing, actions)
        actions.append(_generate(pod, entry, template))
    if actions:
        return Plan(tuple(actions))
    if news:
        return Plan((_record(pod, names),))
    return _reserve(pod, claims)


def _trouble(pod: Pod, entry: PodResourceClaim, message: str, before: list[Action]) -> Plan:
    message = f"PodResourceClaim {entry.name}: {message}"
    report = Report(reference(pod), FAILED_CREATION, message, COMPONENT, WARNING)
    return Plan((*before, report), trouble=message)


def explain_refusal(pod: Pod, create: Create, message: str) -> Report:
    """The event that tells a pod's owner why one of its claims could not be made."""
    entry = create.tree["metadata"]["annotations"][POD_CLAIM_ANNOTATION]
    text = f"PodResourceClaim {entry}: create ResourceClaim : {message}"
    return Report(reference(pod), FAILED_CREATION, text, COMPONENT, WARNING)


def base_name(pod: str, entry: str) -> str:
    """What a generated name starts with; long names are cut in proportion so that both remain visible."""
    base = f"{pod}-{entry}-"
    if len(base) <= _LONGEST_BASE:
        return base
    cut = pod[: len(pod) * _LONGEST_BASE // len(base)]
    return f"{cut}-{entry[: len(entry) * _LONGEST_BASE // len(base)]}"


def _generate(pod: Pod, entry: PodResourceClaim, template: Template) -> Create:
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": pod.metadata.name,
        "uid": pod.metadata.uid,
        "controller": True,
    }
    metadata: dict[str, Any] = {
        "generateName": base_name(pod.metadata.name, entry.name),
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
    return Create(RESOURCE_CLAIMS, tree, namespace=pod.metadata.namespace)


def _record(pod: Pod, names: Mapping[str, str | None]) -> Patch:
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
    return Patch(
        PODS,
        pod.metadata.name,
        tree,
        namespace=pod.metadata.namespace,
        subresource="status",
        type="apply",
        manager=FIELD_MANAGER,
    )


def _reserve(pod: Pod, claims: Mapping[str, ResourceClaim]) -> Plan:
    """A pod that has its node but not its claims: whoever placed it did not reserve them."""
    if not pod.spec.node_name:
        return NOTHING  # the scheduler reserves
    actions: list[Action] = []
    for entry in pod.spec.resource_claims:
        named = claim_of(pod, entry)
        claim = claims.get(named.name) if named.name is not None else None
        if claim is None:
            return Plan(tuple(actions))
        if named.generated and not is_made_for(claim, pod):
            return Plan(tuple(actions), trouble=f"claim {claim.metadata.name} was not made for this pod")
        if claim.status.allocation is not None and not is_reserved_for(claim, pod):
            actions.append(_reserve_one(pod, claim))
    return Plan(tuple(actions))


def _reserve_one(pod: Pod, claim: ResourceClaim) -> Patch:
    consumers = [codec.to_tree(consumer) for consumer in claim.status.reserved_for]
    consumers.append({"resource": "pods", "name": pod.metadata.name, "uid": pod.metadata.uid})
    return Patch(
        RESOURCE_CLAIMS,
        claim.metadata.name,
        {
            "metadata": {"resourceVersion": claim.metadata.resource_version},
            "status": {"reservedFor": consumers},
        },
        namespace=claim.metadata.namespace,
        subresource="status",
    )
