"""Functions of optional values and of lists of them.

The back ends evaluate `or`, `orValue`, optional selection and indexing themselves.
"""

from __future__ import annotations

from plimsoll.cel.overloads.fragments import CodeFragment, SourceWriter, Unsupported
from plimsoll.cel.overloads.overload import Function, function
from plimsoll.cel.syntax.ast import Uint
from plimsoll.cel.values import NONE, Duration, Optional, Timestamp, Value, content
from plimsoll.errors import CelRuntimeError

#: Seconds of 0001-01-01, Go's zero time, in nanoseconds since 1970.
_ZERO_TIME = -62135596800 * 10**9


def is_zero(value: Value) -> bool:
    """Return whether a value is the zero value of its type; a DomainMap never is."""
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


# -- generated code


def _optional(writer: SourceWriter, function: str, codes: list[CodeFragment]) -> CodeFragment:
    entries, key = codes
    if entries.kind != "entries" or key.kind != "str":
        raise Unsupported
    return CodeFragment("optional", "", 0, safe=entries.safe, key=writer.read(key), item=entries.item)


def _or_value(writer: SourceWriter, function: str, codes: list[CodeFragment]) -> CodeFragment:
    optional, other = codes
    if optional.kind != "optional" or not other.constant:
        raise Unsupported
    # A `dyn` fragment is assumed to have a type that attributes can have, so the default must have one too.
    kinds = ("str", "int", "bool", "semver") if optional.item == "dyn" else (optional.item,)
    if other.kind not in kinds:
        raise Unsupported
    return CodeFragment(optional.item, f"{optional.safe}.get({optional.key}, {writer.read(other)})", 0)


def _has_value(writer: SourceWriter, function: str, codes: list[CodeFragment]) -> CodeFragment:
    if codes[0].kind != "optional":
        raise Unsupported
    return CodeFragment("bool", f"({codes[0].key} in {codes[0].safe})", 0)


def _value(writer: SourceWriter, function: str, codes: list[CodeFragment]) -> CodeFragment:
    if codes[0].kind != "optional":
        raise Unsupported
    return CodeFragment(codes[0].item, f"{codes[0].safe}[{codes[0].key}]", 0)


FUNCTIONS: tuple[Function, ...] = (
    function("optional.of", "optional_of (V) -> optional(V)", call=Optional),
    function(
        "optional.ofNonZeroValue",
        "optional_ofNonZeroValue (V) -> optional(V)",
        call=lambda value: NONE if is_zero(value) else Optional(value),
    ),
    function("optional.none", "optional_none () -> optional(V)", call=lambda: NONE),
    function("value", "optional_value optional(V).() -> V", call=content, handler=_value),
    function(
        "hasValue",
        "optional_hasValue optional(V).() -> bool",
        call=lambda optional: optional is not NONE,
        handler=_has_value,
    ),
    function("or", "optional_or_optional optional(V).(optional(V)) -> optional(V)"),
    function("orValue", "optional_orValue_value optional(V).(V) -> V", handler=_or_value),
    function("_?._", "select_optional_field (dyn, string) -> optional(V)", handler=_optional),
    function(
        "_[?_]",
        "list_optindex_optional_int (list(V), int) -> optional(V)",
        "optional_list_optindex_optional_int (optional(list(V)), int) -> optional(V)",
        "map_optindex_optional_value (map(K, V), K) -> optional(V)",
        "optional_map_optindex_optional_value (optional(map(K, V)), K) -> optional(V)",
        handler=_optional,
    ),
    function(
        "_[_]",
        "optional_list_index_int (optional(list(V)), int) -> optional(V)",
        "optional_map_index_value (optional(map(K, V)), K) -> optional(V)",
    ),
    function("last", "list_last list(V).() -> optional(V)", call=last),
    function("first", "list_first list(V).() -> optional(V)", call=first),
    function("optional.unwrap", "optional_unwrap (list(optional(V))) -> list(V)", call=unwrap),
    function("unwrapOpt", "optional_unwrapOpt list(optional(V)).() -> list(V)", call=unwrap),
)
