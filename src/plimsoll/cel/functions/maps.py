"""`cel.@mapInsert`, to which the two-variable macros expand."""

from __future__ import annotations

from plimsoll.cel.comparison import Meter
from plimsoll.cel.overloads.overload import Function, function, overload
from plimsoll.cel.values import MISSING, Value, find, from_key, key_of
from plimsoll.errors import CelRuntimeError


def insert(target: dict[Value, Value], key: Value, value: Value) -> None:
    """Insert a new entry into a map under construction."""
    if find(target, key) is not MISSING:
        raise CelRuntimeError("insert failed: key already exists")
    target[key_of(key)] = value


def inserted(meter: Meter, target: dict[Value, Value], key: Value, value: Value) -> dict[Value, Value]:
    meter.spend(len(target) + 1)
    copy = dict(target)
    insert(copy, key, value)
    return copy


def merged(meter: Meter, target: dict[Value, Value], entries: dict[Value, Value]) -> dict[Value, Value]:
    meter.spend(len(target) + len(entries) + 1)
    copy = dict(target)
    for kept, value in entries.items():
        insert(copy, from_key(kept), value)
    return copy


FUNCTIONS: tuple[Function, ...] = (
    function(
        "cel.@mapInsert",
        overload("@mapInsert_map_key_value (map(K, V), K, V) -> map(K, V)", inserted),
        overload("@mapInsert_map_map (map(K, V), map(K, V)) -> map(K, V)", merged),
        metered=True,
    ),
)
