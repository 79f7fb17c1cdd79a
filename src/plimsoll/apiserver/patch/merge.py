"""Operations of server-side apply on objects: the field set of a configuration, merging it, removing fields.

No function modifies its arguments.

Null is a value here: a configuration that sets null owns the field. `remove_items` leaves null where it
removed the last entry, which distinguishes "emptied" from "never set" in the comparison that follows; stored
objects have no such nulls (`drop_nulls`).
"""

from __future__ import annotations

from collections import deque
from typing import Any

from plimsoll.apiserver.patch.field_set import LEAF, SELF, FieldSet, has_member
from plimsoll.apiserver.patch.path_elements import item_element
from plimsoll.apiserver.patch.schema_queries import child, merge_form
from plimsoll.apiserver.registry.schema_types import SchemaType


def applied_fields(tree: dict[str, Any], schema: SchemaType | None) -> FieldSet:
    """Return the field set of a configuration."""
    return _applied(tree, schema) or {}


def _applied(value: Any, schema: SchemaType | None) -> FieldSet | None:
    """Return the field set below a value; LEAF if it is atomic, None if there is nothing to own."""
    how = merge_form(schema)
    if how == "atomic":
        return LEAF
    if how == "list":
        assert schema is not None
        if not isinstance(value, list):
            return None
        below: FieldSet = {}
        for item in value:
            element = item_element(item, schema)
            below[element] = LEAF if element in below else _itself(_applied(item, schema.item))
        return below or None
    if not isinstance(value, dict):
        return LEAF if how == "free" and value is not None else None
    known = schema.fields if schema is not None and schema.kind == "object" else {}
    below = {}
    for name, inner in value.items():
        node = _applied(inner, child(schema, name))
        if inner is None or inner == {} or name not in known:
            node = _itself(node)
        if node is not None:
            below["f:" + name] = node
    return below or None


def _itself(node: FieldSet | None) -> FieldSet:
    return {SELF: LEAF, **node} if node else LEAF


def merge(live: Any, applied: Any, schema: SchemaType | None) -> Any:
    """Merge the applied value into the live one: nothing is removed, the applied value takes precedence."""
    how = merge_form(schema)
    if how == "atomic":
        return applied
    if how == "list":
        assert schema is not None
        if not live or not applied or not isinstance(live, list) or not isinstance(applied, list):
            return live if live and isinstance(live, list) and not applied else applied
        return _merge_lists(live, applied, schema)
    if isinstance(live, dict) and live and (applied is None or applied == {}):
        return live
    if not isinstance(live, dict) or not live or not isinstance(applied, dict):
        return applied
    merged = dict(live)
    for name, value in applied.items():
        merged[name] = merge(live[name], value, child(schema, name)) if name in live else value
    return merged


def _merge_lists(live: list[Any], applied: list[Any], schema: SchemaType) -> list[Any]:
    """Merge lists by item: applied items in their order, the others between their neighbors."""
    lefts = [item_element(item, schema) for item in live]
    rights = [item_element(item, schema) for item in applied]
    old: dict[str, Any] = {}
    for element, item in zip(lefts, live, strict=True):
        old[element] = None if element in old else item  # items with duplicate keys are not merged
    new = dict(zip(rights, applied, strict=True))
    shared = deque(element for element in rights if element in old)
    done: set[str] = set()
    merged: list[Any] = []
    left = right = 0
    while left < len(lefts) or right < len(rights):
        if left < len(lefts):
            element = lefts[left]
            if element not in new:
                merged.append(live[left])
                left += 1
                continue
            turn = rights[right] if right < len(rights) else None
            if turn is not None and turn != element and shared and shared[0] != element:
                left += 1  # an applied item that is placed later
                continue
            if turn == element or element in done:
                left += 1
        if right < len(rights):
            element = rights[right]
            done.add(element)
            merged.append(merge(old[element], new[element], schema.item) if element in old else new[element])
            right += 1
            if shared and shared[0] == element:
                shared.popleft()
    return merged


def remove_items(value: Any, fields: FieldSet, schema: SchemaType | None) -> Any:
    """Return the value without the fields of the set; null where nothing remains."""
    how = merge_form(schema)
    if how == "list":
        assert schema is not None
        if not isinstance(value, list):
            return None
        items = []
        for item in value:
            element = item_element(item, schema)
            if not has_member(fields, element):
                below = fields.get(element)
                # An item remains even if only its keys are left.
                items.append((remove_items(item, below, schema.item) or {}) if below else item)
        return items or None
    if not isinstance(value, dict):
        return None if isinstance(value, list) else value
    if how == "atomic":
        return None
    rest = {}
    for name, inner in value.items():
        element = "f:" + name
        if not has_member(fields, element):
            below = fields.get(element)
            rest[name] = remove_items(inner, below, child(schema, name)) if below else inner
    return rest or None


def ensure_named_fields_are_members(fields: FieldSet, schema: SchemaType | None) -> FieldSet:
    """Return the set with every declared field that has members below it as a member itself."""
    if schema is None or schema.kind not in ("object", "map", "list"):
        return fields
    named: FieldSet = {}
    for element, below in fields.items():
        if not below:
            named[element] = below
            continue
        inner = None
        if element.startswith("f:"):
            inner = child(schema, element[2:])
        elif element.startswith("k:") and schema.kind == "list":
            inner = schema.item
        node = ensure_named_fields_are_members(below, inner)
        if schema.kind == "object" and element[2:] in schema.fields and element.startswith("f:"):
            node = node if SELF in node else {SELF: LEAF, **node}
        named[element] = node
    return named


def reconcile_with_schema(fields: FieldSet, schema: SchemaType | None) -> FieldSet:
    """Return the set with fields inside values that are now atomic replaced by the value."""
    if schema is None:
        return fields
    pruned: FieldSet | None = None
    for element, below in fields.items():
        if not below:
            continue
        inner = schema.item if schema.kind == "list" else child(schema, element[2:])
        if inner is None:
            continue
        whole = merge_form(inner) == "atomic" and inner.kind in ("object", "map", "list", "any")
        node = LEAF if whole else reconcile_with_schema(below, inner)
        if node is not below:
            pruned = pruned if pruned is not None else dict(fields)
            pruned[element] = node
    return fields if pruned is None else pruned


_ZEROS = {"string": "", "quantity": "0"}
_CONTAINERS: frozenset[Any] = frozenset((dict, list))


def drop_nulls(value: Any, schema: SchemaType | None) -> Any:
    """Return the value as it is stored: null fields are omitted, null map entries get the zero value."""
    if isinstance(value, dict):
        if schema is not None and schema.kind not in ("object", "map"):
            return value
        kept = {}
        for name, inner in value.items():
            if inner.__class__ in _CONTAINERS:
                kept[name] = drop_nulls(inner, child(schema, name))
            elif inner is not None:
                kept[name] = inner
            elif schema is not None and schema.kind == "map":
                below = child(schema, name)
                if below is not None and below.kind in _ZEROS:
                    kept[name] = _ZEROS[below.kind]
        return kept
    if isinstance(value, list) and schema is not None and schema.kind == "list":
        return [drop_nulls(item, schema.item) for item in value]
    return value
