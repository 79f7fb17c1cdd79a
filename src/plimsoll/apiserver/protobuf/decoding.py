"""Decoding of protobuf messages to JSON trees, by the field numbers of the schemas.

The tree is what Go would encode as JSON for the same bytes, except for absent lists and times (Go writes null
for some): zeros of non-pointer fields are omitted; times, quantities, int-or-string and embedded JSON have
their JSON form. Unknown numbers are skipped.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from plimsoll.api import codec
from plimsoll.api.quantity import Number
from plimsoll.apiserver.protobuf import wire
from plimsoll.apiserver.protobuf.wire import Value
from plimsoll.apiserver.registry.schema import SchemaField, SchemaType
from plimsoll.errors import DecodeError, InputError

_DEPTH = 100
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Entry(NamedTuple):
    """Decoding of one field number."""

    name: str
    type: SchemaType
    emits_zero: bool
    inside: Mapping[int, _Entry] | None  #: fields of a message that does not appear in JSON


_plans: dict[SchemaType, dict[int, _Entry]] = {}
_ANY = SchemaType("any")


def decode_message(data: bytes, type: SchemaType) -> dict[str, Any]:
    """Decode a message of this type; raises DecodeError."""
    tree: dict[str, Any] = {}
    _read_into(tree, data, _plan(type), 0)
    return tree


def _plan(type: SchemaType) -> dict[int, _Entry]:
    plan = _plans.get(type)
    if plan is None:
        plan = _plans[type] = {}
        for field in type.fields.values():
            if field.number:
                _enter(plan, field)
    return plan


def _enter(plan: dict[int, _Entry], field: SchemaField) -> None:
    for number in field.message_path:
        around = plan.setdefault(number, _Entry("", _ANY, False, {}))
        assert isinstance(around.inside, dict)
        plan = around.inside
    plan[field.number] = _Entry(field.name, field.type, field.emits_zero, None)


def _read_into(tree: dict[str, Any], data: bytes, plan: Mapping[int, _Entry], depth: int) -> None:
    if depth > _DEPTH:
        raise DecodeError("the protobuf is nested too deeply")
    for number, value in wire.read_fields(data):
        entry = plan.get(number)
        if entry is None:
            continue
        name, type, emits_zero, inside = entry
        if inside is not None:
            _read_into(tree, wire.chunk(value), inside, depth + 1)
        elif type.kind == "list":
            assert type.item is not None
            _extend(tree.setdefault(name, []), value, type.item, depth)
        elif type.kind == "map":
            assert type.item is not None
            key, item = _read_map_entry(wire.chunk(value), type.item, depth)
            tree.setdefault(name, {})[key] = item
        else:
            read = _read(value, type, depth)
            if read is None or (not emits_zero and not read):
                tree.pop(name, None)  # absent, or a zero that Go always encodes
            else:
                tree[name] = read


def _extend(items: list[Any], value: Value, item: SchemaType, depth: int) -> None:
    if item.kind in ("integer", "boolean") and isinstance(value, bytes):  # a packed list
        items.extend(_SCALARS[item.format](number) for number in wire.read_varints(value))
    else:
        items.append(_read(value, item, depth))


def _read_map_entry(data: bytes, item: SchemaType, depth: int) -> tuple[str, Any]:
    key, value = "", None
    for number, part in wire.read_fields(data):
        if number == 1:
            key = wire.text(part)
        elif number == 2:
            value = _read(part, item, depth)
    return key, _read(_EMPTY.get(item.format, b""), item, depth) if value is None else value


#: Meaning of an absent map value on the wire.
_EMPTY: dict[str, Value] = {"int32": 0, "int64": 0, "bool": 0, "double": bytes(8)}


def _read(value: Value, type: SchemaType, depth: int) -> Any:
    if type.kind == "object":
        tree: dict[str, Any] = {}
        _read_into(tree, wire.chunk(value), _plan(type), depth + 1)
        return tree
    if type.kind == "list":  # a list in a map is a message with one repeated field
        assert type.item is not None
        items: list[Any] = []
        for number, part in wire.read_fields(wire.chunk(value)):
            if number == 1:
                _extend(items, part, type.item, depth + 1)
        return items
    return _SCALARS[type.format](value)


def _read_bool(value: Value) -> bool:
    return wire.number(value) != 0


def _read_int32(value: Value) -> int:
    return wire.signed(wire.number(value), 32)


def _read_int64(value: Value) -> int:
    return wire.signed(wire.number(value), 64)


def _read_double(value: Value) -> Any:
    data = wire.chunk(value)
    if len(data) != 8:
        raise DecodeError("a protobuf number of the wrong size")
    number = struct.unpack("<d", data)[0]
    if number != number or number in (float("inf"), float("-inf")):
        raise DecodeError("a number that JSON cannot hold")
    return int(number) if number.is_integer() and abs(number) < 2**53 else Number(repr(number))


def _read_bytes(value: Value) -> str:
    return base64.b64encode(wire.chunk(value)).decode()


def _read_quantity(value: Value) -> str:
    parts = dict(wire.read_fields(wire.chunk(value)))
    return wire.text(parts.get(1, b"")) or "0"


def _read_int_or_string(value: Value) -> int | str:
    parts = dict(wire.read_fields(wire.chunk(value)))
    if parts.get(1, 0) == 1:
        return wire.text(parts.get(3, b""))
    return _read_int32(parts.get(2, 0))


def _read_timestamp(value: Value) -> tuple[datetime, int] | None:
    """Return a timestamp and its microseconds; None if it is unset."""
    data = wire.chunk(value)
    if not data:
        return None
    parts = dict(wire.read_fields(data))
    seconds, nanos = _read_int64(parts.get(1, 0)), _read_int32(parts.get(2, 0))
    try:
        return _EPOCH + timedelta(seconds=seconds), nanos // 1000 % 1_000_000
    except OverflowError:
        raise DecodeError("a time outside of the years 1 to 9999") from None


def _read_time(value: Value) -> str | None:
    timestamp = _read_timestamp(value)
    return None if timestamp is None else timestamp[0].strftime("%Y-%m-%dT%H:%M:%SZ").zfill(20)


def _read_micro_time(value: Value) -> str | None:
    timestamp = _read_timestamp(value)
    return (
        None
        if timestamp is None
        else f"{timestamp[0].strftime('%Y-%m-%dT%H:%M:%S').zfill(19)}.{timestamp[1]:06}Z"
    )


def _read_json(value: Value) -> Any:
    parts = dict(wire.read_fields(wire.chunk(value)))
    raw = wire.chunk(parts.get(1, b""))
    if not raw:
        return None
    try:
        return codec.decode_tree(raw)
    except InputError as error:
        raise DecodeError(f"embedded in protobuf: {error}") from None


def _refuse(value: Value) -> Any:
    raise DecodeError("this part of a CustomResourceDefinition cannot be read from protobuf; use JSON")


_SCALARS: dict[str, Callable[[Value], Any]] = {
    "string": wire.text,
    "bool": _read_bool,
    "int32": _read_int32,
    "int64": _read_int64,
    "double": _read_double,
    "bytes": _read_bytes,
    "quantity": _read_quantity,
    "int-or-string": _read_int_or_string,
    "time": _read_time,
    "micro-time": _read_micro_time,
    "raw": _read_json,
    "fields": _read_json,
    "any": _refuse,
}
