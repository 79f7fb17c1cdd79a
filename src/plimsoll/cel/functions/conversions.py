"""Conversions between types; a value that the target type cannot represent is an error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from plimsoll.cel.functions import numbers, time
from plimsoll.cel.functions.arithmetic import checked_int, checked_uint
from plimsoll.cel.overloads.costs import STRING_FACTOR, CallCost, CallEstimate, Nodes, measure_text
from plimsoll.cel.overloads.fragments import CodeFragment, SourceWriter, Unsupported
from plimsoll.cel.overloads.overload import Function, function, overload
from plimsoll.cel.overloads.ranges import Range, wrapped
from plimsoll.cel.syntax.ast import Uint
from plimsoll.cel.values import TYPE_NAMES, Duration, Timestamp, TypeValue, Value, type_name
from plimsoll.errors import CelRuntimeError


def type_of(value: Value) -> TypeValue:
    return _TYPE_VALUES[type_name(value)]


_TYPE_VALUES = {name: TypeValue(name) for name in TYPE_NAMES.values()}


def _conversion(source: str, target: str) -> CelRuntimeError:
    return CelRuntimeError(f"type conversion error from '{source}' to '{target}'")


def _identity(value: Value) -> Value:
    return value


def _or_fail(parse: Callable[[str], Value], target: str) -> Callable[[str], Value]:
    def convert(text: str) -> Value:
        value = parse(text)
        if value is None:
            raise _conversion("string", target)
        return value

    return convert


def double_to_int(value: float) -> int:
    if value != value or not -(2.0**63) < value < 2.0**63:
        raise CelRuntimeError("integer overflow")
    return int(value)


def double_to_uint(value: float) -> Uint:
    if value != value or not 0 <= value < 2.0**64:
        raise CelRuntimeError("unsigned integer overflow")
    return Uint(int(value))


def _string_to_uint(text: str) -> Uint | None:
    value = numbers.parse_uint(text)
    return None if value is None else Uint(value)


def _bytes_to_string(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise CelRuntimeError("invalid UTF-8 in bytes, cannot convert to string") from None


def int_to_timestamp(value: int) -> Timestamp:
    if not time.MIN_SECONDS <= value <= time.MAX_SECONDS:
        raise CelRuntimeError("timestamp overflow")
    return Timestamp(value * time.SECOND)


def _int_to_duration(value: int) -> Duration:
    raise _conversion("int", "google.protobuf.Duration")  # upstream declares it, but every value fails


# -- costs


def _encoded(args: Nodes) -> CallEstimate:
    size = args[0].known_size
    return CallEstimate(size.scaled(STRING_FACTOR), wrapped(size.low, size.high * 4))


def _decoded(args: Nodes) -> CallEstimate:
    size = args[0].known_size
    return CallEstimate(size.scaled(STRING_FACTOR), Range(size.low // 4, size.high))


# -- generated code


def _dyn(writer: SourceWriter, function: str, codes: list[CodeFragment]) -> CodeFragment:
    if codes[0].kind != "dyn":
        raise Unsupported
    return replace(codes[0], bound=0)


FUNCTIONS: tuple[Function, ...] = (
    function("type", "type (A) -> type(A)", dynamic=type_of),
    function("dyn", "to_dyn (A) -> dyn", dynamic=_identity, handler=_dyn),
    function(
        "bool",
        overload("bool_to_bool (bool) -> bool", _identity),
        overload("string_to_bool (string) -> bool", _or_fail(numbers.parse_bool, "bool")),
    ),
    function(
        "bytes",
        overload("bytes_to_bytes (bytes) -> bytes", _identity),
        overload(
            "string_to_bytes (string) -> bytes",
            str.encode,
            cost=CallCost(measure=measure_text, estimator=_encoded),
        ),
    ),
    function(
        "double",
        overload("double_to_double (double) -> double", _identity),
        overload("int64_to_double (int) -> double", float),
        overload("string_to_double (string) -> double", _or_fail(numbers.parse_double, "double")),
        overload("uint64_to_double (uint) -> double", lambda value: float(value.value)),
    ),
    function(
        "duration",
        overload("duration_to_duration (duration) -> duration", _identity),
        overload("int64_to_duration (int) -> duration", _int_to_duration),
        overload(
            "string_to_duration (string) -> duration",
            _or_fail(time.parse_duration, "google.protobuf.Duration"),
        ),
    ),
    function(
        "int",
        overload("int64_to_int64 (int) -> int", _identity),
        overload("double_to_int64 (double) -> int", double_to_int),
        overload("duration_to_int64 (duration) -> int", lambda value: value.nanos),
        overload("string_to_int64 (string) -> int", _or_fail(numbers.parse_int, "int")),
        overload("timestamp_to_int64 (timestamp) -> int", lambda value: value.nanos // time.SECOND),
        overload("uint64_to_int64 (uint) -> int", lambda value: checked_int(value.value)),
    ),
    function(
        "string",
        overload("string_to_string (string) -> string", _identity),
        overload("bool_to_string (bool) -> string", lambda value: "true" if value else "false"),
        overload(
            "bytes_to_string (bytes) -> string",
            _bytes_to_string,
            cost=CallCost(measure=measure_text, estimator=_decoded),
        ),
        overload("double_to_string (double) -> string", numbers.shortest),
        overload("duration_to_string (duration) -> string", time.format_duration),
        overload("int64_to_string (int) -> string", str),
        overload("timestamp_to_string (timestamp) -> string", time.format_timestamp),
        overload("uint64_to_string (uint) -> string", lambda value: str(value.value)),
    ),
    function(
        "timestamp",
        overload("timestamp_to_timestamp (timestamp) -> timestamp", _identity),
        overload("int64_to_timestamp (int) -> timestamp", int_to_timestamp),
        overload(
            "string_to_timestamp (string) -> timestamp",
            _or_fail(time.parse_timestamp, "google.protobuf.Timestamp"),
        ),
    ),
    function(
        "uint",
        overload("uint64_to_uint64 (uint) -> uint", _identity),
        overload("double_to_uint64 (double) -> uint", double_to_uint),
        overload("int64_to_uint64 (int) -> uint", checked_uint),
        overload("string_to_uint64 (string) -> uint", _or_fail(_string_to_uint, "uint")),
    ),
)

#: Names of the conversions, which are evaluated at compile time if the argument is a constant.
CONVERSIONS = frozenset(one.name for one in FUNCTIONS)
