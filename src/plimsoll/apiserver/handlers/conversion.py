"""Conversion between the storage version of a kind and its served versions.

Versions of the same shape differ in `apiVersion` alone. Events of the two groups differ in field names too.
Versions with a shape of their own are in `version_shapes.py`.
"""

from __future__ import annotations

from typing import Any

from plimsoll.api import codec
from plimsoll.apiserver.handlers.version_shapes import find_shape
from plimsoll.apiserver.registry.resource import Resource
from plimsoll.apiserver.validation.event_conversion import event_to_core, event_to_events


def is_storage_version(resource: Resource, version: str) -> bool:
    return version == resource.versions[0] and not resource.stored_as


def has_own_shape(resource: Resource, version: str) -> bool:
    """Return whether objects of a served version differ from stored ones in more than apiVersion."""
    return bool(resource.stored_as) or find_shape(resource.group, version, resource.kind) is not None


def tracked_version(resource: Resource, version: str) -> str:
    """Return the version in which ownership of fields is recorded: the request's, or the storage version if
    paths of fields differ between the two.
    """
    has_shape = find_shape(resource.group, version, resource.kind) is not None
    return resource.versions[0] if has_shape else version


def convert_raw(raw: bytes, resource: Resource, version: str) -> bytes:
    """Convert stored bytes to a served version."""
    if is_storage_version(resource, version):
        return raw
    if has_own_shape(resource, version):
        return codec.encode(convert_tree(codec.decode_tree(raw), resource, version))
    prefix = f'{{"apiVersion":"{resource.api_version()}",'.encode()
    if raw.startswith(prefix):  # as `convert_to_storage` writes objects
        return f'{{"apiVersion":"{resource.api_version(version)}",'.encode() + raw[len(prefix) :]
    return codec.encode(convert_tree(codec.decode_tree(raw), resource, version))


def convert_tree(tree: dict[str, Any], resource: Resource, version: str) -> dict[str, Any]:
    if is_storage_version(resource, version):
        return tree
    shape = find_shape(resource.group, version, resource.kind)
    if resource.stored_as:
        tree = event_to_events(tree)
    elif shape is not None:
        tree = shape.from_storage(tree)
    return {**tree, "apiVersion": resource.api_version(version), "kind": resource.kind}


def convert_to_storage(tree: dict[str, Any], resource: Resource, version: str) -> dict[str, Any]:
    """Convert an object of a served version to the storage version, with apiVersion and kind first."""
    shape = find_shape(resource.group, version, resource.kind)
    if shape is not None:
        tree = shape.to_storage(tree)
    if resource.stored_as:
        tree = event_to_core({**tree, "apiVersion": resource.api_version()})
        return {**_LEADING_FIELDS, **tree, "apiVersion": "v1", "kind": resource.kind}
    return {**_LEADING_FIELDS, **tree, "apiVersion": resource.api_version(), "kind": resource.kind}


#: These fields come first, so that `convert_raw` can replace the version without decoding.
_LEADING_FIELDS: dict[str, Any] = {"apiVersion": "", "kind": "", "metadata": {}}
