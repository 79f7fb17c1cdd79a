"""Comparison of two states of an object as field sets.

A field is *changed* if it was added or has another value, *removed* if it is gone. Maps and keyed lists are
compared entry by entry; scalars and atomic lists and maps as single values.

Two cases are special. An object that upstream always serializes (`spec`, or the `resources` of a container)
counts as present, so that adding a field inside does not add the object itself. And list items with the same
key count as one item that is compared as a unit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from plimsoll.apiserver.patch.field_set import LEAF, SELF, FieldSet
from plimsoll.apiserver.patch.json_patch import equal
from plimsoll.apiserver.patch.path_elements import item_element
from plimsoll.apiserver.patch.schema_queries import ABSENT, UNKNOWN, child, merge_form, schema_members
from plimsoll.apiserver.registry.schema_types import SchemaType


class FieldChanges(NamedTuple):
    """The fields that were added or changed, and those that were removed."""

    changed: FieldSet
    removed: FieldSet


class _Mode(NamedTuple):
    """Position of the comparison (root or below) and the meaning of null."""

    root: bool
    nulls: bool


#: Set below an element, or None.
_Below = FieldSet | None
_SAME: tuple[_Below, _Below] = (None, None)


def compare(
    old: dict[str, Any], new: dict[str, Any], schema: SchemaType | None, *, nulls: bool = False
) -> FieldChanges:
    """Compare two states of an object of one type.

    With `nulls`, null is a value in the new state, as in server-side apply; otherwise a null field equals an
    absent one.
    """
    if schema is None:
        changed, removed = _compare_free(old, new)
    else:
        changed, removed = _compare_maps(old, new, schema, _Mode(True, nulls))
    return FieldChanges(changed or {}, removed or {})


_CONTAINERS = frozenset((dict, list))


def to_field_set(value: Any, schema: SchemaType | None) -> FieldSet:
    """Return every field of a value, including the value itself."""
    how = merge_form(schema)
    if how == "atomic":
        return LEAF
    if how == "list":
        assert schema is not None
        if not isinstance(value, list) or not value:
            return LEAF
        below: FieldSet = {SELF: LEAF}
        for element, items in _by_element(value, schema).items():
            below[element] = to_field_set(items[0], schema.item) if len(items) == 1 else LEAF
        return below
    if not isinstance(value, dict) or not value:
        return LEAF
    below = {SELF: LEAF}
    for name, inner in value.items():
        below["f:" + name] = (
            to_field_set(inner, child(schema, name)) if inner.__class__ in _CONTAINERS else LEAF
        )
    return below


def _compare(old: Any, new: Any, schema: SchemaType | None, mode: _Mode) -> tuple[_Below, _Below]:
    """Compare two values that are both present."""
    how = merge_form(schema)
    if how == "free":
        return _compare_free(old, new)
    if how == "atomic":
        return (LEAF, None) if old != new else _SAME
    assert schema is not None
    if how == "map":
        return _compare_maps(old, new, schema, mode)
    return _compare_lists(old, new, schema, mode)


def _compare_maps(old: Any, new: Any, schema: SchemaType, mode: _Mode) -> tuple[_Below, _Below]:
    # True equals 1 here, but a field of a known type never changes from one to the other.
    if old == new:
        return _SAME
    before = old if isinstance(old, dict) else {}
    after = new if isinstance(new, dict) else {}
    if not before and not after:
        return LEAF, None
    known = schema_members(schema) if schema.kind == "object" else None
    inner, below = schema.item, _Mode(False, mode.nulls) if mode.root else mode
    changed: FieldSet = {}
    removed: FieldSet = {}
    for name in after.keys() | before.keys() if before else after:  # all are new when an object is created
        earlier, value = before.get(name, ABSENT), after.get(name, ABSENT)
        if known is not None:
            member = known.get(name, UNKNOWN)
            inner = member.type
            if earlier is ABSENT:
                if value is None and not mode.nulls:
                    continue
                earlier = member.at_root if mode.root else member.inside
            elif value is ABSENT:
                if earlier is None and not mode.nulls:
                    continue
                value = member.at_root if mode.root else member.inside
        if earlier is ABSENT:
            changed["f:" + name] = to_field_set(value, inner) if value.__class__ in _CONTAINERS else LEAF
        elif value is ABSENT:
            removed["f:" + name] = to_field_set(earlier, inner) if earlier.__class__ in _CONTAINERS else LEAF
        elif earlier is not value and (inner is None or earlier != value):
            more, less = _compare(earlier, value, inner, below)
            if more is not None:
                changed["f:" + name] = more
            if less is not None:
                removed["f:" + name] = less
    return changed or None, removed or None


def _compare_lists(old: Any, new: Any, schema: SchemaType, mode: _Mode) -> tuple[_Below, _Below]:
    if old == new:
        return _SAME
    before = _by_element(old, schema) if isinstance(old, list) else {}
    after = _by_element(new, schema) if isinstance(new, list) else {}
    if not before and not after:
        return LEAF, None
    changed: FieldSet = {}
    removed: FieldSet = {}
    for element, items in after.items():
        earlier = before.get(element)
        if earlier is None:
            changed[element] = to_field_set(items[0], schema.item) if len(items) == 1 else LEAF
        elif len(items) == 1 and len(earlier) == 1:
            more, less = _compare(earlier[0], items[0], schema.item, mode)
            if more is not None:
                changed[element] = more
            if less is not None:
                removed[element] = less
        elif len(items) == 1:  # duplicates were reduced to one item: it is new, the duplicates are removed
            changed[element] = to_field_set(items[0], schema.item)
            removed[element] = LEAF
        elif len(earlier) == 1:  # one item became duplicates
            changed[element] = LEAF
            removed[element] = to_field_set(earlier[0], schema.item)
        elif items != earlier:
            changed[element] = LEAF
    for element, earlier in before.items():
        if element not in after:
            removed[element] = to_field_set(earlier[0], schema.item) if len(earlier) == 1 else LEAF
    return changed or None, removed or None


def _compare_free(old: Any, new: Any) -> tuple[_Below, _Below]:
    """Compare values of unknown type: maps by entries, everything else as single values."""
    if isinstance(old, dict) and isinstance(new, dict):
        return _compare_free_maps(old, new)
    if isinstance(old, dict) and old:
        gone = _entries(old)
        return (None, gone) if new is None else (LEAF, gone)
    if isinstance(new, dict) and new:
        come = _entries(new)
        return (come, None) if old is None else ({SELF: LEAF, **come}, None)
    return _SAME if equal(old, new) else (LEAF, None)


def _compare_free_maps(old: dict[str, Any], new: dict[str, Any]) -> tuple[_Below, _Below]:
    changed: FieldSet = {}
    removed: FieldSet = {}
    for name, value in new.items():
        if name not in old:
            changed["f:" + name] = to_field_set(value, None)
            continue
        more, less = _compare_free(old[name], value)
        if more is not None:
            changed["f:" + name] = more
        if less is not None:
            removed["f:" + name] = less
    for name, value in old.items():
        if name not in new:
            removed["f:" + name] = to_field_set(value, None)
    return changed or None, removed or None


def _entries(value: dict[str, Any]) -> FieldSet:
    return {"f:" + name: to_field_set(inner, None) for name, inner in value.items()}


def _by_element(items: list[Any], schema: SchemaType) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for item in items:
        found.setdefault(item_element(item, schema), []).append(item)
    return found
