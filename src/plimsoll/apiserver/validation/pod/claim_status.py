"""Validation of claims in pod statuses (docs/spec/api.md, "Pod"; docs/spec/accounting.md, "Changes in 1.37").

Covers `resourceClaimStatuses`, `extendedResourceClaimStatus` and the charges of claims in their three wire
forms; the rest of the status is in `status.py`.

- DIFF: the 1.37 and draft forms and the accounting policies are validated; Kubernetes 1.36 has none
  of these fields (test_newer_form_of_charges, test_draft_form_of_charges,
  test_accounting_policies_of_charges).
- DIFF: a pod uses only one form (test_charges_use_one_form).
"""

from __future__ import annotations

from collections.abc import Container as Holder

from plimsoll.api.core import (
    Container,
    ExtendedResourceClaimStatus,
    ExtendedResourceRequest,
    NativeResourceClaimStatus,
    NodeAllocatableClaimStatus,
    Pod,
)
from plimsoll.api.quantity import Quantity
from plimsoll.apiserver.validation.field_errors import (
    FieldErrors,
    FieldPath,
    duplicate,
    forbidden,
    invalid,
    required,
    validate_unique,
)
from plimsoll.apiserver.validation.name_formats import validate_label, validate_subdomain
from plimsoll.apiserver.validation.node_allocatable import (
    validate_newer_resource_name,
    validate_not_negative,
    validate_policy,
    validate_resource_name,
)
from plimsoll.apiserver.validation.pod.claims import collect_claim_names

_STATUS = FieldPath("status")


def validate_pod_status(pod: Pod) -> FieldErrors:
    """Validate the DRA parts of a pod's status."""
    yield from _validate_claim_statuses(pod, _STATUS.child("resourceClaimStatuses"))
    status = pod.status.extended_resource_claim_status
    if status is not None:
        yield from _validate_extended(status, pod, _STATUS.child("extendedResourceClaimStatus"))
    yield from _validate_charges(pod)


def _validate_claim_statuses(pod: Pod, path: FieldPath) -> FieldErrors:
    names = frozenset(claim.name for claim in pod.spec.resource_claims)
    seen: set[str] = set()
    for index, status in enumerate(pod.status.resource_claim_statuses):
        at = path.index(index)
        if status.name not in names:
            yield invalid(at.child("name"), status.name, "must be the name of one of spec.resourceClaims")
        if status.name in seen:
            yield duplicate(at.child("name"), status.name)
        seen.add(status.name)
        if status.resource_claim_name is not None:
            yield from validate_subdomain(status.resource_claim_name, at.child("resourceClaimName"))


# -- extended resources


def _validate_extended(status: ExtendedResourceClaimStatus, pod: Pod, path: FieldPath) -> FieldErrors:
    # If a name is used twice, the regular container takes precedence.
    containers = {c.name: c for c in (*pod.spec.init_containers, *pod.spec.containers)}
    mappings = path.child("requestMappings")
    if not status.request_mappings:
        yield required(mappings, "must have at least one mapping")
    seen: set[tuple[str, str, str]] = set()
    for index, mapping in enumerate(status.request_mappings):
        at = mappings.index(index)
        yield from _validate_mapping(mapping, containers.get(mapping.container_name), at)
        # The path has no index, as in Kubernetes 1.36.
        yield from validate_label(mapping.request_name, path.child("requestName"))
        key = (mapping.container_name, mapping.resource_name, mapping.request_name)
        if key in seen:
            for name, value in zip(("containerName", "resourceName", "requestName"), key, strict=True):
                yield duplicate(at.child(name), value)
        seen.add(key)
    if status.resource_claim_name:
        yield from validate_subdomain(status.resource_claim_name, path.child("resourceClaimName"))
    else:
        yield required(path.child("resourceClaimName"), "must be the name of the claim")


def _validate_mapping(
    mapping: ExtendedResourceRequest, container: Container | None, path: FieldPath
) -> FieldErrors:
    if container is None:
        detail = "must be the name of a container or init container"
        yield invalid(path.child("containerName"), mapping.container_name, detail)
    elif mapping.resource_name not in container.resources.requests:
        detail = "must be a resource the container requests"
        yield invalid(path.child("resourceName"), mapping.resource_name, detail)


# -- charges


def _validate_charges(pod: Pod) -> FieldErrors:
    """Validate the charges of claims to the pod."""
    entries, native = (
        pod.status.node_allocatable_resource_claim_statuses,
        pod.status.native_resource_claim_status,
    )
    claims = collect_claim_names(pod)
    path, native_path = (
        _STATUS.child("nodeAllocatableResourceClaimStatuses"),
        _STATUS.child("nativeResourceClaimStatus"),
    )
    newer: set[str] = set()
    for index, entry in enumerate(entries):
        at = path.index(index)
        yield from _validate_claim_name(entry.resource_claim_name, claims, at.child("resourceClaimName"))
        if entry.mapping or entry.overhead:
            if entry.resource_claim_name in newer:
                yield duplicate(at.child("resourceClaimName"), entry.resource_claim_name)
            newer.add(entry.resource_claim_name)
            yield from _validate_newer_entry(entry, at)
        else:
            yield from _validate_entry(entry, at)
    if entries and native:
        detail = "must not be given along with nodeAllocatableResourceClaimStatuses"
        yield invalid(native_path, None, detail)
    seen: set[str] = set()
    for index, item in enumerate(native):
        at = native_path.index(index)
        yield from _validate_claim_name(item.claim_info.name, claims, at.child("claimInfo", "name"))
        if item.claim_info.name in seen:
            yield duplicate(at.child("claimInfo", "name"), item.claim_info.name)
        seen.add(item.claim_info.name)
        yield from _validate_native(item, at)


def _validate_claim_name(name: str, claims: Holder[str], path: FieldPath) -> FieldErrors:
    if not name:
        yield required(path, "must be the name of a ResourceClaim of the pod")
    if name not in claims:
        detail = "must be a ResourceClaim in spec.resourceClaims or status.resourceClaimStatuses"
        yield invalid(path, name, detail)


def _validate_entry(entry: NodeAllocatableClaimStatus, path: FieldPath) -> FieldErrors:
    """Validate an entry of the 1.36 form: quantities by resource.

    DIFF: `containers` may be empty and is a set, as in KEP-5517
    (test_containers_of_a_charge_are_optional_and_unique); upstream 1.36 requires at least one name.
    """
    yield from validate_unique(entry.containers, path.child("containers"))
    at = path.child("resources")
    if not entry.resources:
        yield required(at, "must have at least one resource")
    for name, amount in entry.resources.items():
        yield from validate_resource_name(name, at.key(name))
        yield from validate_not_negative(amount, at.key(name))
    for name, policy in entry.accounting_policies.items():
        where = path.child("accountingPolicies").key(name)
        yield from _validate_known(name, entry.resources, where)
        yield from validate_policy(policy, where)
    for name, amount in entry.drawn.items():
        where = path.child("drawn").key(name)
        yield from _validate_known(name, entry.resources, where)
        yield from validate_not_negative(amount, where)


def _validate_known(name: str, resources: Holder[str], path: FieldPath) -> FieldErrors:
    if name not in resources:
        yield invalid(path, name, "must be one of the entry's resources")


def _validate_newer_entry(entry: NodeAllocatableClaimStatus, path: FieldPath) -> FieldErrors:
    """Validate an entry of the 1.37 form: `mapping` and `overhead`; claims that no container uses are
    charged too.
    """
    for name, given in (
        ("resources", entry.resources),
        ("accountingPolicies", entry.accounting_policies),
        ("drawn", entry.drawn),
    ):
        if given:
            yield forbidden(path.child(name), "must not be given along with mapping or overhead")
    yield from validate_unique(entry.containers, path.child("containers"))
    at = path.child("mapping")
    for index, item in enumerate(entry.mapping):
        where = at.index(index)
        yield from validate_newer_resource_name(item.name, where.child("name"))
        yield from _validate_amount(item.quantity, where.child("quantity"))
        yield from validate_not_negative(item.drawn, where.child("drawn"))
        yield from validate_policy(item.accounting_policy, where.child("accountingPolicy"))
    yield from validate_unique([item.name for item in entry.mapping], at, "name")
    at = path.child("overhead")
    for index, cost in enumerate(entry.overhead):
        where = at.index(index)
        yield from validate_newer_resource_name(cost.name, where.child("name"))
        if cost.per_pod is None and cost.per_container is None:
            yield required(where, "must have perPod or perContainer")
        yield from validate_not_negative(cost.per_pod, where.child("perPod"))
        yield from validate_not_negative(cost.per_container, where.child("perContainer"))
    yield from validate_unique([cost.name for cost in entry.overhead], at, "name")


def _validate_native(item: NativeResourceClaimStatus, path: FieldPath) -> FieldErrors:
    """Validate an entry of the draft form."""
    yield from validate_unique(item.containers, path.child("containers"))
    at = path.child("resources")
    if not item.resources:
        yield required(at, "must have at least one resource")
    for index, resource in enumerate(item.resources):
        where = at.index(index)
        yield from validate_resource_name(resource.resource_name, where.child("resourceName"))
        yield from _validate_amount(resource.quantity, where.child("quantity"))
        yield from validate_not_negative(resource.drawn, where.child("drawn"))
        yield from validate_policy(resource.accounting_policy, where.child("accountingPolicy"))
    yield from validate_unique([resource.resource_name for resource in item.resources], at, "resourceName")


def _validate_amount(amount: Quantity | None, path: FieldPath) -> FieldErrors:
    if amount is None:
        yield required(path, "must be the amount")
    yield from validate_not_negative(amount, path)
