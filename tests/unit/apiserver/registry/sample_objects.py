"""Hypothesis strategies for objects of a schema."""

from __future__ import annotations

import base64
import copy
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from plimsoll.apiserver.registry.schema import SchemaField, SchemaType

_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=6)
_INT32 = st.integers(-(2**31), 2**31 - 1)
_JSON = st.recursive(
    st.booleans() | st.integers(-(2**60), 2**60) | _TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_TEXT, inner, max_size=2),
    max_leaves=4,
)


def _timestamps(micro: bool) -> st.SearchStrategy[str]:
    tail = st.integers(0, 999999).map(lambda n: f".{n:06}Z") if micro else st.just("Z")
    parts = st.tuples(st.integers(2, 9999), st.integers(1, 12), st.integers(1, 28), st.integers(0, 59), tail)
    return parts.map(lambda p: f"{p[0]:04}-{p[1]:02}-{p[2]:02}T12:00:{p[3]:02}{p[4]}")


_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "string": _TEXT,
    "bool": st.booleans(),
    "int32": _INT32,
    "int64": st.integers(-(2**63), 2**63 - 1),
    "double": st.integers(-(2**50), 2**50),
    "bytes": st.binary(min_size=1, max_size=5).map(lambda data: base64.b64encode(data).decode()),
    "quantity": st.sampled_from(["0", "1", "500m", "2Gi", "1.5", "1e3", "-3", "100n"]),
    "int-or-string": _INT32 | _TEXT,
    "time": _timestamps(False),
    "micro-time": _timestamps(True),
    "raw": _JSON,
    "fields": st.dictionaries(_TEXT, _JSON, max_size=2),
    "any": _JSON,
}


def trees_of(type: SchemaType, depth: int = 5, *, protobuf_only: bool = False) -> st.SearchStrategy[Any]:
    """Generate trees that match a type; with `protobuf_only` only fields that survive that encoding."""
    if type.kind == "object":
        return st.deferred(lambda: _objects(type, depth, protobuf_only))
    if type.item is not None:
        inner = trees_of(type.item, depth, protobuf_only=protobuf_only)
        if type.kind == "list":
            return st.lists(inner, min_size=1, max_size=2)
        return st.dictionaries(_TEXT, inner, min_size=1, max_size=2)
    return _VALUES[type.format]


def _objects(type: SchemaType, depth: int, protobuf_only: bool) -> st.SearchStrategy[Any]:
    fields = [field for field in type.fields.values() if _usable(field, depth, protobuf_only)]
    if not fields:
        return st.just({})
    # A few fields at a time: all fields of a pod would take too long.
    chosen = st.lists(st.sampled_from(fields), max_size=4, unique_by=lambda field: field.name)
    return chosen.flatmap(
        lambda few: st.fixed_dictionaries(
            {field.name: _value_of(field, depth, protobuf_only) for field in few}
        )
    )


def _usable(field: SchemaField, depth: int, protobuf_only: bool) -> bool:
    if protobuf_only and (not field.number or field.type.format == "any"):
        return False
    return depth > 0 or (field.type.kind not in ("object", "list", "map"))


def _value_of(field: SchemaField, depth: int, protobuf_only: bool) -> st.SearchStrategy[Any]:
    values = trees_of(field.type, depth - 1, protobuf_only=protobuf_only)
    return values.filter(bool) if protobuf_only and not field.emits_zero else values


def paths_in(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Return the path of every value in a tree, including the root."""
    yield path
    entries = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in entries:
        yield from paths_in(value, (*path, key))


def put(tree: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Return the tree with another value at a path."""
    if not path:
        return value
    changed = copy.deepcopy(tree)
    place = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return changed
