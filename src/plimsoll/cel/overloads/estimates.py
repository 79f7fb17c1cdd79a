"""Cost estimates of calls, and the sizes of their results.

Defines the arguments that an estimate sees and the estimates that several libraries use. Implements the rules
of cel-go v0.26 and of Kubernetes 1.36's CEL library; `static/estimate.py` adds up the whole expression.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from plimsoll.cel.overloads.paths import ValuePath
from plimsoll.cel.overloads.ranges import ONE, UNKNOWN, Range, fixed
from plimsoll.cel.overloads.runtime_costs import STRING_FACTOR
from plimsoll.cel.syntax.ast import Expr
from plimsoll.cel.types import CelType, TypeKind


@dataclass(frozen=True, slots=True)
class AstNode:
    """An argument as estimators see it: `size` is None if it is unbounded so far."""

    expr: Expr
    type: CelType
    size: Range | None
    path: ValuePath

    @property
    def known_size(self) -> Range:
        return UNKNOWN if self.size is None else self.size

    @property
    def some_size(self) -> Range:
        """The same, but look again at the path, which may have changed since."""
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


Estimate: TypeAlias = Callable[[Sequence[AstNode]], CallEstimate]


def constant_estimate(cost: int) -> Estimate:
    result = CallEstimate(fixed(cost))
    return lambda args: result


unit_estimate = constant_estimate(1)


def parse_estimate(args: Sequence[AstNode]) -> CallEstimate:
    """Estimate one pass over the text that is the first argument."""
    return CallEstimate(args[0].some_size.scaled(STRING_FACTOR))


def copy_estimate(args: Sequence[AstNode]) -> CallEstimate:
    """Estimate one pass over a text, which gives a text of at most that size."""
    return CallEstimate(args[0].some_size.scaled(STRING_FACTOR), args[0].some_size)


def traversal_estimate(args: Sequence[AstNode]) -> CallEstimate:
    """Estimate one pass over a list or a text."""
    items = args[0]
    if not items.type.params:
        return CallEstimate(items.some_size.scaled(STRING_FACTOR))
    each = ONE
    if items.type.params[0].kind in (TypeKind.STRING, TypeKind.BYTES):
        each = each.plus(items.item_size.scaled(STRING_FACTOR))
    return CallEstimate(items.some_size.times(each))
