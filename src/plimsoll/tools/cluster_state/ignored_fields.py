"""Fields of device mappings that do not belong to their form, found while a ResourceSlice is read.

Typed objects do not have unknown fields, so they do not show that part of a mapping is ignored. The rule is
the one by which the API server warns about unknown fields, or rejects them under strict validation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any

import msgspec

from plimsoll.api import codec
from plimsoll.api.forms import MAPPING_FIELDS
from plimsoll.api.resource import ResourceSlice
from plimsoll.apiserver.registry.schema import find_strict_errors
from plimsoll.tools.cluster_state.kinds import StateKind
from plimsoll.tools.cluster_state.shared_parts import text_key

_NAMES = tuple(name.encode() for name in MAPPING_FIELDS)


def find_ignored_fields(kind: StateKind, tree: Mapping[str, Any]) -> tuple[str, ...]:
    """Return messages about ignored fields of the mappings of an object; only slices have mappings."""
    if kind.view is not ResourceSlice:
        return ()
    text = text_key(tree)
    if not any(name in text for name in _NAMES):
        return ()
    # What names and other texts of the metadata and the spec are does not matter. Devices are often equal,
    # and much longer than the rest: they are compared as they are first.
    spec = tree.get("spec")
    devices = spec.get("devices") if isinstance(spec, dict) else None
    rest = {**tree, "spec": {**spec, "devices": None}} if isinstance(spec, dict) else tree
    begin = f"{tree.get('apiVersion')}{_without_texts(rest)}".encode(errors="replace")
    return _remember(begin + text_key(devices), lambda: _find_by_shape(tree))


def _find_by_shape(tree: Mapping[str, Any]) -> tuple[str, ...]:
    def find() -> tuple[str, ...]:
        errors = find_strict_errors(tree)
        return tuple(text for text in errors if any(name in text for name in MAPPING_FIELDS))

    shape = f"{tree.get('apiVersion')}{_without_texts(tree)}".encode(errors="replace")
    return _remember(shape, find)


def _remember(text: bytes, find: Callable[[], tuple[str, ...]]) -> tuple[str, ...]:
    key = blake2b(text).digest()
    found = _known.get(key)
    if found is None:
        found = find()
        if len(_known) < _MOST:
            _known[key] = found
    return found


def _without_texts(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_texts(each) for name, each in value.items()}
    return None if isinstance(value, str) else value


#: Messages by a digest of the object without its texts (slices of machines of one type differ in these
#: only), and by one of the object without its texts, but with those of its devices.
_known: dict[bytes, tuple[str, ...]] = {}
_MOST = 4096


def find_ignored_fields_in_json(
    kind: StateKind, raw: bytes | msgspec.Raw, api_version: str
) -> tuple[str, ...]:
    """Return the same for an object as JSON; slices without mappings are not decoded."""
    if kind.view is not ResourceSlice or not any(name in bytes(raw) for name in _NAMES):
        return ()
    head = {"apiVersion": api_version, "kind": kind.endpoint.kind}
    return find_ignored_fields(kind, {**codec.decode_tree(raw), **head})
