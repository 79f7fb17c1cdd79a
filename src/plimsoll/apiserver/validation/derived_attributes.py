"""Validation of derived attributes of requests (KEP-6080, gate DRADerivedAttributes)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from plimsoll.api.gates import Gates
from plimsoll.api.resource import DeviceClaim, DeviceDerivedAttribute, DeviceSubRequest, ExactDeviceRequest
from plimsoll.apiserver.validation.device_selectors import (
    COST_MAX,
    estimate_derived_cost,
    validate_derived_expression,
)
from plimsoll.apiserver.validation.field_errors import (
    FieldErrors,
    FieldPath,
    forbidden,
    invalid,
    required,
    validate_set,
)
from plimsoll.apiserver.validation.name_formats import validate_fully_qualified_name

ATTRIBUTES_MAX = 32


@dataclass(frozen=True, slots=True)
class ComparedAttributes:
    """Attributes that constraints compare, by the request or subrequest they name; "" means all requests."""

    by_request: Mapping[str, frozenset[str]]

    def of(self, request: str, subrequest: str = "") -> frozenset[str]:
        """Return the attributes that constraints compare for a request or subrequest."""
        names = ["", request, f"{request}/{subrequest}"] if subrequest else ["", request]
        return frozenset().union(*(self.by_request.get(name, frozenset()) for name in names))


def collect_compared_attributes(claim: DeviceClaim) -> ComparedAttributes:
    found: dict[str, set[str]] = {}
    for constraint in claim.constraints:
        attribute = constraint.match_attribute
        if attribute is None:
            attribute = constraint.distinct_attribute
        for name in constraint.requests or ("",):
            if attribute is not None:
                found.setdefault(name, set()).add(attribute)
    return ComparedAttributes({name: frozenset(attributes) for name, attributes in found.items()})


def validate_derived_attributes(
    request: ExactDeviceRequest | DeviceSubRequest, compared: frozenset[str], path: FieldPath, gates: Gates
) -> FieldErrors:
    """Validate the derived attributes of a request; `compared` are those that constraints use."""

    def validate_one(derived: DeviceDerivedAttribute, at: FieldPath) -> FieldErrors:
        if not derived.name:
            yield required(at.child("name"), "must be the name of the attribute")
        else:
            yield from validate_fully_qualified_name(derived.name, at.child("name"))
            if derived.name not in compared:
                detail = "must be the matchAttribute or distinctAttribute of a constraint on this request"
                yield invalid(at.child("name"), derived.name, detail)
        if not derived.expression:
            yield required(at.child("expression"), "must be a CEL expression about a device")
        else:
            yield from validate_derived_expression(derived.expression, at.child("expression"), gates)

    return validate_set(
        request.derived_attributes,
        ATTRIBUTES_MAX,
        validate_one,
        lambda derived: derived.name,
        path.child("derivedAttributes"),
    )


def validate_derived_cost(claim: DeviceClaim, path: FieldPath, gates: Gates) -> FieldErrors:
    """Validate that all derived attributes of a claim together stay within the cost limit."""
    bodies: list[ExactDeviceRequest | DeviceSubRequest] = []
    for request in claim.requests:
        bodies += request.first_available or ([request.exactly] if request.exactly is not None else [])
    sources = [derived.expression for body in bodies for derived in body.derived_attributes]
    cost = estimate_derived_cost(sources, gates) if sources else 0
    if cost > COST_MAX:
        detail = f"too complex: its derived attributes may cost {cost}, at most {COST_MAX} is allowed"
        yield forbidden(path, detail)
