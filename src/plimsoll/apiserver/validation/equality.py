"""Semantic equality of objects, as used for immutable fields and for detecting changes.

An absent list or map equals an empty one, quantities are compared by value, and free-form JSON (`parameters`,
`data`) by its stored text, key order included. Fields unknown to a view are ignored by `semantic_equal` and
compared by `trees_equal_as`.
"""

from __future__ import annotations

from typing import Any, get_args, get_origin

import msgspec

from plimsoll.api import codec
from plimsoll.api.coercion import is_union, members, strip_optional, wire_types, zero_value
from plimsoll.api.quantity import Quantity


def semantic_equal(old: Any, new: Any) -> bool:
    """Report whether two views are semantically equal."""
    return codec.encode(old) == codec.encode(new) or fields_equal(old, new)


def fields_equal(old: Any, new: Any) -> bool:
    """Report whether two views are equal field by field."""
    if isinstance(old, msgspec.Struct) and type(old) is type(new):
        return all(
            _members_equal(getattr(old, member.attribute), getattr(new, member.attribute), member.type)
            for member in members(type(old))
        )
    if isinstance(old, tuple) and isinstance(new, tuple):
        return len(old) == len(new) and all(map(fields_equal, old, new))
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(fields_equal(value, new[key]) for key, value in old.items())
    if isinstance(old, Quantity) or isinstance(new, Quantity):
        return bool(old == new)
    return type(old) is type(new) and bool(old == new)


def _members_equal(old: Any, new: Any, wanted: Any) -> bool:
    if strip_optional(wanted) is Any:
        return codec.encode(old) == codec.encode(new)
    if old is None or new is None:
        return not old and not new and (old is new or old == () or new == ())
    return fields_equal(old, new)


def trees_equal(old: Any, new: Any) -> bool:
    """Report whether two plain trees are equal; null, absent, empty list and empty string are the same."""
    if isinstance(old, dict) and isinstance(new, dict):
        return all(trees_equal(old.get(key), new.get(key)) for key in old.keys() | new.keys())
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(trees_equal, old, new))
    if _is_nothing(old) or _is_nothing(new):
        return _is_nothing(old) and _is_nothing(new)
    return type(old) is type(new) and bool(old == new)


def _is_nothing(value: Any) -> bool:
    return value is None or value == [] or value == ""


def trees_equal_as(view: Any, old: Any, new: Any) -> bool:
    """Report whether two canonical trees of this view are equal.

    For fields that are not optional in the view, absent and empty are the same. For optional ones (`X |
    None`) absent and empty differ, except for lists and maps.
    """
    if old == new and type(old) is type(new):
        return True
    wanted = strip_optional(view)
    optional = wanted is not view
    if isinstance(wanted, type) and issubclass(wanted, msgspec.Struct):
        if optional and (old is None) != (new is None):
            return False
        return _structs_equal(wanted, old or {}, new or {})
    origin = get_origin(wanted)
    if origin is tuple:
        item, old, new = get_args(wanted)[0], old or [], new or []
        return len(old) == len(new) and all(
            trees_equal_as(item, *pair) for pair in zip(old, new, strict=True)
        )
    if origin is dict:
        item, old, new = get_args(wanted)[1], old or {}, new or {}
        return old.keys() == new.keys() and all(trees_equal_as(item, old[key], new[key]) for key in old)
    if wanted is Quantity and isinstance(old, str) and isinstance(new, str):
        return Quantity.parse(old) == Quantity.parse(new)
    if wanted is Any or optional or wanted is Quantity:
        return trees_equal(old, new) if wanted is Any else False
    if is_union(wanted):  # an IntOrString: 0 and "" differ
        return bool(
            (zero_value(wanted) if old is None else old) == (zero_value(wanted) if new is None else new)
        )
    return not old and not new


def _structs_equal(view: type[msgspec.Struct], old: dict[str, Any], new: dict[str, Any]) -> bool:
    known = wire_types(view)
    return all(
        trees_equal_as(known[key], old.get(key), new.get(key))
        if key in known
        else trees_equal(old.get(key), new.get(key))
        for key in old.keys() | new.keys()
    )
