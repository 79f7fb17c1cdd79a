"""Conversion between the storage version of a kind and its served versions.

Versions of the same shape differ in `apiVersion` alone; events of the two groups differ in field names too.
"""

from __future__ import annotations

from typing import Any

from plimsoll.api import codec
from plimsoll.apiserver.registry.resource import Resource
from plimsoll.apiserver.validation.event_conversion import event_to_core, event_to_events


def is_storage_version(resource: Resource, version: str) -> bool:
    return version == resource.versions[0] and not resource.stored_as


def convert_raw(raw: bytes, resource: Resource, version: str) -> bytes:
    """Convert stored bytes to a served version."""
    if is_storage_version(resource, version):
        return raw
    if resource.stored_as:
        return codec.encode(convert_tree(codec.decode_tree(raw), resource, version))
    prefix = f'{{"apiVersion":"{resource.api_version()}",'.encode()
    if raw.startswith(prefix):  # as `convert_to_storage` writes objects
        return f'{{"apiVersion":"{resource.api_version(version)}",'.encode() + raw[len(prefix) :]
    return codec.encode(convert_tree(codec.decode_tree(raw), resource, version))


def convert_tree(tree: dict[str, Any], resource: Resource, version: str) -> dict[str, Any]:
    if is_storage_version(resource, version):
        return tree
    if resource.stored_as:
        tree = event_to_events(tree)
    return {**tree, "apiVersion": resource.api_version(version), "kind": resource.kind}


def convert_to_storage(tree: dict[str, Any], resource: Resource) -> dict[str, Any]:
    """Convert an object of a served version to the storage version, with apiVersion and kind first."""
    if resource.stored_as:
        tree = event_to_core({**tree, "apiVersion": resource.api_version()})
        return {**_LEADING_FIELDS, **tree, "apiVersion": "v1", "kind": resource.kind}
    return {**_LEADING_FIELDS, **tree, "apiVersion": resource.api_version(), "kind": resource.kind}


#: These fields come first, so that `convert_raw` can replace the version without decoding.
_LEADING_FIELDS: dict[str, Any] = {"apiVersion": "", "kind": "", "metadata": {}}
