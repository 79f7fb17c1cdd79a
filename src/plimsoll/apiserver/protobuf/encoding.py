"""Encoding of JSON trees as protobuf messages, by the field numbers of the schemas.

The result can be decoded by `decoding` and by any Kubernetes client. Fields without a number are omitted; a
value of the wrong type raises DecodeError.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from plimsoll.api import codec
from plimsoll.api.quantity import Number, Quantity
from plimsoll.apiserver.protobuf import wire
from plimsoll.apiserver.registry.schema import SchemaType
from plimsoll.errors import DecodeError, QuantityError

_DEPTH = 100
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Step(NamedTuple):
    """One field, or the fields of a message that does not appear in JSON."""

    number: int
    name: str
    type: SchemaType | None
    inside: list[_Step]


_plans: dict[SchemaType, list[_Step]] = {}


def encode_message(tree: Any, type: SchemaType) -> bytes:
    """Encode a tree as a message; raises DecodeError."""
    return _encode_object(tree, type, 0)


def _plan(type: SchemaType) -> list[_Step]:
    plan = _plans.get(type)
    if plan is None:
        plan = _plans[type] = []
        fields = [field for field in type.fields.values() if field.number]
        for field in sorted(fields, key=lambda field: (*field.message_path, field.number)):
            steps = plan
            for number in field.message_path:
                if not steps or steps[-1].number != number:
                    steps.append(_Step(number, "", None, []))
                steps = steps[-1].inside
            steps.append(_Step(field.number, field.name, field.type, []))
    return plan


def _encode_object(tree: Any, type: SchemaType, depth: int) -> bytes:
    if not isinstance(tree, dict):
        raise DecodeError(f"{type.short_name} must be an object")
    if depth > _DEPTH:
        raise DecodeError("the object is nested too deeply for protobuf")
    parts: list[bytes] = []
    _encode_steps(parts, tree, _plan(type), depth)
    return b"".join(parts)


def _encode_steps(parts: list[bytes], tree: dict[str, Any], plan: list[_Step], depth: int) -> None:
    for number, name, type, inside in plan:
        if type is None:
            inner: list[bytes] = []
            _encode_steps(inner, tree, inside, depth)
            if inner:
                parts.append(wire.put(number, b"".join(inner)))
            continue
        value = tree.get(name)
        if value is None:
            continue
        if type.kind == "list":
            if not isinstance(value, list):
                raise DecodeError(f"{name} must be a list")
            assert type.item is not None
            for item in value:
                parts.append(_encode_field(number, item, type.item, depth))
        elif type.kind == "map":
            if not isinstance(value, dict):
                raise DecodeError(f"{name} must be an object")
            assert type.item is not None
            for key in sorted(value):
                entry = wire.put(1, key.encode()) + _encode_field(2, value[key], type.item, depth)
                parts.append(wire.put(number, entry))
        else:
            parts.append(_encode_field(number, value, type, depth))


def _encode_field(number: int, value: Any, type: SchemaType, depth: int) -> bytes:
    """Encode one field with its tag; null in a list or map is the zero value."""
    kind = type.kind
    if kind == "object":
        return wire.put(number, _encode_object({} if value is None else value, type, depth + 1))
    if kind == "list":  # a list in a map is a message with one repeated field
        assert type.item is not None
        items = [] if value is None else value
        if not isinstance(items, list):
            raise DecodeError("a list is expected")
        return wire.put(number, b"".join(_encode_field(1, item, type.item, depth + 1) for item in items))
    if value is None:
        return _ZEROS[type.format](number)
    try:
        return _SCALARS[type.format](number, value)
    except (TypeError, ValueError, AttributeError, OverflowError, struct.error):
        shown = repr(value)
        raise DecodeError(f"{shown if len(shown) < 80 else shown[:77] + '...'} is no {type.kind}") from None


def _put_text(number: int, value: Any) -> bytes:
    return wire.put(number, str.encode(value))


def _put_bool(number: int, value: Any) -> bytes:
    if value is not True and value is not False:
        raise TypeError
    return wire.put_number(number, int(value))


def _put_integer(number: int, value: Any) -> bytes:
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise TypeError
    return wire.put_number(number, value)


def _put_double(number: int, value: Any) -> bytes:
    text = value.text if isinstance(value, Number) else str(value)
    return wire.put_fixed64(number, struct.pack("<d", float(text)))


def _put_bytes(number: int, value: Any) -> bytes:
    try:
        return wire.put(number, base64.b64decode(str.encode(value), validate=False))
    except binascii.Error:
        raise ValueError from None


def _put_quantity(number: int, value: Any) -> bytes:
    try:
        text = value if isinstance(value, str) else str(Quantity.from_json(value))
    except QuantityError:
        raise ValueError from None
    return wire.put(number, wire.put(1, text.encode()))


def _put_int_or_string(number: int, value: Any) -> bytes:
    if isinstance(value, str):
        inner = wire.put_number(1, 1) + wire.put_number(2, 0) + wire.put(3, value.encode())
    else:
        inner = wire.put_number(1, 0) + _put_integer(2, value) + wire.put(3, b"")
    return wire.put(number, inner)


def _put_time(number: int, value: Any) -> bytes:
    timestamp = datetime.fromisoformat(value)
    if timestamp.tzinfo is None:
        raise ValueError
    since = timestamp - _EPOCH
    inner = wire.put_number(1, since // timedelta(seconds=1)) + wire.put_number(2, since.microseconds * 1000)
    return wire.put(number, inner)


def _put_json(number: int, value: Any) -> bytes:
    return wire.put(number, wire.put(1, codec.encode(value)))


def _refuse(number: int, value: Any = None) -> bytes:
    raise DecodeError("this part of a CustomResourceDefinition cannot be encoded as protobuf")


_SCALARS: dict[str, Callable[[int, Any], bytes]] = {
    "string": _put_text,
    "bool": _put_bool,
    "int32": _put_integer,
    "int64": _put_integer,
    "double": _put_double,
    "bytes": _put_bytes,
    "quantity": _put_quantity,
    "int-or-string": _put_int_or_string,
    "time": _put_time,
    "micro-time": _put_time,
    "raw": _put_json,
    "fields": _put_json,
    "any": _refuse,
}


def _put_nothing(number: int) -> bytes:
    return wire.put(number, b"")


def _put_zero(number: int) -> bytes:
    return wire.put_number(number, 0)


_ZEROS: dict[str, Callable[[int], bytes]] = dict.fromkeys(_SCALARS, _put_nothing) | {
    "bool": _put_zero,
    "int32": _put_zero,
    "int64": _put_zero,
    "double": lambda number: wire.put_fixed64(number, bytes(8)),
}
