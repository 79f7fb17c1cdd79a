"""Validation of object metadata (docs/spec/api.md, end of "ResourceClaim, template, class").

Covers `metadata` of every kind on create and update, and the metadata in a claim template. Some kinds run
both sets of checks on an update, so that one error can be reported twice, as upstream does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from plimsoll.api.codec import split_api_version
from plimsoll.api.meta import OwnerReference
from plimsoll.api.names import byte_length, dns_subdomain
from plimsoll.apiserver.registry.metadata_view import FullObjectMeta, ManagedFieldsEntry
from plimsoll.apiserver.validation.field_errors import (
    FieldError,
    FieldErrors,
    FieldPath,
    forbidden,
    internal,
    invalid,
    required,
    too_long,
)
from plimsoll.apiserver.validation.name_formats import (
    Format,
    path_segment,
    validate_format,
    validate_label,
    validate_label_key,
    validate_label_value,
)
from plimsoll.apiserver.validation.object_trees import Tree

ANNOTATIONS_MAX = 256 * 1024
MANAGER_MAX = 128
SUBRESOURCE_MAX = 256

_PATH = FieldPath("metadata")
STANDARD_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")
IMMUTABLE = "field is immutable"  # clients match this text


def check_name(name: str) -> list[FieldError]:
    """Check what every name must satisfy whatever its kind: it is a path segment."""
    path = _PATH.child("name")
    if not name:
        return [required(path, "name or generateName is required")]
    return [invalid(path, name, detail) for detail in path_segment(name)]


def validate_metadata(
    meta: FullObjectMeta,
    *,
    namespaced: bool,
    generated_name_is_final: bool = False,
    names: Format = dns_subdomain,
    free_finalizers: bool = False,
) -> FieldErrors:
    """Validate the metadata of a new object, after name generation.

    `generated_name_is_final` is for kinds that validate only the generated name, `names` is the name format
    of the kind, and `free_finalizers` permits unqualified finalizer names.
    """
    if meta.generate_name and generated_name_is_final:
        if not meta.name:
            yield internal(_PATH.child("name"), "no name was generated from generateName")
    elif meta.generate_name:
        yield from validate_format(mask_trailing_dash(meta.generate_name), _PATH.child("generateName"), names)
    if not meta.name:
        yield required(_PATH.child("name"), "name or generateName is required")
    else:
        yield from validate_format(meta.name, _PATH.child("name"), names)
    yield from _validate_namespace(meta.namespace, namespaced)
    if meta.generation < 0:
        yield invalid(_PATH.child("generation"), meta.generation, "must not be negative")
    yield from _validate_common(meta)
    yield from _validate_finalizers(meta.finalizers)
    if not free_finalizers:
        yield from _validate_finalizer_owners(meta.finalizers)


def validate_metadata_update(
    meta: FullObjectMeta, old: FullObjectMeta, *, free_finalizers: bool = False
) -> FieldErrors:
    """Validate the changes of an update to metadata."""
    if old.deletion_timestamp is not None and not set(meta.finalizers) <= set(old.finalizers):
        yield forbidden(
            _PATH.child("finalizers"), "no finalizer can be added while the object is being deleted"
        )
    if not meta.resource_version:
        yield invalid(_PATH.child("resourceVersion"), "", "must be specified for an update")
    if meta.generation < old.generation:
        yield invalid(_PATH.child("generation"), meta.generation, "must not get smaller")
    for field, now, before in (
        ("name", meta.name, old.name),
        ("namespace", meta.namespace, old.namespace),
        ("uid", meta.uid, old.uid),
        ("creationTimestamp", meta.creation_timestamp, old.creation_timestamp),
        ("deletionTimestamp", meta.deletion_timestamp, old.deletion_timestamp),
        ("deletionGracePeriodSeconds", meta.deletion_grace_period_seconds, old.deletion_grace_period_seconds),
    ):
        if now != before:
            yield invalid(_PATH.child(field), now, IMMUTABLE)
    yield from _validate_common(meta)
    if not free_finalizers:
        yield from _validate_finalizer_owners(meta.finalizers)


def reset_for_status(meta: Tree, old: Tree) -> None:
    """Reset the metadata that a status write must not change; both are trees, `meta` is modified."""
    for name in (
        "annotations",
        "deletionTimestamp",
        "finalizers",
        "generation",
        "labels",
        "ownerReferences",
        "selfLink",
    ):
        meta.pop(name, None)
        if name in old:
            meta[name] = old[name]


def validate_template_metadata(meta: Tree, path: FieldPath) -> FieldErrors:
    """Validate the metadata that a template passes on to its claims: only labels and annotations.

    Takes the tree, because an empty list counts as set here.
    """
    yield from validate_annotations(meta.get("annotations", {}), path.child("annotations"))
    yield from validate_labels(meta.get("labels", {}), path.child("labels"))
    for name, shown in _NOT_IN_TEMPLATES:
        value = meta.get(name)
        if value or isinstance(value, list) or (value is not None and name == "deletionGracePeriodSeconds"):
            yield forbidden(path.child(shown), "cannot be set in a template; only labels and annotations can")


#: Field name, and its name in messages, which differs for `uid`.
_NOT_IN_TEMPLATES = tuple(
    (name, "uID" if name == "uid" else name)
    for name in (
        "name",
        "generateName",
        "namespace",
        "selfLink",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "ownerReferences",
        "finalizers",
        "managedFields",
    )
)


# -- individual fields


def validate_labels(labels: Mapping[str, str], path: FieldPath) -> FieldErrors:
    for key, value in labels.items():
        yield from validate_label_key(key, path)
        yield from validate_label_value(value, path)


def validate_annotations(annotations: Mapping[str, str], path: FieldPath) -> FieldErrors:
    size = 0
    for key, value in annotations.items():
        size += byte_length(key) + byte_length(value)
        yield from validate_label_key(key.lower(), path)
    if size > ANNOTATIONS_MAX:
        yield too_long(path, ANNOTATIONS_MAX)


def _validate_namespace(namespace: str, namespaced: bool) -> FieldErrors:
    path = _PATH.child("namespace")
    if not namespaced:
        if namespace:
            yield forbidden(path, "must not be set for cluster-scoped objects")
    elif not namespace:
        yield required(path, "must be the namespace of the object")
    else:
        yield from validate_label(namespace, path)


def _validate_common(meta: FullObjectMeta) -> FieldErrors:
    if meta.labels:
        yield from validate_labels(meta.labels, _PATH.child("labels"))
    if meta.annotations:
        yield from validate_annotations(meta.annotations, _PATH.child("annotations"))
    if meta.owner_references:
        yield from _validate_owners(meta.owner_references)
    for index, entry in enumerate(meta.managed_fields):
        if not is_usual(entry):
            yield from validate_managed_fields(entry, _PATH.child("managedFields").index(index))


def _validate_owners(owners: Sequence[OwnerReference]) -> FieldErrors:
    """Validate owner references; their field paths have no index."""
    path = _PATH.child("ownerReferences")
    controllers = 0
    for owner in dict.fromkeys(owners):  # as upstream, which removes duplicates
        version = owner.api_version
        if not version or version.count("/") > 1:
            yield invalid(path.child("apiVersion"), version, "must be a version, or group/version")
        elif not split_api_version(version)[1]:
            yield invalid(path.child("apiVersion"), version, "must have a version")
        for name, value in (("kind", owner.kind), ("name", owner.name), ("uid", owner.uid)):
            if not value:
                yield invalid(path.child(name), value, "must not be empty")
        if (version, owner.kind) == ("v1", "Event"):
            yield invalid(path, owner.name, "an Event cannot own anything")
        controllers += bool(owner.controller)
        if owner.controller and controllers > 1:
            yield invalid(path, owner.name, "only one owner can be the controller")


def _validate_finalizers(finalizers: Sequence[str]) -> FieldErrors:
    path = _PATH.child("finalizers")
    for finalizer in finalizers:
        yield from validate_label_key(finalizer, path)
    if {"orphan", "foregroundDeletion"} <= set(finalizers):
        yield invalid(path, None, "orphan and foregroundDeletion exclude each other")


def _validate_finalizer_owners(finalizers: Sequence[str]) -> FieldErrors:
    for index, finalizer in enumerate(finalizers):
        if "/" not in finalizer and finalizer not in STANDARD_FINALIZERS:
            detail = f"must be domain/name, or one of {', '.join(STANDARD_FINALIZERS)}"
            yield invalid(_PATH.child("finalizers").index(index), finalizer, detail)


def is_usual(entry: ManagedFieldsEntry) -> bool:
    """Report whether an entry is trivially valid, as almost all entries are."""
    return (
        entry.operation in ("Apply", "Update")
        and entry.fields_type in ("", "FieldsV1")
        and entry.manager.isascii()
        and len(entry.manager) <= MANAGER_MAX
        and entry.manager.isprintable()
        and len(entry.subresource) * 4 <= SUBRESOURCE_MAX
    )


def validate_managed_fields(entry: ManagedFieldsEntry, path: FieldPath) -> FieldErrors:
    if entry.operation not in ("Apply", "Update"):
        yield invalid(path.child("operation"), entry.operation, "must be Apply or Update")
    if entry.fields_type not in ("", "FieldsV1"):
        yield invalid(path.child("fieldsType"), entry.fields_type, "must be FieldsV1")
    if byte_length(entry.manager) > MANAGER_MAX:
        yield too_long(path.child("manager"), MANAGER_MAX)
    for letter in entry.manager[: 8 * MANAGER_MAX]:  # bounds the work for a hostile name
        if not letter.isprintable():
            yield invalid(path.child("manager"), entry.manager, "must have printable characters only")
    if byte_length(entry.subresource) > SUBRESOURCE_MAX:
        yield too_long(path.child("subresource"), SUBRESOURCE_MAX)


def mask_trailing_dash(prefix: str) -> str:
    """Replace a trailing dash of a name prefix, because generated characters follow it."""
    return f"{prefix[:-2]}a" if len(prefix) > 1 and prefix.endswith("-") else prefix
