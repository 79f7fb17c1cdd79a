"""Lists taken as sets: `sets.contains`, `sets.equivalent`, `sets.intersects`."""

from __future__ import annotations

from plimsoll.cel.comparison import Meter, contains
from plimsoll.cel.functions.registry import LIST, Function, Overload, function
from plimsoll.cel.values import Value


def intersects(meter: Meter, a: list[Value], b: list[Value]) -> bool:
    return any(contains(b, item, meter) for item in a)


def is_superset(meter: Meter, items: list[Value], part: list[Value]) -> bool:
    return all(contains(items, item, meter) for item in part)


def equivalent(meter: Meter, a: list[Value], b: list[Value]) -> bool:
    return is_superset(meter, a, b) and is_superset(meter, b, a)


FUNCTIONS: tuple[Function, ...] = (
    function("sets.contains", Overload("list_sets_contains_list", (LIST, LIST), is_superset, metered=True)),
    function(
        "sets.equivalent", Overload("list_sets_equivalent_list", (LIST, LIST), equivalent, metered=True)
    ),
    function(
        "sets.intersects", Overload("list_sets_intersects_list", (LIST, LIST), intersects, metered=True)
    ),
)
