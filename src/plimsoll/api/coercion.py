"""Conversion of a plain JSON tree to a view, with the rules of Go's JSON decoder.

Unlike msgspec, null means the zero value everywhere, and an error names the exact field. `codec.decode` uses
msgspec first and this module only if that fails or if it already has a tree.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import or_
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from plimsoll.api.quantity import Quantity
from plimsoll.errors import DecodeError, QuantityError

_INT64 = range(-(2**63), 2**63)
_INT32 = range(-(2**31), 2**31)
_MAX_DEPTH = 200


@dataclass(frozen=True, slots=True)
class _Member:
    """A field of a view: its name in Python and on the wire, and its type."""

    attribute: str
    wire: str
    type: Any


@lru_cache(maxsize=512)
def members(view: type[msgspec.Struct]) -> tuple[_Member, ...]:
    """Return the fields of a view in order."""
    hints = get_type_hints(view)
    return tuple(
        _Member(attribute, wire, hints[attribute])
        for attribute, wire in zip(view.__struct_fields__, view.__struct_encode_fields__, strict=True)
    )


@lru_cache(maxsize=512)
def wire_types(view: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the types of a view's fields by wire name; the dict must not be modified."""
    return {member.wire: member.type for member in members(view)}


@lru_cache(maxsize=2048)
def strip_optional(wanted: Any) -> Any:
    """Return X for `X | None`."""
    if is_union(wanted) and type(None) in get_args(wanted):
        return reduce(or_, [each for each in get_args(wanted) if each is not type(None)])
    return wanted


def is_union(wanted: Any) -> bool:
    """Return whether a type is a union: an optional one, or an IntOrString."""
    return get_origin(wanted) in (Union, types.UnionType)


def zero_value(wanted: Any) -> Any:
    """Return what null stands for in a list or map of this type: nil for a pointer, else the zero value."""
    if is_union(wanted):
        choices = get_args(wanted)
        return None if type(None) in choices else zero_value(choices[0])
    if wanted is Quantity:
        return Quantity.from_json(None)
    origin = get_origin(wanted)
    if origin is not None:
        return origin()
    return None if wanted is Any else wanted()


def coerce(value: Any, wanted: Any, path: str = "", depth: int = 0) -> Any:
    """Convert a tree to the wanted type; raises DecodeError with the path of the invalid value."""
    if depth > _MAX_DEPTH:
        raise DecodeError("is nested too deeply", path)
    wanted = strip_optional(wanted)
    if wanted is Any:
        return value
    if isinstance(wanted, type) and issubclass(wanted, msgspec.Struct):
        return _coerce_struct(value, wanted, path, depth)
    origin = get_origin(wanted)
    if origin is tuple:
        (item, _) = get_args(wanted)
        _expect(isinstance(value, (list, tuple)), value, "a list", path)
        return tuple(
            zero_value(item) if v is None else coerce(v, item, f"{path}[{i}]", depth + 1)
            for i, v in enumerate(value)
        )
    if origin is dict:
        _, item = get_args(wanted)
        _expect(isinstance(value, dict), value, "an object", path)
        return {
            str(k): zero_value(item) if v is None else coerce(v, item, f"{path}[{_shorten(k)}]", depth + 1)
            for k, v in value.items()
        }
    return _coerce_leaf(value, wanted, path)


def unknown_fields(value: Any, wanted: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of fields that a type does not have, in a tree that `coerce` accepts otherwise."""
    wanted = strip_optional(wanted)
    if isinstance(wanted, type) and issubclass(wanted, msgspec.Struct):
        known = wire_types(wanted)
        for name, each in (value or {}).items():
            at = f"{path}.{name}" if path else str(name)
            if name not in known:
                yield at
            else:
                yield from unknown_fields(each, known[name], at)
    elif get_origin(wanted) is tuple:
        for index, each in enumerate(value or ()):
            yield from unknown_fields(each, get_args(wanted)[0], f"{path}[{index}]")
    elif get_origin(wanted) is dict:
        for name, each in (value or {}).items():
            yield from unknown_fields(each, get_args(wanted)[1], f"{path}[{_shorten(name)}]")


def _coerce_struct(value: Any, view: type[msgspec.Struct], path: str, depth: int) -> Any:
    _expect(isinstance(value, dict), value, "an object", path)
    given: dict[str, Any] = {}
    for member in members(view):
        field = value.get(member.wire)
        if field is not None:
            member_path = f"{path}.{member.wire}" if path else member.wire
            given[member.attribute] = coerce(field, member.type, member_path, depth + 1)
    return view(**given)


def _coerce_leaf(value: Any, wanted: Any, path: str) -> Any:
    if wanted is Quantity:
        try:
            return Quantity.from_json(value)
        except QuantityError as error:
            raise DecodeError(str(error), path) from None
    if wanted is bool:
        _expect(isinstance(value, bool), value, "true or false", path)
    elif wanted is int:
        _expect(isinstance(value, int) and not isinstance(value, bool), value, "a whole number", path)
        _expect(value in _INT64, value, "a whole number of at most 64 bits", path)
    elif wanted is str:
        _expect(type(value) is str, value, "a string", path)
    elif wanted == int | str:
        fits = type(value) is str or (type(value) is int and value in _INT32)
        _expect(fits, value, "a whole number of at most 32 bits or a string", path)
    else:
        raise NotImplementedError(wanted)
    return value


def _shorten(key: object) -> str:
    """Return a map's key for a path; long keys are shortened in the middle."""
    text = str(key)
    return text if len(text) <= 63 else f"{text[:30]}...{text[-30:]}"


def _expect(ok: bool, value: Any, what: str, path: str) -> None:
    if not ok:
        raise DecodeError(f"must be {what}, not {_name(value)}", path)


def _name(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, (list, tuple)):
        return "a list"
    if type(value) is str:
        return "a string"
    return f"the number {value}" if len(str(value)) < 40 else "a number"
