"""Validation of downward API references: pod fields and container resources."""

from __future__ import annotations

from collections.abc import Collection

from plimsoll.api.containers import ObjectFieldSelector, ResourceFieldSelector
from plimsoll.api.names import label_key
from plimsoll.apiserver.validation.field_errors import (
    FieldErrors,
    FieldPath,
    invalid,
    not_supported,
    required,
)
from plimsoll.apiserver.validation.name_formats import validate_format

_FIELDS = frozenset(
    (
        "metadata.annotations",
        "metadata.labels",
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "status.hostIP",
        "status.hostIPs",
        "status.phase",
        "status.podIP",
        "status.podIPs",
    )
)
_RESOURCES = tuple(
    f"{side}.{name}" for side in ("limits", "requests") for name in ("cpu", "ephemeral-storage", "memory")
)
_HUGE_PAGES = ("requests.hugepages-", "limits.hugepages-")
_UNITS = frozenset(
    ("1", *(f"1{unit}" for unit in "kMGTPE"), *(f"1{unit}i" for unit in "KMGTPE")),
)
_CPU_UNITS = frozenset(("1", "1m"))


def validate_object_field(
    reference: ObjectFieldSelector, allowed: Collection[str], path: FieldPath
) -> FieldErrors:
    """Validate a reference to a pod field; `allowed` are the fields permitted without a subscript."""
    if not reference.api_version:
        yield required(path.child("apiVersion"))
        return
    if not reference.field_path:
        yield required(path.child("fieldPath"))
        return
    field, subscript = _split(reference.field_path)
    at = path.child("fieldPath")
    if reference.api_version != "v1":
        detail = f"error converting fieldPath: unsupported pod version: {reference.api_version}"
        yield invalid(at, reference.field_path, detail)
    elif subscript is not None:
        if field == "metadata.annotations":
            yield from validate_format(subscript.lower(), path, label_key)
        elif field == "metadata.labels":
            yield from validate_format(subscript, path, label_key)
        else:
            detail = "error converting fieldPath: field label does not support subscript"
            yield invalid(at, reference.field_path, detail)
    elif field == "spec.host":  # the legacy name of spec.nodeName, which takes precedence
        yield not_supported(at, field, allowed)
    elif field not in _FIELDS:
        yield invalid(at, field, "error converting fieldPath: field label not supported")
    elif field not in allowed:
        yield not_supported(at, field, allowed)


def _split(field: str) -> tuple[str, str | None]:
    """Split a subscript: `metadata.labels['x']` -> (`metadata.labels`, `x`)."""
    if field.endswith("']"):
        name, opening, subscript = field[:-2].partition("['")
        if name and opening:
            return name, subscript
    return field, None


def validate_resource_field(
    reference: ResourceFieldSelector, path: FieldPath, *, of_volume: bool
) -> FieldErrors:
    """Validate a reference to a request or limit; in a volume it must name the container."""
    if of_volume and not reference.container_name:
        yield required(path.child("containerName"))
    elif not reference.resource:
        yield required(path.child("resource"))
    elif reference.resource not in _RESOURCES and not reference.resource.startswith(_HUGE_PAGES):
        yield not_supported(path.child("resource"), reference.resource, _RESOURCES)
    yield from _validate_divisor(reference, path.child("divisor"))


def _validate_divisor(reference: ResourceFieldSelector, path: FieldPath) -> FieldErrors:
    name, divisor = reference.resource, reference.divisor
    if divisor is None or divisor.is_zero():
        return
    units = _CPU_UNITS if name.endswith(".cpu") else _UNITS
    if (name in _RESOURCES or name.startswith(_HUGE_PAGES)) and str(divisor) not in units:
        yield invalid(path, name, f"only divisor's values {', '.join(sorted(units))} are supported")
