"""List functions: those of Kubernetes (`sum`, `min`, `isSorted`, ...) and the list extensions, version 3.

Comparisons that fail inside `min`, `max` and `isSorted` count as "no"; `indexOf` and `distinct` take what
cannot be compared for different. Work that the cost model does not cover is paid to the meter.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from plimsoll.cel.comparison import Meter, compare, holds, is_comparable
from plimsoll.cel.functions.registry import (
    ANY,
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    INT,
    LIST,
    STRING,
    TIMESTAMP,
    UINT,
    Call,
    Function,
    Overload,
    Param,
    dynamic,
    function,
    list_of,
)
from plimsoll.cel.functions.standard import add
from plimsoll.cel.syntax.ast import Uint
from plimsoll.cel.values import Duration, Value, no_overload, type_name
from plimsoll.errors import CelRuntimeError

_COMPARABLE: dict[str, Param] = {
    "int": INT,
    "uint": UINT,
    "double": DOUBLE,
    "bool": BOOL,
    "duration": DURATION,
    "timestamp": TIMESTAMP,
    "string": STRING,
    "bytes": BYTES,
}
_ZEROS: dict[str, Value] = {"int": 0, "uint": Uint(0), "double": 0.0, "duration": Duration(0)}

#: Past this many elements Go's sort is no longer a plain insertion sort.
_INSERTION = 12


def _order(a: Value, b: Value) -> int | None:
    try:
        return compare(a, b)
    except CelRuntimeError:
        return None


def is_sorted(items: list[Value]) -> bool:
    previous: Value = None
    for index, item in enumerate(items):
        if not is_comparable(item):
            raise CelRuntimeError("no such overload")
        if index and _order(previous, item) == 1:
            return False
        previous = item
    return True


def _sum(zero: Value) -> Call:
    def total(meter: Meter, items: list[Value]) -> Value:
        result = zero
        for item in items:
            result = add(meter, result, item)
        return result

    return total


def _pick(name: str, better: int) -> Callable[[list[Value]], Value]:
    def choose(items: list[Value]) -> Value:
        if not items:
            raise CelRuntimeError(f"{name} called on empty list")
        best = items[0]
        for item in items:
            if not is_comparable(item):
                raise CelRuntimeError("no such overload")
            if _order(best, item) == better:
                best = item
        return best

    return choose


def index_of(meter: Meter, items: list[Value], value: Value) -> int:
    meter.spend(len(items))
    for index, item in enumerate(items):
        if holds(item, value, meter):
            return index
    return -1


def last_index_of(meter: Meter, items: list[Value], value: Value) -> int:
    meter.spend(len(items))
    for index in range(len(items) - 1, -1, -1):
        if holds(items[index], value, meter):
            return index
    return -1


def slice_list(items: list[Value], start: int, end: int) -> list[Value]:
    if start < 0 or end < 0:
        raise CelRuntimeError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise CelRuntimeError(f"cannot slice({start}, {end}), start index must be at most the end index")
    if len(items) < end:
        raise CelRuntimeError(f"cannot slice({start}, {end}), list is length {len(items)}")
    return items[start:end]


def flatten(meter: Meter, items: Value, depth: Value = 1) -> list[Value]:
    """Take out `depth` levels of nesting."""
    if type(items) is not list or type(depth) is not int:
        raise no_overload("flatten", items)
    if depth < 0:
        raise CelRuntimeError("level must be non-negative")
    result: list[Value] = []
    pending = [(iter(items), depth)]
    meter.spend(len(items))
    while pending:
        rest, level = pending[-1]
        for item in rest:
            if type(item) is list and level > 0:
                meter.spend(2 * len(item) + 2)
                pending.append((iter(item), level - 1))
                break
            result.append(item)
        else:
            pending.pop()
    return result


def range_list(meter: Meter, count: int) -> list[Value]:
    meter.spend(max(count, 0))
    return list(range(count))


def distinct(meter: Meter, items: list[Value]) -> list[Value]:
    unique: list[Value] = []
    for item in items:
        meter.spend(len(unique) >> 4)
        if not any(holds(item, other, meter) for other in unique):
            unique.append(item)
    return unique


def sort(items: Value) -> list[Value]:
    return sort_by_keys(items, items)


def sort_by_keys(items: Value, keys: Value) -> list[Value]:
    """Return the list in the order that sorting the keys gives.

    DIFF: elements with equal keys keep their order in long lists too (test_sorting_is_stable).
    """
    if type(items) is not list or type(keys) is not list:
        raise no_overload("sort", items)
    if len(items) != len(keys):
        raise CelRuntimeError(f"expected as many sort keys as elements, got {len(keys)} and {len(items)}")
    if not items:
        return items
    first = keys[0]
    if not is_comparable(first):
        raise CelRuntimeError("list elements must be comparable")
    if any(type_name(key) != type_name(first) for key in keys):
        raise CelRuntimeError("list elements must have the same type")
    order = list(range(len(keys)))

    def by_key(i: int, j: int) -> int:
        return _order(keys[i], keys[j]) or 0

    if len(order) > _INSERTION:
        order.sort(key=functools.cmp_to_key(by_key))
    else:  # the same steps as upstream, which decide where NaN ends up
        for end in range(1, len(order)):
            at = end
            while at > 0 and _order(keys[order[at]], keys[order[at - 1]]) == -1:
                order[at], order[at - 1] = order[at - 1], order[at]
                at -= 1
    return [items[index] for index in order]


FUNCTIONS: tuple[Function, ...] = (
    function(
        "isSorted",
        *(
            Overload(f"list_{name}_is_sorted_bool", (list_of(param),), is_sorted)
            for name, param in _COMPARABLE.items()
        ),
    ),
    function(
        "sum",
        *(
            Overload(f"list_{name}_sum_{name}", (list_of(_COMPARABLE[name]),), _sum(zero), metered=True)
            for name, zero in _ZEROS.items()
        ),
    ),
    function(
        "max",
        *(
            Overload(f"list_{name}_max_{name}", (list_of(param),), _pick("max", -1))
            for name, param in _COMPARABLE.items()
        ),
    ),
    function(
        "min",
        *(
            Overload(f"list_{name}_min_{name}", (list_of(param),), _pick("min", 1))
            for name, param in _COMPARABLE.items()
        ),
    ),
    function("indexOf", Overload("list_a_index_of_int", (LIST, ANY), index_of, metered=True)),
    function("lastIndexOf", Overload("list_a_last_index_of_int", (LIST, ANY), last_index_of, metered=True)),
    function("slice", Overload("list_slice", (LIST, INT, INT), slice_list, early=True)),
    function(
        "flatten",
        Overload("list_flatten", (ANY,), flatten, metered=True),
        Overload("list_flatten_int", (ANY, ANY), flatten, metered=True),
        guarded=False,
    ),
    function("lists.range", Overload("lists_range", (INT,), range_list, metered=True)),
    function("reverse", Overload("list_reverse", (LIST,), lambda items: items[::-1])),
    function("distinct", Overload("list_distinct", (LIST,), distinct, metered=True)),
    dynamic("sort", sort),
    dynamic("@sortByAssociatedKeys", sort_by_keys),
)
