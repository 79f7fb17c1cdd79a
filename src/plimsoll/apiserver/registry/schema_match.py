"""Fast test whether a tree matches its schema.

`matches_schema` is true exactly if `schema_check` would report nothing; it runs on every write. A type is
compiled once into functions that look up each field by name, so that a test costs about as much as a walk
over the object.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from plimsoll.api.quantity import Number
from plimsoll.apiserver.registry.scalar_formats import is_base64, is_quantity, is_time
from plimsoll.apiserver.registry.schema_types import SchemaType

Test: TypeAlias = Callable[[Any], bool]

_tests: dict[SchemaType, Test] = {}


def matches_schema(tree: Any, type: SchemaType) -> bool:
    """Report whether check_fields would find nothing."""
    if tree is None:
        return True
    try:
        return _test_of(type)(tree)
    except RecursionError:  # schema_check has a depth limit
        return False


def _test_of(type: SchemaType) -> Test:
    test = _tests.get(type)
    if test is None:
        test = _tests[type] = _compile(type)
    return test


def _compile(type: SchemaType) -> Test:
    if type.kind == "object":
        return _compile_object(type)
    if type.kind == "list" and type.item is not None:
        return _compile_list(type.item)
    if type.kind == "map" and type.item is not None:
        return _compile_map(type.item)
    return _VALUES[type.format]


def _compile_object(type: SchemaType) -> Test:
    tests: dict[str, Test] = {}

    def test(value: Any) -> bool:
        if value.__class__ is not dict:
            return False
        if not tests:  # resolved lazily, since types can be recursive
            tests.update({name: _test_of(field.type) for name, field in type.fields.items()})
        for name, part in value.items():
            known = tests.get(name)
            if known is None or (part is not None and not known(part)):
                return False
        return True

    return test


def _compile_list(item: SchemaType) -> Test:
    known = _test_of(item)

    def test(value: Any) -> bool:
        if value.__class__ is not list:
            return False
        return all(part is None or known(part) for part in value)

    return test


def _compile_map(item: SchemaType) -> Test:
    known = _test_of(item)

    def test(value: Any) -> bool:
        if value.__class__ is not dict:
            return False
        return all(part is None or known(part) for part in value.values())

    return test


def _is_text(value: Any) -> bool:
    return value.__class__ is str


def _is_bool(value: Any) -> bool:
    return value is True or value is False


def _is_int32(value: Any) -> bool:
    return value.__class__ is int and -0x80000000 <= value <= 0x7FFFFFFF


def _is_int64(value: Any) -> bool:
    return value.__class__ is int and -0x8000000000000000 <= value <= 0x7FFFFFFFFFFFFFFF


def _is_double(value: Any) -> bool:
    return value.__class__ is int or value.__class__ is Number


def _is_int_or_text(value: Any) -> bool:
    return value.__class__ is str or _is_int32(value)


def _is_base64(value: Any) -> bool:
    return value.__class__ is str and is_base64(value)


def _is_time(value: Any) -> bool:
    return value.__class__ is str and is_time(value, micro=False)


def _is_micro_time(value: Any) -> bool:
    return value.__class__ is str and is_time(value, micro=True)


def _is_anything(value: Any) -> bool:
    return True


_VALUES: dict[str, Test] = {
    "string": _is_text,
    "bool": _is_bool,
    "int32": _is_int32,
    "int64": _is_int64,
    "double": _is_double,
    "bytes": _is_base64,
    "quantity": is_quantity,
    "int-or-string": _is_int_or_text,
    "time": _is_time,
    "micro-time": _is_micro_time,
    "raw": _is_anything,
    "fields": _is_anything,
    "any": _is_anything,
}
