"""Arithmetic operators.

Integers are int64 and uint64; overflow is an error. Division and modulo truncate toward zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from math import ceil

from plimsoll.cel.comparison import Meter
from plimsoll.cel.functions import time
from plimsoll.cel.overloads.costs import STRING_FACTOR, Args, CallCost, CallEstimate, Nodes, measured_size
from plimsoll.cel.overloads.fragments import WALK, CodeFragment, SourceWriter, Unsupported
from plimsoll.cel.overloads.overload import Function, function, overload
from plimsoll.cel.overloads.ranges import ONE
from plimsoll.cel.syntax.ast import Uint
from plimsoll.cel.values import INT_MAX, INT_MIN, UINT_MAX, Duration, Timestamp, Value
from plimsoll.errors import CelRuntimeError


def checked_int(value: int) -> int:
    if INT_MIN <= value <= INT_MAX:
        return value
    raise CelRuntimeError("integer overflow")


def checked_uint(value: int) -> Uint:
    if 0 <= value <= UINT_MAX:
        return Uint(value)
    raise CelRuntimeError("unsigned integer overflow")


def negate(value: Value) -> Value:
    kind = type(value)
    if kind is int:
        return checked_int(-value)
    if kind is float:
        return -value
    if kind is Duration:
        return time.checked_duration(-value.nanos)
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
            # Upstream shares the elements; here they are copied, and the copy is charged.
            if not a or not b:
                return a or b
            meter.spend(len(a) + len(b))
            return a + b
        if kind is Uint:
            return checked_uint(a.value + b.value)
        if kind is Duration:
            return time.checked_duration(a.nanos + b.nanos)
    elif kind is Timestamp and other is Duration:
        return time.add_nanos(a, b.nanos)
    elif kind is Duration and other is Timestamp:
        return time.add_nanos(b, a.nanos)
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
            return time.checked_duration(a.nanos - b.nanos)
    elif kind is Timestamp and other is Duration:
        return time.add_nanos(a, -b.nanos)
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
        remainder = abs(m) % abs(n) * (-1 if m < 0 else 1)
        return remainder if kind is int else Uint(remainder)
    raise CelRuntimeError("no such overload")


# -- costs


def _both(run: Meter, args: Args, result: Value) -> int:
    return ceil((measured_size(args[0]) + measured_size(args[1])) * STRING_FACTOR)


def _text_sum(args: Nodes) -> CallEstimate:
    size = args[0].known_size.plus(args[1].known_size)
    return CallEstimate(size.scaled(STRING_FACTOR), size)


def _list_sum(args: Nodes) -> CallEstimate:
    return CallEstimate(ONE, args[0].known_size.plus(args[1].known_size))


# -- generated code


def _on_ints(apply: Callable[[int, int], Value]) -> Callable[[Value, Value], int]:
    """Wrap arithmetic on two ints with an overflow check; raise for other types."""

    def calculate(a: Value, b: Value) -> int:
        if a.__class__ is not int or b.__class__ is not int:
            raise Unsupported
        return int(apply(a, b))

    return calculate


_INT_OPERATIONS = {
    "_+_": _on_ints(lambda a, b: checked_int(a + b)),
    "_-_": _on_ints(subtract),
    "_*_": _on_ints(multiply),
    "_/_": _on_ints(divide),
    "_%_": _on_ints(modulo),
}


def _arithmetic(writer: SourceWriter, function: str, codes: list[CodeFragment]) -> CodeFragment:
    if not {code.kind for code in codes} <= {"int", "dyn"} or all(code.constant for code in codes):
        raise Unsupported
    name = writer.constant(_INT_OPERATIONS[function])
    return CodeFragment("int", f"{name}({writer.read(codes[0])}, {writer.read(codes[1])})", WALK)


_TEXT_SUM = CallCost(measure=_both, estimator=_text_sum)

FUNCTIONS: tuple[Function, ...] = (
    function("-_", "negate_double (double) -> double", "negate_int64 (int) -> int", dynamic=negate),
    function(
        "_+_",
        overload("add_bytes (bytes, bytes) -> bytes", cost=_TEXT_SUM),
        "add_double (double, double) -> double",
        "add_duration_duration (duration, duration) -> duration",
        "add_duration_timestamp (duration, timestamp) -> timestamp",
        "add_timestamp_duration (timestamp, duration) -> timestamp",
        "add_int64 (int, int) -> int",
        overload("add_list (list(A), list(A)) -> list(A)", cost=CallCost(estimator=_list_sum)),
        overload("add_string (string, string) -> string", cost=_TEXT_SUM),
        "add_uint64 (uint, uint) -> uint",
        dynamic=add,
        metered=True,
        handler=_arithmetic,
    ),
    function(
        "_-_",
        "subtract_double (double, double) -> double",
        "subtract_duration_duration (duration, duration) -> duration",
        "subtract_int64 (int, int) -> int",
        "subtract_timestamp_duration (timestamp, duration) -> timestamp",
        "subtract_timestamp_timestamp (timestamp, timestamp) -> duration",
        "subtract_uint64 (uint, uint) -> uint",
        dynamic=subtract,
        handler=_arithmetic,
    ),
    function(
        "_*_",
        "multiply_double (double, double) -> double",
        "multiply_int64 (int, int) -> int",
        "multiply_uint64 (uint, uint) -> uint",
        dynamic=multiply,
        handler=_arithmetic,
    ),
    function(
        "_/_",
        "divide_double (double, double) -> double",
        "divide_int64 (int, int) -> int",
        "divide_uint64 (uint, uint) -> uint",
        dynamic=divide,
        handler=_arithmetic,
    ),
    function(
        "_%_",
        "modulo_int64 (int, int) -> int",
        "modulo_uint64 (uint, uint) -> uint",
        dynamic=modulo,
        handler=_arithmetic,
    ),
)
