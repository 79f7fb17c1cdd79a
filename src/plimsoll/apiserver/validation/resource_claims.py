"""Validation of the spec of claims and claim templates (docs/spec/api.md, "ResourceClaim, template,
class").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from plimsoll.api.gates import Gates
from plimsoll.api.resource import (
    ALL,
    EXACT_COUNT,
    DeviceClaim,
    DeviceClaimConfiguration,
    DeviceConstraint,
    DeviceRequest,
    DeviceSubRequest,
    ExactDeviceRequest,
)
from plimsoll.apiserver.validation.claim_configuration import (
    CONFIGURATIONS_MAX,
    REQUESTS_MAX,
    RequestNames,
    collect_request_names,
    validate_configuration,
    validate_request_references,
)
from plimsoll.apiserver.validation.derived_attributes import (
    ComparedAttributes,
    collect_compared_attributes,
    validate_derived_attributes,
    validate_derived_cost,
)
from plimsoll.apiserver.validation.device_selectors import validate_selectors
from plimsoll.apiserver.validation.device_taints import validate_toleration
from plimsoll.apiserver.validation.field_errors import (
    FieldError,
    FieldErrors,
    FieldPath,
    forbidden,
    internal,
    invalid,
    not_supported,
    required,
    validate_list,
    validate_set,
)
from plimsoll.apiserver.validation.name_formats import (
    validate_fully_qualified_name,
    validate_label,
    validate_subdomain,
)
from plimsoll.apiserver.validation.node_allocatable import validate_not_negative

ALTERNATIVES_MAX = 8
CONSTRAINTS_MAX = 32
ADMIN_LABEL = "resource.kubernetes.io/admin-access"

_ALLOCATION_MODES = (ALL, EXACT_COUNT)


def validate_device_claim(claim: DeviceClaim, path: FieldPath, gates: Gates) -> FieldErrors:
    """Validate the device requests of a claim; a claim without requests is valid."""
    names = collect_request_names(claim)

    compared = collect_compared_attributes(claim)

    def validate_request(request: DeviceRequest, at: FieldPath) -> FieldErrors:
        return _validate_request(request, at, gates, compared)

    def validate_constraint(constraint: DeviceConstraint, at: FieldPath) -> FieldErrors:
        return _validate_constraint(constraint, names, at, gates)

    def validate_config(config: DeviceClaimConfiguration, at: FieldPath) -> FieldErrors:
        yield from validate_request_references(config.requests, names, at.child("requests"))
        yield from validate_configuration(config.opaque, at)

    yield from validate_set(
        claim.requests, REQUESTS_MAX, validate_request, lambda request: request.name, path.child("requests")
    )
    yield from validate_list(
        claim.constraints, CONSTRAINTS_MAX, validate_constraint, path.child("constraints")
    )
    yield from validate_list(claim.config, CONFIGURATIONS_MAX, validate_config, path.child("config"))
    yield from validate_derived_cost(claim, path, gates)


def _validate_request(
    request: DeviceRequest, path: FieldPath, gates: Gates, compared: ComparedAttributes
) -> FieldErrors:
    yield from validate_label(request.name, path.child("name"))
    detail = "must have exactly one of exactly and firstAvailable"
    if request.exactly is not None and request.first_available:
        yield invalid(path, "both", detail)
    elif request.exactly is not None:
        yield from _validate_devices(request.exactly, path.child("exactly"), gates)
        names = compared.of(request.name)
        yield from validate_derived_attributes(request.exactly, names, path.child("exactly"), gates)
    elif request.first_available:

        def validate_alternative(alternative: DeviceSubRequest, at: FieldPath) -> FieldErrors:
            yield from validate_label(alternative.name, at.child("name"))
            yield from _validate_devices(alternative, at, gates)
            names = compared.of(request.name, alternative.name)
            yield from validate_derived_attributes(alternative, names, at, gates)

        yield from validate_set(
            request.first_available,
            ALTERNATIVES_MAX,
            validate_alternative,
            lambda alternative: alternative.name,
            path.child("firstAvailable"),
        )
    else:
        yield required(path, detail)


def _validate_devices(
    request: ExactDeviceRequest | DeviceSubRequest, path: FieldPath, gates: Gates
) -> FieldErrors:
    """Validate the devices of a request or subrequest.

    DIFF: negative capacity requests are rejected; Kubernetes 1.36 accepts them
    (test_capacity_requests_must_not_be_negative).
    """
    if request.device_class_name:
        yield from validate_subdomain(request.device_class_name, path.child("deviceClassName"))
    else:
        yield required(path.child("deviceClassName"), "must be the name of a DeviceClass")
    yield from validate_selectors(request.selectors, path.child("selectors"), gates)
    if request.allocation_mode == ALL:
        if request.count != 0:
            yield invalid(path.child("count"), request.count, "must be left out with allocationMode All")
    elif request.allocation_mode == EXACT_COUNT:
        if request.count <= 0:
            yield invalid(path.child("count"), request.count, "must be larger than zero")
    else:
        yield not_supported(path.child("allocationMode"), request.allocation_mode, _ALLOCATION_MODES)
    yield from validate_list(request.tolerations, None, validate_toleration, path.child("tolerations"))
    if request.capacity is not None:
        at = path.child("capacity", "requests")
        for name, amount in request.capacity.requests.items():
            yield from validate_not_negative(amount, at.key(name))


def _validate_constraint(
    constraint: DeviceConstraint, names: RequestNames, path: FieldPath, gates: Gates
) -> FieldErrors:
    """Validate a constraint.

    DIFF: a constraint with both attributes is rejected, as in KEP-5075; Kubernetes 1.36 ignores
    distinctAttribute then (test_a_constraint_has_one_attribute).
    """
    yield from validate_request_references(constraint.requests, names, path.child("requests"))
    if constraint.match_attribute is not None and constraint.distinct_attribute is not None:
        yield invalid(path, "both", "must have exactly one of matchAttribute and distinctAttribute")
    if constraint.match_attribute is not None:
        yield from validate_fully_qualified_name(constraint.match_attribute, path.child("matchAttribute"))
    elif constraint.distinct_attribute is not None:
        yield from validate_fully_qualified_name(
            constraint.distinct_attribute, path.child("distinctAttribute")
        )
    elif gates.enabled("DRAConsumableCapacity"):
        yield required(path, "must have exactly one of matchAttribute and distinctAttribute")
    else:
        yield required(path.child("matchAttribute"), "must be the attribute that has to be equal")


# -- admin access


def validate_admin_requests(
    requests: Sequence[DeviceRequest], namespace: str, labels: Mapping[str, str] | None
) -> FieldErrors:
    """Validate that the namespace permits admin access; only the first such request is reported.

    The field path omits `exactly`, and the outer `spec` of a template.
    """
    for index, request in enumerate(requests):
        if request.exactly is not None and request.exactly.admin_access:
            path = FieldPath("spec").child("devices", "requests").index(index).child("adminAccess")
            yield from validate_admin_access(path, namespace, labels)
            return


def validate_admin_access(
    path: FieldPath, namespace: str, labels: Mapping[str, str] | None
) -> list[FieldError]:
    """Return the error if this namespace does not permit admin access; `labels` is None if it is unknown."""
    if labels is None or not namespace:
        return [internal(path, "the namespace could not be read, so admin access could not be checked")]
    if labels.get(ADMIN_LABEL) != "true":
        needed = f"the `{ADMIN_LABEL}: true` label on the containing namespace"
        return [forbidden(path, f"admin access to devices requires {needed}")]  # clients match this text
    return []
