"""Validation of PersistentVolumeClaim specs and templates."""

from __future__ import annotations

from plimsoll.api import codec
from plimsoll.api.names import dns_label, dns_subdomain
from plimsoll.apiserver.registry.schema_view import View
from plimsoll.apiserver.validation.field_errors import (
    FieldErrors,
    FieldPath,
    forbidden,
    invalid,
    not_supported,
    required,
)
from plimsoll.apiserver.validation.label_selectors import validate_selector
from plimsoll.apiserver.validation.metadata import validate_template_metadata
from plimsoll.apiserver.validation.name_formats import validate_format

_ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_VOLUME_MODES = ("Block", "Filesystem")


def validate_claim_template(template: View, path: FieldPath) -> FieldErrors:
    yield from validate_template_metadata(codec.to_tree(template.metadata), path.child("metadata"))
    yield from validate_claim_spec(template.spec, path.child("spec"))


def validate_claim_spec(spec: View, path: FieldPath) -> FieldErrors:
    yield from _validate_access_modes(spec, path.child("accessModes"))
    yield from validate_selector(spec.selector, path.child("selector"))
    storage, at = spec.resources.requests.get("storage"), path.child("resources").key("storage")
    if storage is None:
        yield required(at)
    elif storage.sign() <= 0:
        yield invalid(at, storage, "must be greater than zero")
    if spec.storage_class_name:
        yield from validate_format(spec.storage_class_name, path.child("storageClassName"), dns_subdomain)
    if spec.volume_mode is not None and spec.volume_mode not in _VOLUME_MODES:
        yield not_supported(path.child("volumeMode"), spec.volume_mode, _VOLUME_MODES)
    yield from _validate_sources(spec, path)
    name = spec.volume_attributes_class_name
    if name:
        yield from validate_format(name, path.child("volumeAttributesClassName"), dns_subdomain)


def _validate_access_modes(spec: View, path: FieldPath) -> FieldErrors:
    if not spec.access_modes:
        yield required(path, "at least 1 access mode is required")
    for mode in spec.access_modes:
        if mode not in _ACCESS_MODES:
            yield not_supported(path, mode, _ACCESS_MODES)
    known = {mode for mode in spec.access_modes if mode in _ACCESS_MODES}
    if "ReadWriteOncePod" in known and len(known) > 1:
        yield forbidden(path, "may not use ReadWriteOncePod with other access modes")


def _validate_sources(spec: View, path: FieldPath) -> FieldErrors:
    source, reference = spec.data_source, spec.data_source_ref
    if source is not None:
        yield from _validate_source(source, path.child("dataSource"))
    if reference is not None:
        at = path.child("dataSourceRef")
        yield from _validate_source(reference, at)
        if reference.namespace:
            yield from validate_format(reference.namespace, at.child("namespace"), dns_label)
    if source is None or reference is None:
        return
    if reference.namespace:
        detail = "may not be specified when dataSourceRef.namespace is specified"
        yield invalid(path, "dataSource", detail)
    elif _identity(source) != _identity(reference):
        yield invalid(path, "dataSource", "must match dataSourceRef")


def _identity(reference: View) -> tuple[str | None, str, str]:
    return reference.api_group, reference.kind, reference.name


def _validate_source(reference: View, path: FieldPath) -> FieldErrors:
    if not reference.name:
        yield required(path.child("name"))
    if not reference.kind:
        yield required(path.child("kind"))
    if not reference.api_group and reference.kind != "PersistentVolumeClaim":
        detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        yield invalid(path, reference.kind, detail)
    if reference.api_group:
        yield from validate_format(reference.api_group, path.child("apiGroup"), dns_subdomain)
