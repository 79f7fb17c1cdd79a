"""Run-time cost of calls, in units of the cost limit.

Most calls cost 1. String traversals cost a tenth of the length, regular expressions the product of text and
pattern, list functions the elements they touch; each by the size of the actual arguments. A failed argument
counts as size 1. Implements the run-time part of cel-go's cost model with the Kubernetes libraries; measures
that several libraries use are here. The compile-time estimate is in `estimates.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import TypeAlias

from plimsoll.cel.comparison import Meter
from plimsoll.cel.values import NONE, DomainMap, Optional, Value, from_key, size_of

LIST_COST = 10
MAP_COST = 30
STRUCT_COST = 40
STRING_FACTOR = 0.1
REGEX_FACTOR = 0.25

Args: TypeAlias = tuple[Value, ...]
Measure: TypeAlias = Callable[[Meter, Args, Value], int]

#: Stands for an argument or result that failed.
FAILED = object()


@dataclass(frozen=True, slots=True)
class RuntimeCost:
    """The price of a call: a fixed one, or measured on the arguments or, if `after`, on the result."""

    fixed: int = 1
    measure: Measure | None = None
    after: bool = False

    def of(self, run: Meter, args: Args, result: Value = FAILED) -> int:
        return self.fixed if self.measure is None else self.measure(run, args, result)


def measured_size(value: Value) -> int:
    """Return the size of a value; that of an optional is the size of what is in it."""
    while type(value) is Optional and value is not NONE:
        value = value.value
    return size_of(value)


def _traversal(run: Meter, args: Args, result: Value) -> int:
    """Return the cost of walking a value as a tree of data."""
    total = 0
    pending = [args[0]]
    while pending:
        value = pending.pop()
        kind = type(value)
        if kind is list:
            run.spend(len(value))
            pending.extend(value)
        elif kind is dict or kind is DomainMap:
            run.spend(2 * len(value))
            for key, item in value.items():
                pending += (from_key(key), item)
        elif kind is str:
            total += int(len(value.encode()) * STRING_FACTOR)
        elif kind is bytes:
            total += int(len(value) * STRING_FACTOR)
        else:
            total += 1
    return total


ONE = RuntimeCost()
#: One pass over the text that is the first argument, and two.
TEXT = RuntimeCost(measure=lambda run, args, result: ceil(size_of(args[0]) * STRING_FACTOR))
TEXT_TWICE = RuntimeCost(measure=lambda run, args, result: ceil(size_of(args[0]) * 2 * STRING_FACTOR))
TRAVERSAL = RuntimeCost(measure=_traversal)
