"""Path elements in FieldsV1 form: encoding, order, display and parsing.

The same item always gets the same text (sorted keys, values as Go encodes JSON), so that texts can be
compared instead of values.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from plimsoll.api.codec import decode_tree
from plimsoll.api.go_text import encode_go, quote_go, quote_json
from plimsoll.api.quantity import INT64_MAX, INT64_MIN
from plimsoll.apiserver.patch.field_set import LEAF, SELF, FieldSet
from plimsoll.apiserver.patch.schema_queries import key_default
from plimsoll.apiserver.registry.schema_types import SchemaType
from plimsoll.errors import DecodeError, PatchError


def item_element(item: Any, schema: SchemaType) -> str:
    """Return the path element of an item of a keyed list or of a set."""
    if schema.list_type == "map":
        if not isinstance(item, dict):
            raise PatchError("associative list with keys may not have non-map elements")
        keys = schema.keys
        if len(keys) == 1:
            value = item.get(keys[0])
            if value.__class__ is str:
                return _text_key(keys[0], value)
        return _keyed(item, schema)
    if isinstance(item, dict | list) or item is None:
        raise PatchError("associative list without keys has an element that is no scalar")
    return "v:" + encode_go(item)


@lru_cache(maxsize=4096)
def _text_key(key: str, value: str) -> str:
    return f"k:{{{quote_json(key)}:{quote_json(value)}}}"


def _keyed(item: dict[str, Any], schema: SchemaType) -> str:
    pairs = []
    for key in sorted(schema.keys):
        if key in item:
            pairs.append(f"{quote_json(key)}:{encode_go(item[key])}")
        else:
            default = key_default(schema, key)
            if default is not None:
                pairs.append(f"{quote_json(key)}:{encode_go(default)}")
    if not pairs:
        names = " ".join(quote_json(key) for key in schema.keys)
        raise PatchError(
            f"associative list with keys has an element that omits all key fields [{names}] "
            "(and doesn't have default values for any key fields)"
        )
    return "k:{" + ",".join(pairs) + "}"


@lru_cache(maxsize=4096)
def sort_key(element: str) -> Any:
    """Return the sort key: fields by name, then keyed items, then values, then indices."""
    kind = element[:2]
    if kind == "f:":
        return (0, element)
    if kind == "k:":
        return (1, tuple((name, _rank(value)) for name, value in sorted(_body(element).items())))
    if kind == "v:":
        return (2, _rank(_body(element)))
    return (3, int(element[2:]) if kind == "i:" else 0)


def _rank(value: Any) -> Any:
    """Return the sort key of a value of any type: numbers, strings, booleans, the rest by its text."""
    if value is True or value is False:
        return (2, value, "")
    if isinstance(value, int):
        return (0, value, "")
    if isinstance(value, str):
        return (1, 0, value)
    return (3, 0, encode_go(value))


def _body(element: str) -> Any:
    return decode_tree(element[2:])


def format_path(path: tuple[str, ...]) -> str:
    """Format a path for display: `.spec.containers[name="web"].image`."""
    return "".join(map(_format_element, path))


def _format_element(element: str) -> str:
    kind = element[:2]
    if kind == "f:":
        return "." + element[2:]
    if kind == "k:":
        pairs = (f"{name}={_format_value(value)}" for name, value in sorted(_body(element).items()))
        return "[" + ",".join(pairs) + "]"
    if kind == "v:":
        return f"[={_format_value(_body(element))}]"
    return f"[{element[2:]}]"


def _format_value(value: Any) -> str:
    return quote_go(value) if isinstance(value, str) else encode_go(value)


def parse_field_set(raw: Any) -> FieldSet:
    """Parse a field set from a request: elements in canonical form, unknown kinds of elements dropped."""
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        raise PatchError("fieldsV1 is not an object", malformed=True)
    return _read_below(raw)[0]


def _read_below(raw: Any) -> tuple[FieldSet, bool]:
    """Return the set below an element, and whether the element itself is a member."""
    if not isinstance(raw, dict):
        raise PatchError("fieldsV1 contains a value that is not an object", malformed=True)
    below: FieldSet = {}
    member = False
    for text, rest in raw.items():
        if text == SELF:
            member = True
            continue
        element = _read_element(text)
        if element is None:
            continue
        deeper, inside = _read_below(rest)
        below[element] = {SELF: LEAF, **deeper} if inside and deeper else deeper
    return below, member or not below


def _read_element(text: str) -> str | None:
    if text.startswith("f:"):
        return text
    if len(text) < 2:
        raise PatchError(f"fieldsV1: {text!r} is no path element", malformed=True)
    if text[1] != ":":
        raise PatchError(f"fieldsV1: {text!r} has no colon", malformed=True)
    kind, body = text[0], text[2:]
    try:
        if kind == "v":
            return "v:" + encode_go(decode_tree(body))
        if kind == "k":
            keys = decode_tree(body)
            if not isinstance(keys, dict):
                raise PatchError(f"fieldsV1: {text!r} names no keys", malformed=True)
            return "k:" + encode_go(keys)
    except DecodeError:
        raise PatchError(f"fieldsV1: {text!r} is no path element", malformed=True) from None
    if kind == "i":
        if not re.fullmatch(r"[+-]?[0-9]{1,19}", body, re.ASCII) or not INT64_MIN <= int(body) <= INT64_MAX:
            raise PatchError(f"fieldsV1: {text!r} is no index", malformed=True)
        return f"i:{int(body)}"
    return None
