"""The spec of claims and claim templates (section 6 of the API semantics)."""

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
    check_configuration,
    check_request_references,
    gather_request_names,
)
from plimsoll.apiserver.validation.device_selectors import check_selectors
from plimsoll.apiserver.validation.device_taints import check_toleration
from plimsoll.apiserver.validation.field_errors import (
    Path,
    Problem,
    Problems,
    check_list,
    check_set,
    forbidden,
    internal,
    invalid,
    not_supported,
    required,
)
from plimsoll.apiserver.validation.name_formats import (
    check_fully_qualified_name,
    check_label,
    check_subdomain,
)

ALTERNATIVES_MAX = 8
CONSTRAINTS_MAX = 32
ADMIN_LABEL = "resource.kubernetes.io/admin-access"

_ALLOCATION_MODES = (ALL, EXACT_COUNT)


def check_device_claim(claim: DeviceClaim, path: Path, gates: Gates) -> Problems:
    """What a claim asks for; a claim without requests is legal."""
    names = gather_request_names(claim)

    def check_request(request: DeviceRequest, at: Path) -> Problems:
        return _check_request(request, at, gates)

    def check_constraint(constraint: DeviceConstraint, at: Path) -> Problems:
        return _check_constraint(constraint, names, at, gates)

    def check_config(config: DeviceClaimConfiguration, at: Path) -> Problems:
        yield from check_request_references(config.requests, names, at.child("requests"))
        yield from check_configuration(config.opaque, at)

    yield from check_set(
        claim.requests, REQUESTS_MAX, check_request, lambda request: request.name, path.child("requests")
    )
    yield from check_list(claim.constraints, CONSTRAINTS_MAX, check_constraint, path.child("constraints"))
    yield from check_list(claim.config, CONFIGURATIONS_MAX, check_config, path.child("config"))


def _check_request(request: DeviceRequest, path: Path, gates: Gates) -> Problems:
    yield from check_label(request.name, path.child("name"))
    detail = "must have exactly one of exactly and firstAvailable"
    if request.exactly is not None and request.first_available:
        yield invalid(path, "both", detail)
    elif request.exactly is not None:
        yield from _check_devices(request.exactly, path.child("exactly"), gates)
    elif request.first_available:

        def check_alternative(alternative: DeviceSubRequest, at: Path) -> Problems:
            yield from check_label(alternative.name, at.child("name"))
            yield from _check_devices(alternative, at, gates)

        yield from check_set(
            request.first_available,
            ALTERNATIVES_MAX,
            check_alternative,
            lambda alternative: alternative.name,
            path.child("firstAvailable"),
        )
    else:
        yield required(path, detail)


def _check_devices(request: ExactDeviceRequest | DeviceSubRequest, path: Path, gates: Gates) -> Problems:
    """Which devices a request or an alternative asks for; its capacity requests are not looked at."""
    if request.device_class_name:
        yield from check_subdomain(request.device_class_name, path.child("deviceClassName"))
    else:
        yield required(path.child("deviceClassName"), "must be the name of a DeviceClass")
    yield from check_selectors(request.selectors, path.child("selectors"), gates)
    if request.allocation_mode == ALL:
        if request.count != 0:
            yield invalid(path.child("count"), request.count, "must be left out with allocationMode All")
    elif request.allocation_mode == EXACT_COUNT:
        if request.count <= 0:
            yield invalid(path.child("count"), request.count, "must be larger than zero")
    else:
        yield not_supported(path.child("allocationMode"), request.allocation_mode, _ALLOCATION_MODES)
    yield from check_list(request.tolerations, None, check_toleration, path.child("tolerations"))


def _check_constraint(
    constraint: DeviceConstraint, names: RequestNames, path: Path, gates: Gates
) -> Problems:
    """Where matchAttribute is given distinctAttribute is not looked at, as in Kubernetes 1.36."""
    yield from check_request_references(constraint.requests, names, path.child("requests"))
    if constraint.match_attribute is not None:
        yield from check_fully_qualified_name(constraint.match_attribute, path.child("matchAttribute"))
    elif constraint.distinct_attribute is not None:
        yield from check_fully_qualified_name(constraint.distinct_attribute, path.child("distinctAttribute"))
    elif gates.enabled("DRAConsumableCapacity"):
        yield required(path, "must have exactly one of matchAttribute and distinctAttribute")
    else:
        yield required(path.child("matchAttribute"), "must be the attribute that has to be equal")


# -- admin access


def check_admin_requests(
    requests: Sequence[DeviceRequest], namespace: str, labels: Mapping[str, str] | None
) -> Problems:
    """Admin access needs a namespace that allows it; only the first request that asks is reported.

    The path leaves out `exactly`, and the outer `spec` of a template.
    """
    for place, request in enumerate(requests):
        if request.exactly is not None and request.exactly.admin_access:
            path = Path("spec").child("devices", "requests").index(place).child("adminAccess")
            yield from refuse_admin(path, namespace, labels)
            return


def refuse_admin(path: Path, namespace: str, labels: Mapping[str, str] | None) -> list[Problem]:
    """Why admin access is not given in this namespace; `labels` is None where the namespace is unknown."""
    if labels is None or not namespace:
        return [internal(path, "the namespace could not be read, so admin access could not be checked")]
    if labels.get(ADMIN_LABEL) != "true":
        return [forbidden(path, f"admin access needs the label {ADMIN_LABEL}: true on the namespace")]
    return []
