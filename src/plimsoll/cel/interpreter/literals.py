"""Closures for list, map and message literals, and sets for `in` over constant lists."""

from __future__ import annotations

from plimsoll.cel.interpreter import messages
from plimsoll.cel.interpreter.access import Closure
from plimsoll.cel.interpreter.evaluation import Evaluation
from plimsoll.cel.overloads.costs import LIST_COST, MAP_COST, STRUCT_COST
from plimsoll.cel.syntax.ast import Uint
from plimsoll.cel.values import (
    INT_MAX,
    NONE,
    Optional,
    Value,
    WrappedKey,
    content,
    int_of_double,
    key_of,
    uint_of_double,
)
from plimsoll.errors import CelRuntimeError


def list_closure(items: tuple[Closure, ...], optional: tuple[bool, ...]) -> Closure:
    if not any(optional):

        def build(run: Evaluation) -> list[Value]:
            run.charge(LIST_COST)
            result: list[Value] = []
            for item in items:  # a comprehension would need another stack frame
                result.append(item(run))
            return result

        return build
    pairs = tuple(zip(items, optional, strict=True))

    def build_some(run: Evaluation) -> list[Value]:
        run.charge(LIST_COST)
        result: list[Value] = []
        for item, may_lack in pairs:
            value = item(run)
            if may_lack:
                if type(value) is not Optional:
                    raise CelRuntimeError("cannot initialize optional list element from non-optional value")
                if value is NONE:
                    continue
                value = content(value)
            result.append(value)
        return result

    return build_some


def map_closure(entries: tuple[tuple[Closure, Closure, bool], ...]) -> Closure:
    def build(run: Evaluation) -> dict[Value, Value]:
        run.charge(MAP_COST)
        result: dict[Value, Value] = {}
        for key, value, may_lack in entries:
            kept = key_of(key(run))
            item = value(run)
            if may_lack:
                if type(item) is not Optional:
                    raise CelRuntimeError("cannot initialize optional entry from non-optional value")
                if item is NONE:
                    result.pop(kept, None)
                    continue
                item = content(item)
            result[kept] = item
        return result

    return build


def struct_closure(name: str, fields: tuple[tuple[str, Closure, bool], ...]) -> Closure:
    def build(run: Evaluation) -> Value:
        run.charge(STRUCT_COST)
        given: dict[str, Value] = {}
        for field, value, may_lack in fields:
            item = value(run)
            if may_lack:
                if type(item) is not Optional:
                    raise CelRuntimeError("cannot initialize optional entry from non-optional value")
                if item is NONE:
                    given.pop(field, None)
                    continue
                item = content(item)
            given[field] = item
        return messages.build(run, name, given)

    return build


# -- `in` over a constant list


def member_keys(items: list[Value]) -> frozenset[Value] | None:
    """Return the set of map keys equal to an item of a constant list, or None if an item cannot be a key."""
    if any(type(item) not in (bool, int, Uint, float, str) for item in items):
        return None
    return frozenset(key for item in items for key in _keys(item))


def is_member(value: Value, keys: frozenset[Value]) -> bool:
    """Return whether a value is in the set.

    DIFF: a value that cannot be hashed upstream (Semver, bytes) is not in it; upstream ends the evaluation
    (test_unhashable_value_is_not_in_a_literal_list).
    """
    kind = type(value)
    if kind is str or kind is int or kind is Uint:
        return value in keys
    if kind is bool or (kind is float and value == value):
        return WrappedKey(value) in keys
    return False


def _keys(item: Value) -> list[Value]:
    kind = type(item)
    if kind is float:
        if item != item:
            return []
        whole, natural = int_of_double(item), uint_of_double(item)
        keys: list[Value] = [WrappedKey(item)]
        return keys + ([] if whole is None else [whole]) + ([] if natural is None else [Uint(natural)])
    if kind is int:
        return [item, WrappedKey(float(item)), *([Uint(item)] if item >= 0 else [])]
    if kind is Uint:
        return [item, WrappedKey(float(item.value)), *([item.value] if item.value <= INT_MAX else [])]
    return [key_of(item)]
