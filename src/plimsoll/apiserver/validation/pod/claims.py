"""Validation of claims in pod specs (docs/spec/api.md, "Pod").

Covers the DRA parts of a pod's spec, and the related rules for mirror pods and ephemeral containers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from plimsoll.api.core import ContainerClaim, Pod, PodResourceClaim
from plimsoll.apiserver.validation.field_errors import (
    OBJECT_ROOT,
    FieldErrors,
    FieldPath,
    duplicate,
    forbidden,
    invalid,
    join_names,
    not_found,
    required,
)
from plimsoll.apiserver.validation.name_formats import validate_label, validate_subdomain
from plimsoll.apiserver.validation.object_trees import Tree, subtree

MIRROR_ANNOTATION = "kubernetes.io/config.mirror"

_SPEC = FieldPath("spec")
_ANNOTATIONS = FieldPath("metadata").child("annotations")


def validate_pod_create(pod: Pod, tree: Tree) -> FieldErrors:
    yield from validate_pod_spec(pod, tree)
    if pod.spec.ephemeral_containers:
        yield forbidden(_SPEC.child("ephemeralContainers"), "cannot be given on create, only added later")


def validate_pod_spec(pod: Pod, tree: Tree) -> FieldErrors:
    """Validate the claims of a pod and the references to them; `tree` is the canonical tree of the pod."""
    mirror = is_mirror(pod)
    yield from _validate_mirror_node(pod)
    spec = pod.spec
    if mirror:
        for _ in spec.resource_claims:
            yield forbidden(OBJECT_ROOT, "a static pod cannot have resource claims")
    else:
        yield from _validate_pod_claims(spec.resource_claims)
    names = frozenset(claim.name for claim in spec.resource_claims if claim.name)
    known = join_names(names) or "there are none"
    for group, containers in (
        ("containers", spec.containers),
        ("initContainers", spec.init_containers),
        ("ephemeralContainers", spec.ephemeral_containers),
    ):
        for index, container in enumerate(containers):
            path = _SPEC.child(group).index(index).child("resources")
            claims = container.resources.claims
            yield from _validate_container_claims(claims, names, known, path.child("claims"))
    yield from _validate_ephemeral(subtree(tree, "spec"))
    if spec.resources is not None and spec.resources.claims:
        path = _SPEC.child("resources", "claims")
        yield forbidden(path, "claims belong to containers, not to the resources of the pod")
        yield from _validate_container_claims(spec.resources.claims, names, known, path)


def is_mirror(pod: Pod) -> bool:
    """Report whether the pod is a mirror pod of a static pod."""
    return MIRROR_ANNOTATION in pod.metadata.annotations


def _validate_mirror_node(pod: Pod) -> FieldErrors:
    if is_mirror(pod) and not pod.spec.node_name:
        value = pod.metadata.annotations[MIRROR_ANNOTATION]
        yield invalid(_ANNOTATIONS.key(MIRROR_ANNOTATION), value, "needs spec.nodeName")


def validate_mirror_update(pod: Pod, old: Pod) -> FieldErrors:
    """Validate that the mirror pod annotation does not change."""
    path = _ANNOTATIONS.key(MIRROR_ANNOTATION)
    now, before = pod.metadata.annotations, old.metadata.annotations
    if MIRROR_ANNOTATION in before and now.get(MIRROR_ANNOTATION) != before[MIRROR_ANNOTATION]:
        yield forbidden(path, "cannot be removed or changed")
    elif MIRROR_ANNOTATION in now and MIRROR_ANNOTATION not in before:
        yield forbidden(path, "cannot be added")
    yield from _validate_mirror_node(pod)


def _validate_pod_claims(claims: Sequence[PodResourceClaim]) -> FieldErrors:
    seen: set[str] = set()
    for index, claim in enumerate(claims):
        path = _SPEC.child("resourceClaims").index(index)
        if not claim.name:
            yield required(path.child("name"), "must be a name for the claim inside the pod")
        elif claim.name in seen:
            yield duplicate(path.child("name"), claim.name)
        else:
            yield from validate_label(claim.name, path.child("name"))
            seen.add(claim.name)
        named, templated = claim.resource_claim_name, claim.resource_claim_template_name
        if (named is None) == (templated is None):
            detail = "must have exactly one of resourceClaimName and resourceClaimTemplateName"
            yield invalid(path, claim.name, detail)
        if named is not None:
            yield from validate_subdomain(named, path.child("resourceClaimName"))
        if templated is not None:
            yield from validate_subdomain(templated, path.child("resourceClaimTemplateName"))


def _validate_container_claims(
    claims: Sequence[ContainerClaim], names: frozenset[str], known: str, path: FieldPath
) -> FieldErrors:
    """Validate the references of one container: all of a claim or some of its requests, without
    duplicates.
    """
    seen: set[str] = set()  # `claim` and `claim/request`
    requests: Counter[str] = Counter()  # number of the latter by claim
    for index, claim in enumerate(claims):
        at = path.index(index)
        if not claim.name:
            yield required(at, "must name one of spec.resourceClaims")
            continue
        if claim.name in seen:
            yield duplicate(at, claim.name)
        else:
            key = f"{claim.name}/{claim.request}" if claim.request else claim.name
            if claim.request:
                yield from validate_label(claim.request, at.child("request"))
                if key in seen:
                    yield duplicate(at, key)
            else:
                for _ in range(requests[claim.name]):
                    yield duplicate(at, claim.name)
            if key not in seen and "/" in key:
                requests[key.partition("/")[0]] += 1
            seen.add(key)
        if claim.name not in names:
            yield not_found(at, claim.name, f"must be one of spec.resourceClaims: {known}")


def _validate_ephemeral(spec: Tree) -> FieldErrors:
    """Reject claims of ephemeral containers; takes the tree because an empty list or map counts as set."""
    for index, container in enumerate(spec.get("ephemeralContainers", ())):
        if subtree(container, "resources").keys() & {"claims", "requests", "limits"}:
            path = _SPEC.child("ephemeralContainers").index(index).child("resources")
            yield forbidden(path, "an ephemeral container cannot have resources")


def collect_claim_names(pod: Pod) -> Mapping[str, str]:
    """Map the ResourceClaim names of a pod to the names of its pod claims.

    Claims referenced by name are in the spec, claims created from templates in the status.
    """
    found: dict[str, str] = {}
    for status in pod.status.resource_claim_statuses:
        if status.resource_claim_name is not None:
            found[status.resource_claim_name] = status.name
    for claim in pod.spec.resource_claims:
        if claim.resource_claim_name is not None:
            found[claim.resource_claim_name] = claim.name
    return found
