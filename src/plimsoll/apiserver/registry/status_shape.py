"""Shape of `status`: the fields that an object of a kind always has.

Follows from the Go types in the schema. A status that is a struct is present in every object, empty or with
the zero values of fields that are never omitted; a status that is a pointer is absent until it is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeAlias

from plimsoll.apiserver.registry.resources import RESOURCES
from plimsoll.apiserver.registry.schema import schema_for
from plimsoll.apiserver.registry.schema_types import SchemaType

Tree: TypeAlias = dict[str, Any]

_ZERO_VALUES: Mapping[str, Any] = {"string": "", "integer": 0, "number": 0, "boolean": False}


def complete_status(kind: str, tree: Tree) -> None:
    """Add to an object what its status always has; kinds whose status is a pointer stay unchanged."""
    shape = _status_shape(kind)
    if shape is not None:
        _complete(tree, "status", shape)


@cache
def _status_shape(kind: str) -> Tree | None:
    """Return the status of a new object; None if it has none. Kinds with a status have different names."""
    for resource in RESOURCES:
        schema = schema_for(resource.group, resource.versions[0], kind) if resource.kind == kind else None
        field = schema.fields.get("status") if schema is not None else None
        if field is not None and not field.pointer:
            return _zero_value(field.type)
    return None


def _zero_value(schema: SchemaType) -> Tree:
    """Return the fields of a zero struct that appear in JSON."""
    shape: Tree = {}
    for field in schema.fields.values():
        if field.pointer or not field.emits_zero:
            continue
        if field.type.kind == "object":
            shape[field.name] = _zero_value(field.type)
        elif field.type.kind in _ZERO_VALUES:
            shape[field.name] = _ZERO_VALUES[field.type.kind]
    return shape


def _complete(tree: Tree, name: str, shape: Tree) -> None:
    value = tree.get(name)
    if value is None:
        tree[name] = value = {}
    if shape and isinstance(value, dict):
        for field, zero in shape.items():
            if isinstance(zero, dict):
                _complete(value, field, zero)
            else:
                value.setdefault(field, zero)
