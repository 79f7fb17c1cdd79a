"""Claims generated from templates, for a pod or for a PodGroup."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from plimsoll.api.meta import ObjectMeta
from plimsoll.api.resource import ResourceClaim
from plimsoll.client.endpoints import RESOURCE_CLAIMS, Endpoint
from plimsoll.controllers.actions import CreateAction, PatchAction
from plimsoll.controllers.object_views import ClaimTemplateView
from plimsoll.controllers.pod_utils import POD_CLAIM_ANNOTATION

#: Field manager of `status.resourceClaimStatuses`.
FIELD_MANAGER = "ResourceClaimController"
FAILED_CREATION = "FailedResourceClaimCreation"
_TEMPLATE = "resourceclaimtemplate.resource.k8s.io"
#: The server appends five characters; with a hyphen, names are limited to 63.
_LONGEST_BASE = 57


def by_entry(owned: Iterable[ResourceClaim]) -> dict[str | None, ResourceClaim]:
    """Return generated claims by the entry that they were generated for; of several the first."""
    return {claim.metadata.annotations.get(POD_CLAIM_ANNOTATION): claim for claim in reversed(list(owned))}


def missing_template(name: str) -> str:
    return f'resource claim template "{name}": {_TEMPLATE} "{name}" not found'


def generate_name_prefix(owner: str, entry: str) -> str:
    """Return the generateName prefix; long names are truncated in proportion so that both remain visible."""
    base = f"{owner}-{entry}-"
    if len(base) <= _LONGEST_BASE:
        return base
    cut = owner[: len(owner) * _LONGEST_BASE // len(base)]
    return f"{cut}-{entry[: len(entry) * _LONGEST_BASE // len(base)]}"


def create_from_template(
    endpoint: Endpoint, owner: ObjectMeta, entry: str, template: ClaimTemplateView
) -> CreateAction:
    """Build a claim for an entry of a pod or PodGroup, which owns it."""
    reference = {
        "apiVersion": endpoint.api_version,
        "kind": endpoint.kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
    }
    metadata: dict[str, Any] = {
        "generateName": generate_name_prefix(owner.name, entry),
        "namespace": owner.namespace,
        "annotations": {**template.spec.metadata.annotations, POD_CLAIM_ANNOTATION: entry},
        "ownerReferences": [reference],
    }
    if template.spec.metadata.labels:
        metadata["labels"] = dict(template.spec.metadata.labels)
    tree = {
        "apiVersion": RESOURCE_CLAIMS.api_version,
        "kind": RESOURCE_CLAIMS.kind,
        "metadata": metadata,
        "spec": template.spec.spec or {},
    }
    return CreateAction(RESOURCE_CLAIMS, tree, namespace=owner.namespace)


def record_names(
    endpoint: Endpoint, owner: ObjectMeta, names: Mapping[str, str | None], *, is_unsure: bool = False
) -> PatchAction:
    """Build the write of `status.resourceClaimStatuses`.

    If it `is_unsure` which of several claims is to be recorded, because requests without a response created
    more than one, it applies only to this version of the owner.

    DIFF: upstream replaces a recorded name when its cache of pods does not have it yet
    (test_of_several_claims_the_recorded_one_stays).
    """
    statuses = [
        {"name": entry} if name is None else {"name": entry, "resourceClaimName": name}
        for entry, name in names.items()
    ]
    metadata = {"name": owner.name, "namespace": owner.namespace, "uid": owner.uid}
    if is_unsure:
        metadata["resourceVersion"] = owner.resource_version
    tree = {
        "apiVersion": endpoint.api_version,
        "kind": endpoint.kind,
        "metadata": metadata,
        "status": {"resourceClaimStatuses": statuses},
    }
    return PatchAction(
        endpoint,
        owner.name,
        tree,
        namespace=owner.namespace,
        subresource="status",
        type="apply",
        field_manager=FIELD_MANAGER,
    )
