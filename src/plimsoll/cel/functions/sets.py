"""Set operations on lists: `sets.contains`, `sets.equivalent`, `sets.intersects`."""

from __future__ import annotations

from collections.abc import Callable

from plimsoll.cel.comparison import Meter, contains
from plimsoll.cel.overloads.costs import Args, CallCost, CallEstimate, Nodes
from plimsoll.cel.overloads.overload import Function, function
from plimsoll.cel.overloads.ranges import ONE
from plimsoll.cel.values import Value, size_of


def intersects(meter: Meter, a: list[Value], b: list[Value]) -> bool:
    return any(contains(b, item, meter) for item in a)


def is_superset(meter: Meter, items: list[Value], part: list[Value]) -> bool:
    return all(contains(items, item, meter) for item in part)


def equivalent(meter: Meter, a: list[Value], b: list[Value]) -> bool:
    return is_superset(meter, a, b) and is_superset(meter, b, a)


def _function(name: str, call: Callable[..., bool], rounds: int = 1) -> Function:
    """Declare a function that compares every item of one list with every item of the other."""

    def measure(run: Meter, args: Args, result: Value) -> int:
        return 1 + size_of(args[0]) * size_of(args[1]) * rounds

    def estimate(args: Nodes) -> CallEstimate:
        return CallEstimate(args[0].some_size.times(args[1].some_size).scaled(rounds).plus(ONE))

    return function(
        f"sets.{name}",
        f"list_sets_{name}_list (list(T), list(T)) -> bool",
        call=call,
        metered=True,
        cost=CallCost(measure=measure, estimator=estimate),
    )


FUNCTIONS: tuple[Function, ...] = (
    _function("contains", is_superset),
    _function("equivalent", equivalent, rounds=2),
    _function("intersects", intersects),
)
