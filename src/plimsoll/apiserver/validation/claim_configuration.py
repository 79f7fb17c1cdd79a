"""Validation of opaque driver configuration and of references to requests (docs/spec/api.md,
"ResourceClaim, template, class").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from plimsoll.api import codec
from plimsoll.api.resource import DeviceClaim, OpaqueDeviceConfiguration
from plimsoll.apiserver.validation.field_errors import (
    FieldErrors,
    FieldPath,
    invalid,
    required,
    too_long,
    validate_set,
)
from plimsoll.apiserver.validation.name_formats import validate_driver, validate_label

REQUESTS_MAX = 32
CONFIGURATIONS_MAX = 32
RAW_MAX = 10 * 1024

#: Names of requests, each with the names of its subrequests.
RequestNames: TypeAlias = Mapping[str, frozenset[str]]


def collect_request_names(claim: DeviceClaim) -> RequestNames:
    return {
        request.name: frozenset(alternative.name for alternative in request.first_available)
        for request in claim.requests
    }


def validate_request_references(
    references: Sequence[str], names: RequestNames, path: FieldPath
) -> FieldErrors:
    """Validate the list of requests that a constraint or configuration applies to."""

    def validate_one(reference: str, at: FieldPath) -> FieldErrors:
        return validate_request_reference(reference, names, at)

    return validate_set(references, REQUESTS_MAX, validate_one, lambda reference: reference, path)


def validate_request_reference(reference: str, names: RequestNames, path: FieldPath) -> FieldErrors:
    """Validate a reference of the form `request` or `request/subrequest`."""
    detail = "must be the name of a request of the claim, or request/alternative"
    parts = reference.split("/", 2)
    if len(parts) > 2:
        yield invalid(path, reference, detail)
        return
    for part in parts:
        yield from validate_label(part, path)
    request, alternative = parts[0], parts[1:]
    if request not in names or (alternative and alternative[0] not in names[request]):
        yield invalid(path, reference, detail)


def validate_configuration(
    opaque: OpaqueDeviceConfiguration | None, path: FieldPath, *, stored: bool = False
) -> FieldErrors:
    """Validate the configuration for one driver; a `stored` one may exceed the current size limit."""
    if opaque is None:
        yield required(path.child("opaque"), "must be the configuration for a driver")
        return
    at = path.child("opaque")
    yield from validate_driver(opaque.driver, at.child("driver"))
    if opaque.parameters is None:
        yield required(at.child("parameters"), "must be a JSON object for the driver")
    else:
        yield from validate_raw_object(opaque.parameters, at.child("parameters"), limited=not stored)


def validate_raw_object(value: Any, path: FieldPath, *, limited: bool = True) -> FieldErrors:
    """Validate free-form JSON, which must be an object of limited size."""
    if limited and raw_size(value) > RAW_MAX:
        yield too_long(path, RAW_MAX)
    elif not isinstance(value, dict):
        yield invalid(path, type(value).__name__, "must be a JSON object")


def raw_size(value: Any) -> int:
    """Return the size of free-form JSON in bytes, encoded without whitespace."""
    return len(codec.encode(value))
