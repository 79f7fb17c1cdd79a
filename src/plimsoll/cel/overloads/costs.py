"""Cost of calls, in units of the cost limit: at run time, and the worst case at compile time.

Most calls cost 1. String traversals cost a tenth of the length, regular expressions the product of text and
pattern, list functions the number of elements they visit: at run time by the size of the actual arguments (1
for a failed one), at compile time by the maximum of their sizes. Implements the cost models of cel-go v0.26
and of Kubernetes 1.36's CEL library; costs that several libraries use are defined here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TypeAlias

from plimsoll.cel.comparison import Meter
from plimsoll.cel.overloads.paths import ValuePath
from plimsoll.cel.overloads.ranges import UNKNOWN, Range, fixed
from plimsoll.cel.syntax.ast import Expr
from plimsoll.cel.types import CelType, TypeKind
from plimsoll.cel.values import NONE, DomainMap, Optional, Value, from_key, size_of

LIST_COST = 10
MAP_COST = 30
STRUCT_COST = 40
STRING_FACTOR = 0.1
REGEX_FACTOR = 0.25


@dataclass(frozen=True, slots=True)
class AstNode:
    """Argument of a cost estimator; `size` is None if no bound is known."""

    expr: Expr
    type: CelType
    size: Range | None
    path: ValuePath

    @property
    def known_size(self) -> Range:
        return UNKNOWN if self.size is None else self.size

    @property
    def some_size(self) -> Range:
        """The known size, else the size declared for the path, which may have changed since."""
        return self.size or self.path.declared_size() or UNKNOWN

    @property
    def item_size(self) -> Range:
        """The size of the items, for a list that is part of the device."""
        return self.path.declared_size("@items") or UNKNOWN


@dataclass(frozen=True, slots=True)
class CallEstimate:
    """The cost of a call without its arguments, and the size of its result if known."""

    cost: Range
    size: Range | None = None


Args: TypeAlias = tuple[Value, ...]
Measure: TypeAlias = Callable[[Meter, Args, Value], int]
Nodes: TypeAlias = Sequence[AstNode]
Estimator: TypeAlias = Callable[[Nodes], CallEstimate]

#: Placeholder for an argument or result that failed.
FAILED = object()


@dataclass(frozen=True, slots=True)
class CallCost:
    """Cost of a call.

    At run time it is fixed, or measured on the arguments or, if `after`, on the result. The estimate is the
    fixed cost unless there is an estimator.
    """

    fixed: int = 1
    measure: Measure | None = None
    estimator: Estimator | None = None
    after: bool = False

    def of(self, run: Meter, args: Args, result: Value = FAILED) -> int:
        return self.fixed if self.measure is None else self.measure(run, args, result)

    def estimate(self, args: Nodes) -> CallEstimate:
        return CallEstimate(fixed(self.fixed)) if self.estimator is None else self.estimator(args)


def measured_size(value: Value) -> int:
    """Return the size of a value; the size of an optional is that of its content."""
    while type(value) is Optional and value is not NONE:
        value = value.value
    return size_of(value)


def measure_text(run: Meter, args: Args, result: Value) -> int:
    """Return the cost of one pass over the text that is the first argument."""
    return ceil(size_of(args[0]) * STRING_FACTOR)


def measure_text_twice(run: Meter, args: Args, result: Value) -> int:
    return ceil(size_of(args[0]) * 2 * STRING_FACTOR)


def _measure_tree(run: Meter, args: Args, result: Value) -> int:
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


def _estimate_parsing(args: Nodes) -> CallEstimate:
    return CallEstimate(args[0].some_size.scaled(STRING_FACTOR))


def _estimate_copy(args: Nodes) -> CallEstimate:
    return CallEstimate(args[0].some_size.scaled(STRING_FACTOR), args[0].some_size)


def _estimate_traversal(args: Nodes) -> CallEstimate:
    items = args[0]
    if not items.type.params:
        return CallEstimate(items.some_size.scaled(STRING_FACTOR))
    each = fixed(1)
    if items.type.params[0].kind in (TypeKind.STRING, TypeKind.BYTES):
        each = each.plus(items.item_size.scaled(STRING_FACTOR))
    return CallEstimate(items.some_size.times(each))


ONE = CallCost()
#: One pass over a text; the result of `COPY` is at most as long as the text.
PARSING = CallCost(measure=measure_text, estimator=_estimate_parsing)
COPY = CallCost(measure=measure_text, estimator=_estimate_copy)
#: One pass over a list or a text.
TRAVERSAL = CallCost(measure=_measure_tree, estimator=_estimate_traversal)
