"""Message literals: those of the well-known types, such as `google.protobuf.Int64Value{value: 1}`, and the
results of mutations, `Object{...}` and `JSONPatch{...}`.

A well-known message, the only kind that a selector can name, is converted to the plain CEL value it
represents.
"""

from __future__ import annotations

from plimsoll.cel.admission_values import JsonPatchOperation, ObjectValue
from plimsoll.cel.comparison import Meter
from plimsoll.cel.functions.time import MAX_SECONDS, MIN_SECONDS, SECOND, format_duration, format_timestamp
from plimsoll.cel.syntax.ast import Uint
from plimsoll.cel.values import (
    EMPTY_MESSAGE,
    INT_MAX,
    INT_MIN,
    DomainMap,
    Duration,
    Timestamp,
    Value,
    from_key,
    type_name,
)
from plimsoll.errors import CelRuntimeError

_ZEROS: dict[str, Value] = {
    "google.protobuf.BoolValue": False,
    "google.protobuf.BytesValue": b"",
    "google.protobuf.DoubleValue": 0.0,
    "google.protobuf.Int64Value": 0,
    "google.protobuf.StringValue": "",
    "google.protobuf.UInt64Value": Uint(0),
    "google.protobuf.FloatValue": 0.0,
    "google.protobuf.Int32Value": 0,
    "google.protobuf.UInt32Value": Uint(0),
}
_MAX_JSON_INT = 2**53 - 1
_CONVERT_COST = 16  # meter cost of one element


def build(meter: Meter, name: str, fields: dict[str, Value]) -> Value:
    """Return the value of a message literal; raises if a value does not fit its field."""
    if name in _ZEROS:
        return _typed(fields.get("value", _ZEROS[name]), _ZEROS[name])
    if name == "google.protobuf.Duration":
        return _duration(fields)
    if name == "google.protobuf.Timestamp":
        return _timestamp(fields)
    if name == "google.protobuf.Empty":
        return EMPTY_MESSAGE
    if name == "google.protobuf.Struct":
        return json_value(meter, fields.get("fields", {}))
    if name == "google.protobuf.ListValue":
        return json_value(meter, fields.get("values", []))
    if name == "google.protobuf.Value":
        return _any_value(meter, fields)
    if name == "JSONPatch":
        return _operation(fields)
    if name.partition(".")[0] == "Object":
        return ObjectValue(name, fields)
    raise CelRuntimeError(f"unknown type '{name}'")


def _operation(fields: dict[str, Value]) -> JsonPatchOperation:
    for field in ("op", "path", "from"):
        if field in fields and type(fields[field]) is not str:
            raise CelRuntimeError(
                f"unexpected type {type_name(fields[field])} for JSONPatchType '{field}' field"
            )
    return JsonPatchOperation(fields)


def _typed(value: Value, like: Value) -> Value:
    if type(value) is not type(like):
        raise CelRuntimeError(f"field is of type {type_name(like)}, not {type_name(value)}")
    return value


def _duration(fields: dict[str, Value]) -> Duration:
    total = _typed(fields.get("seconds", 0), 0) * SECOND + _typed(fields.get("nanos", 0), 0)
    return Duration(max(INT_MIN, min(INT_MAX, total)))


def _timestamp(fields: dict[str, Value]) -> Timestamp:
    total = _typed(fields.get("seconds", 0), 0) * SECOND + _typed(fields.get("nanos", 0), 0)
    if not MIN_SECONDS <= total // SECOND <= MAX_SECONDS:
        raise CelRuntimeError("timestamp overflow")
    return Timestamp(total)


def _any_value(meter: Meter, fields: dict[str, Value]) -> Value:
    for field, value in fields.items():
        if field != "null_value":
            return json_value(meter, value)
    return None


def json_value(meter: Meter, value: Value) -> Value:
    """Convert a value to its JSON form: numbers are doubles, other scalars that JSON lacks are strings."""
    kind = type(value)
    if value is None or kind in (bool, float, str):
        return value
    if kind is int or kind is Uint:
        number = value.value if kind is Uint else value
        return float(number) if abs(number) <= _MAX_JSON_INT else str(number)
    if kind is list:
        meter.spend(_CONVERT_COST * len(value))
        return [json_value(meter, item) for item in value]
    if kind is dict or kind is DomainMap:
        meter.spend(_CONVERT_COST * len(value))
        return {_json_key(from_key(key)): json_value(meter, item) for key, item in value.items()}
    if kind is Timestamp:
        return format_timestamp(value)
    if kind is Duration:
        return format_duration(value)
    raise CelRuntimeError(f"a value of type {type_name(value)} has no JSON form")


def _json_key(key: Value) -> str:
    if type(key) is not str:
        raise CelRuntimeError("keys of a Struct must be strings")
    return key
