"""List functions: those of Kubernetes (`sum`, `min`, `isSorted`, ...) and the list extensions, version 3.

Comparisons that fail inside `min`, `max` and `isSorted` count as false; for `indexOf` and `distinct` values
that cannot be compared are different. Work that the cost model does not cover is charged to the meter.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from plimsoll.cel.comparison import Meter, compare, equal_or_false, is_comparable
from plimsoll.cel.functions.arithmetic import add
from plimsoll.cel.functions.list_costs import DISTINCT, FLATTEN, RANGE, REVERSE, SLICE, sorting_cost
from plimsoll.cel.overloads.costs import TRAVERSAL
from plimsoll.cel.overloads.overload import Call, Function, function, overload
from plimsoll.cel.overloads.signatures import NAMED_TYPES
from plimsoll.cel.syntax.ast import Uint
from plimsoll.cel.values import Duration, Value, no_overload, type_name
from plimsoll.errors import CelRuntimeError

_COMPARABLE = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")
_ZEROS: dict[str, Value] = {"int": 0, "uint": Uint(0), "double": 0.0, "duration": Duration(0)}

#: Longest list for which Go's sort is a plain insertion sort.
_MAX_INSERTION_SORT = 12


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
        if equal_or_false(item, value, meter):
            return index
    return -1


def last_index_of(meter: Meter, items: list[Value], value: Value) -> int:
    meter.spend(len(items))
    for index in range(len(items) - 1, -1, -1):
        if equal_or_false(items[index], value, meter):
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
    """Remove `depth` levels of nesting."""
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
        if not any(equal_or_false(item, other, meter) for other in unique):
            unique.append(item)
    return unique


def sort(items: Value) -> list[Value]:
    return sort_by_keys(items, items)


def sort_by_keys(items: Value, keys: Value) -> list[Value]:
    """Return the items in the order of their keys.

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

    if len(order) > _MAX_INSERTION_SORT:
        order.sort(key=functools.cmp_to_key(by_key))
    else:  # the same steps as upstream, which determine the position of NaN
        for end in range(1, len(order)):
            at = end
            while at > 0 and _order(keys[order[at]], keys[order[at - 1]]) == -1:
                order[at], order[at - 1] = order[at - 1], order[at]
                at -= 1
    return [items[index] for index in order]


def _sorting(name: str, signature: str, call: Call, keys: int) -> Function:
    """Declare a sort by the argument at an index, whose items are of a comparable type."""
    return function(
        name,
        *(
            overload(
                f"list_{NAMED_TYPES[one].name}_{signature.format(one)}",
                cost=sorting_cost(keys, one in ("string", "bytes")),
            )
            for one in _COMPARABLE
        ),
        dynamic=call,
    )


FUNCTIONS: tuple[Function, ...] = (
    function(
        "isSorted",
        *(f"list_{one}_is_sorted_bool list({one}).() -> bool" for one in _COMPARABLE),
        call=is_sorted,
        cost=TRAVERSAL,
    ),
    function(
        "sum",
        *(
            overload(f"list_{one}_sum_{one} list({one}).() -> {one}", _sum(zero))
            for one, zero in _ZEROS.items()
        ),
        metered=True,
        cost=TRAVERSAL,
    ),
    function(
        "max",
        *(f"list_{one}_max_{one} list({one}).() -> {one}" for one in _COMPARABLE),
        call=_pick("max", -1),
        cost=TRAVERSAL,
    ),
    function(
        "min",
        *(f"list_{one}_min_{one} list({one}).() -> {one}" for one in _COMPARABLE),
        call=_pick("min", 1),
        cost=TRAVERSAL,
    ),
    function(
        "indexOf", "list_a_index_of_int list(A).(A) -> int", call=index_of, metered=True, cost=TRAVERSAL
    ),
    function(
        "lastIndexOf",
        "list_a_last_index_of_int list(A).(A) -> int",
        call=last_index_of,
        metered=True,
        cost=TRAVERSAL,
    ),
    function("slice", "list_slice list(T).(int, int) -> list(T)", call=slice_list, cost=SLICE),
    function(
        "flatten",
        "list_flatten list(list(T)).() -> list(T)",
        "list_flatten_int list(dyn).(int) -> list(dyn)",
        dynamic=flatten,
        metered=True,
        cost=FLATTEN,
    ),
    _sorting("sort", "sort list({0}).() -> list({0})", sort, keys=0),
    _sorting(
        "@sortByAssociatedKeys", "sortByAssociatedKeys list(T).(list({0})) -> list(T)", sort_by_keys, keys=1
    ),
    function("lists.range", "lists_range (int) -> list(int)", call=range_list, metered=True, cost=RANGE),
    function("reverse", "list_reverse list(T).() -> list(T)", call=lambda items: items[::-1], cost=REVERSE),
    function("distinct", "list_distinct list(T).() -> list(T)", call=distinct, metered=True, cost=DISTINCT),
)
