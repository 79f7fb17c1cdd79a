"""Optional values: making and asking them, lists of them. `or` and `orValue` belong to the back ends."""

from __future__ import annotations

from plimsoll.cel.functions.registry import ANY, LIST, OPTIONAL, Function, Overload, function, list_of
from plimsoll.cel.syntax.ast import Uint
from plimsoll.cel.values import NONE, Duration, Optional, Timestamp, Value, content
from plimsoll.errors import CelRuntimeError

#: Seconds of 0001-01-01, Go's zero time, in nanoseconds since 1970.
_ZERO_TIME = -62135596800 * 10**9


def is_zero(value: Value) -> bool:
    """Return whether a value is the zero value of its type; the map of all domains never is."""
    kind = type(value)
    if kind in (bool, int, float, str, bytes, list, dict):
        return not value
    if kind is Uint:
        return bool(value.value == 0)
    if kind is Duration:
        return bool(value.nanos == 0)
    if kind is Timestamp:
        return bool(value.nanos == _ZERO_TIME)
    return value is None


def unwrap(items: list[Value]) -> list[Value]:
    if any(type(item) is not Optional for item in items):
        raise CelRuntimeError("a value of the list is not optional")
    return [content(item) for item in items if item is not NONE]


def first(items: list[Value]) -> Optional:
    return Optional(items[0]) if items else NONE


def last(items: list[Value]) -> Optional:
    return Optional(items[-1]) if items else NONE


FUNCTIONS: tuple[Function, ...] = (
    function("optional.of", Overload("optional_of", (ANY,), Optional)),
    function(
        "optional.ofNonZeroValue",
        Overload(
            "optional_ofNonZeroValue", (ANY,), lambda value: NONE if is_zero(value) else Optional(value)
        ),
    ),
    function("optional.none", Overload("optional_none", (), lambda: NONE, early=True)),
    function("value", Overload("optional_value", (OPTIONAL,), content)),
    function("hasValue", Overload("optional_hasValue", (OPTIONAL,), lambda optional: optional is not NONE)),
    function("last", Overload("list_last", (LIST,), last)),
    function("first", Overload("list_first", (LIST,), first)),
    function("optional.unwrap", Overload("optional_unwrap", (list_of(OPTIONAL),), unwrap)),
    function("unwrapOpt", Overload("optional_unwrapOpt", (list_of(OPTIONAL),), unwrap)),
)
