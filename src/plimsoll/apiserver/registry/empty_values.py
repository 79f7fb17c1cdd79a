"""Removal of empty lists and maps that Go's encoder omits, so that objects are stored as by kube-apiserver.

`resources: {limits: {}}` is stored as `resources: {}`: the field is `omitempty` in Go, and neither protobuf
nor JSON keeps the difference. Empty objects (`emptyDir: {}`), required fields and free-form JSON stay as they
are.
"""

from __future__ import annotations

from typing import Any

from plimsoll.api import codec
from plimsoll.apiserver.registry.schema import schema_for
from plimsoll.apiserver.registry.schema_types import SchemaType

Tree = dict[str, Any]

_EMPTY = (b":{}", b":[]")
#: Objects that are often empty; without other empty fields, a tree is not searched.
_OFTEN_EMPTY = tuple(
    b'"' + name + b'"' + empty
    for name in (b"emptyDir", b"resources", b"securityContext", b"status")
    for empty in _EMPTY
)


def drop_empty_values(tree: Tree, kind: str, old: Tree | None = None) -> None:
    """Remove empty lists and maps from an object, except from its metadata, in place; fields that it shares
    with the stored object are not touched.
    """
    known = old or {}
    content = {
        name: value
        for name, value in tree.items()
        if name != "metadata" and (value is None or value is not known.get(name))
    }
    names = list(content)
    raw = codec.encode(content)
    if sum(map(raw.count, _EMPTY)) == sum(map(raw.count, _OFTEN_EMPTY)):
        return
    group, _, version = str(tree.get("apiVersion", "")).rpartition("/")
    schema = schema_for(group, version, kind)
    if schema is not None:
        _drop_in(content, schema)
        for name in names:
            if name not in content:
                del tree[name]


def _drop_in(value: Any, schema: SchemaType) -> None:
    if schema.kind == "object" and isinstance(value, dict):
        fields = schema.fields
        for name, inner in list(value.items()):
            field = fields.get(name)
            if field is None or not isinstance(inner, (dict, list)):
                continue
            if inner:
                _drop_in(inner, field.type)
            elif field.type.kind in ("list", "map") and not field.required:
                del value[name]
    elif schema.kind == "list" and isinstance(value, list) and schema.item is not None:
        for inner in value:
            _drop_in(inner, schema.item)
    elif schema.kind == "map" and isinstance(value, dict) and schema.item is not None:
        for inner in value.values():
            _drop_in(inner, schema.item)
