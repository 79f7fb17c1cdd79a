"""The standard library of CEL: operators, conversions, `size`, and the basic string tests.

Integers are int64 and uint64; leaving the range is an error, never a wrap. Division and modulo truncate
toward zero. Conversions fail on what they cannot represent.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from plimsoll.cel.comparison import Meter, compare, contains
from plimsoll.cel.functions import numbers, time
from plimsoll.cel.functions.regex import match_pattern
from plimsoll.cel.functions.registry import (
    ANY,
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    Function,
    Overload,
    dynamic,
    function,
)
from plimsoll.cel.syntax.ast import Uint
from plimsoll.cel.values import (
    INT_MAX,
    INT_MIN,
    TYPE_NAMES,
    UINT_MAX,
    DomainMap,
    Duration,
    Timestamp,
    TypeValue,
    Value,
    contains_key,
    no_overload,
    type_name,
)
from plimsoll.errors import CelRuntimeError


def checked_int(value: int) -> int:
    if INT_MIN <= value <= INT_MAX:
        return value
    raise CelRuntimeError("integer overflow")


def checked_uint(value: int) -> Uint:
    if 0 <= value <= UINT_MAX:
        return Uint(value)
    raise CelRuntimeError("unsigned integer overflow")


# -- operators


def negate_bool(value: Value) -> bool:
    if value is True:
        return False
    if value is False:
        return True
    raise CelRuntimeError("no such overload")


def negate(value: Value) -> Value:
    kind = type(value)
    if kind is int:
        return checked_int(-value)
    if kind is float:
        return -value
    if kind is Duration:
        return time.span(-value.nanos)
    raise CelRuntimeError("no such overload: -_")


def add(meter: Meter, a: Value, b: Value) -> Value:
    kind, other = type(a), type(b)
    if kind is other:
        if kind is int:
            return checked_int(a + b)
        if kind is str or kind is bytes:
            meter.spend((len(a) + len(b)) >> 3)
            return a + b
        if kind is float:
            return a + b
        if kind is list:
            # Upstream shares the parts of a sum; here they are copied, so the copy is paid for.
            if not a or not b:
                return a or b
            meter.spend(len(a) + len(b))
            return a + b
        if kind is Uint:
            return checked_uint(a.value + b.value)
        if kind is Duration:
            return time.span(a.nanos + b.nanos)
    elif kind is Timestamp and other is Duration:
        return time.add_span(a, b.nanos)
    elif kind is Duration and other is Timestamp:
        return time.add_span(b, a.nanos)
    raise CelRuntimeError("no such overload")


def subtract(a: Value, b: Value) -> Value:
    kind, other = type(a), type(b)
    if kind is other:
        if kind is int:
            return checked_int(a - b)
        if kind is float:
            return a - b
        if kind is Uint:
            return checked_uint(a.value - b.value)
        if kind is Duration or kind is Timestamp:
            return time.span(a.nanos - b.nanos)
    elif kind is Timestamp and other is Duration:
        return time.add_span(a, -b.nanos)
    raise CelRuntimeError("no such overload")


def multiply(a: Value, b: Value) -> Value:
    kind = type(a)
    if kind is type(b):
        if kind is int:
            return checked_int(a * b)
        if kind is float:
            return a * b
        if kind is Uint:
            return checked_uint(a.value * b.value)
    raise CelRuntimeError("no such overload")


def divide(a: Value, b: Value) -> Value:
    kind = type(a)
    if kind is type(b):
        if kind is int:
            return checked_int(_quotient(a, b))
        if kind is Uint:
            return Uint(_quotient(a.value, b.value))
        if kind is float:
            return _divide_doubles(a, b)
    raise CelRuntimeError("no such overload")


def _quotient(a: int, b: int) -> int:
    if b == 0:
        raise CelRuntimeError("division by zero")
    return a // b if (a >= 0) == (b > 0) else -(-a // b)


def _divide_doubles(a: float, b: float) -> float:
    if b != 0.0:
        return a / b
    if a == 0.0 or a != a:
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


def modulo(a: Value, b: Value) -> Value:
    kind = type(a)
    if kind is type(b) and (kind is int or kind is Uint):
        m, n = (a, b) if kind is int else (a.value, b.value)
        if n == 0:
            raise CelRuntimeError("modulus by zero")
        if m == INT_MIN and n == -1:
            raise CelRuntimeError("integer overflow")
        rest = abs(m) % abs(n)
        rest = -rest if m < 0 else rest
        return rest if kind is int else Uint(rest)
    raise CelRuntimeError("no such overload")


def less(a: Value, b: Value) -> bool:
    return compare(a, b) < 0


def less_equals(a: Value, b: Value) -> bool:
    return compare(a, b) <= 0


def greater(a: Value, b: Value) -> bool:
    return compare(a, b) > 0


def greater_equals(a: Value, b: Value) -> bool:
    return compare(a, b) >= 0


def is_in(meter: Meter, value: Value, container: Value) -> bool:
    kind = type(container)
    if kind is list:
        return contains(container, value, meter)
    if kind is dict or kind is DomainMap:
        return contains_key(container, value)
    raise CelRuntimeError("no such overload")


def size(value: Value) -> int:
    kind = type(value)
    if kind is str or kind is list or kind is dict or kind is bytes or kind is DomainMap:
        return len(value)
    raise no_overload("size")


# -- conversions


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
    raise _conversion("int", "google.protobuf.Duration")  # declared, but no value converts


# -- strings


def _string_test(test: Callable[[str, str], bool]) -> Callable[[Value, Value], bool]:
    def check(text: Value, part: Value) -> bool:
        if type(text) is not str or type(part) is not str:
            raise CelRuntimeError("no such overload")
        return test(text, part)

    return check


def matches(text: Value, pattern: Value) -> bool:
    if type(text) is not str or type(pattern) is not str:
        raise CelRuntimeError("no such overload")
    return match_pattern(text, pattern)


def not_strictly_false(value: Value) -> bool:
    return value is not False


#: The functions that turn a value of one type into another; of a constant they are done at compile time.
CONVERSIONS = frozenset(
    {"bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"}
)

FUNCTIONS: tuple[Function, ...] = (
    dynamic("!_", negate_bool),
    dynamic("-_", negate),
    dynamic("_+_", add, metered=True),
    dynamic("_-_", subtract),
    dynamic("_*_", multiply),
    dynamic("_/_", divide),
    dynamic("_%_", modulo),
    dynamic("_<_", less),
    dynamic("_<=_", less_equals),
    dynamic("_>_", greater),
    dynamic("_>=_", greater_equals),
    dynamic("@in", is_in, metered=True),
    dynamic("size", size),
    dynamic("type", type_of),
    dynamic("dyn", _identity),
    dynamic("matches", matches),
    function("@not_strictly_false", Overload("not_strictly_false", (ANY,), not_strictly_false)),
    function(
        "contains",
        Overload("contains_string", (STRING, STRING), _string_test(lambda s, part: part in s)),
        guarded=False,
    ),
    function(
        "startsWith",
        Overload("starts_with_string", (STRING, STRING), _string_test(str.startswith)),
        guarded=False,
    ),
    function(
        "endsWith", Overload("ends_with_string", (STRING, STRING), _string_test(str.endswith)), guarded=False
    ),
    function(
        "bool",
        Overload("bool_to_bool", (BOOL,), _identity),
        Overload("string_to_bool", (STRING,), _or_fail(numbers.parse_bool, "bool")),
    ),
    function(
        "bytes",
        Overload("bytes_to_bytes", (BYTES,), _identity),
        Overload("string_to_bytes", (STRING,), str.encode),
    ),
    function(
        "double",
        Overload("double_to_double", (DOUBLE,), _identity),
        Overload("int64_to_double", (INT,), float),
        Overload("string_to_double", (STRING,), _or_fail(numbers.parse_double, "double")),
        Overload("uint64_to_double", (UINT,), lambda value: float(value.value)),
    ),
    function(
        "duration",
        Overload("duration_to_duration", (DURATION,), _identity),
        Overload("int64_to_duration", (INT,), _int_to_duration),
        Overload("string_to_duration", (STRING,), _or_fail(time.parse_duration, "google.protobuf.Duration")),
    ),
    function(
        "int",
        Overload("int64_to_int64", (INT,), _identity),
        Overload("double_to_int64", (DOUBLE,), double_to_int),
        Overload("duration_to_int64", (DURATION,), lambda value: value.nanos),
        Overload("string_to_int64", (STRING,), _or_fail(numbers.parse_int, "int")),
        Overload("timestamp_to_int64", (TIMESTAMP,), lambda value: value.nanos // time.SECOND),
        Overload("uint64_to_int64", (UINT,), lambda value: checked_int(value.value)),
    ),
    function(
        "string",
        Overload("string_to_string", (STRING,), _identity),
        Overload("bool_to_string", (BOOL,), lambda value: "true" if value else "false"),
        Overload("bytes_to_string", (BYTES,), _bytes_to_string),
        Overload("double_to_string", (DOUBLE,), numbers.shortest),
        Overload("duration_to_string", (DURATION,), time.format_duration),
        Overload("int64_to_string", (INT,), str),
        Overload("timestamp_to_string", (TIMESTAMP,), time.format_timestamp),
        Overload("uint64_to_string", (UINT,), lambda value: str(value.value)),
    ),
    function(
        "timestamp",
        Overload("timestamp_to_timestamp", (TIMESTAMP,), _identity),
        Overload("int64_to_timestamp", (INT,), int_to_timestamp),
        Overload(
            "string_to_timestamp", (STRING,), _or_fail(time.parse_timestamp, "google.protobuf.Timestamp")
        ),
    ),
    function(
        "uint",
        Overload("uint64_to_uint64", (UINT,), _identity),
        Overload("double_to_uint64", (DOUBLE,), double_to_uint),
        Overload("int64_to_uint64", (INT,), checked_uint),
        Overload("string_to_uint64", (STRING,), _or_fail(_string_to_uint, "uint")),
    ),
)
