"""Logic, indexing, `in` and `size`. The back ends evaluate `?:`, `&&`, `||` and indexing themselves."""

from __future__ import annotations

from dataclasses import replace

from plimsoll.cel.comparison import Meter, contains
from plimsoll.cel.overloads.costs import CallCost, CallEstimate, measured_size
from plimsoll.cel.overloads.fragments import CodeFragment, SourceWriter, Unsupported
from plimsoll.cel.overloads.overload import Function, function, overload
from plimsoll.cel.values import DomainMap, Value, contains_key, no_overload
from plimsoll.errors import CelRuntimeError


def negate_bool(value: Value) -> bool:
    if value is True:
        return False
    if value is False:
        return True
    raise CelRuntimeError("no such overload")


def not_strictly_false(value: Value) -> bool:
    return value is not False


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


# -- generated code


def _negation(writer: SourceWriter, function: str, codes: list[CodeFragment]) -> CodeFragment:
    return CodeFragment("bool", f"(not {writer.condition(codes[0])})", 0)


def _choice(writer: SourceWriter, function: str, codes: list[CodeFragment]) -> CodeFragment:
    condition = writer.condition(codes[0])
    kinds = {codes[1].kind, codes[2].kind}
    if not kinds <= {"bool", "str", "int", "dyn"}:
        raise Unsupported
    kind = kinds.pop() if len(kinds) == 1 else "dyn"
    return CodeFragment(kind, f"({writer.read(codes[1])} if {condition} else {writer.read(codes[2])})", 0)


def _index(writer: SourceWriter, function: str, codes: list[CodeFragment]) -> CodeFragment:
    return replace(writer.indexed(codes[0], codes[1]), bound=0)


def _size(writer: SourceWriter, function: str, codes: list[CodeFragment]) -> CodeFragment:
    code = codes[0]
    if code.constant or code.kind not in ("dyn", "str", "entries", "domains"):
        raise Unsupported
    return CodeFragment("int", f"len({code.safe or code.text})", 0)


FUNCTIONS: tuple[Function, ...] = (
    function("_?_:_", "conditional (bool, A, A) -> A", handler=_choice),
    function("_&&_", "logical_and (bool, bool) -> bool"),
    function("_||_", "logical_or (bool, bool) -> bool"),
    function("!_", "logical_not (bool) -> bool", dynamic=negate_bool, handler=_negation),
    function("@not_strictly_false", "not_strictly_false (bool) -> bool", dynamic=not_strictly_false),
    function("_[_]", "index_list (list(A), int) -> A", "index_map (map(A, B), A) -> B", handler=_index),
    function(
        "@in",
        overload(
            "in_list (A, list(A)) -> bool",
            cost=CallCost(
                measure=lambda run, args, result: measured_size(args[1]),
                estimator=lambda args: CallEstimate(args[1].known_size.scaled(1)),
            ),
        ),
        "in_map (A, map(A, B)) -> bool",
        dynamic=is_in,
        metered=True,
    ),
    function(
        "size",
        "size_bytes (bytes) -> int",
        "bytes_size bytes.() -> int",
        "size_list (list(A)) -> int",
        "list_size list(A).() -> int",
        "size_map (map(A, B)) -> int",
        "map_size map(A, B).() -> int",
        "size_string (string) -> int",
        "string_size string.() -> int",
        dynamic=size,
        handler=_size,
    ),
)
