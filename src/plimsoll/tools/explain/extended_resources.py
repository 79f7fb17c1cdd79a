"""Extended resources of a pod that devices serve, in explanations."""

from __future__ import annotations

from plimsoll.api.core import Pod
from plimsoll.api.pod_claims import resolve_claim_names


def name_request(pod: Pod, claim: str, request: str) -> str:
    """Return the name of a request; in the claim for extended resources, with what it serves.

    `claim` is the name of the claim, or its full name.
    """
    status = pod.status.extended_resource_claim_status
    if status is None or claim.rpartition("/")[2] != status.resource_claim_name:
        return request
    uses = [mapping for mapping in status.request_mappings if mapping.request_name == request]
    if not uses:
        return request
    containers = ", ".join(dict.fromkeys(mapping.container_name for mapping in uses))
    return f"{request} ({uses[0].resource_name} of {containers})"


def serving_claim(pod: Pod, resource: str) -> str:
    """Return the name of the claim whose devices serve an extended resource of a pod, or ""."""
    status = pod.status.extended_resource_claim_status
    mappings = status.request_mappings if status is not None else ()
    if all(mapping.resource_name != resource for mapping in mappings):
        return ""
    return resolve_claim_names(pod).get("", "")
