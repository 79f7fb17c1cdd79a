"""Formulas of resource scores: least allocated, most allocated, requested to capacity, balanced allocation.

Each has a form for one node, in Python integers, and a vectorized form for many; a test holds them equal.
Both read the unified ledger: charges of claims count like requests.

DIFF: balanced allocation computes with integers (hundred-thousandths) instead of float64, so that equal nodes
get equal scores on every machine, and rounds once, to nearest. Upstream rounds the values before and after
the placement down, and therefore prefers any node in use to an empty one for a small pod. Scores differ from
upstream's by at most one (test_balanced_allocation_agrees_with_floating_point,
test_a_small_pod_is_no_reason_to_prefer_a_node_in_use).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt
from typing import NamedTuple

import numpy as np

from plimsoll.ledger.columns import Column, Mask, NodeColumns
from plimsoll.scheduler.plugin_args import SHAPE_SCORE_MAX, UTILIZATION_MAX, ShapePoint
from plimsoll.scheduler.scores.scorer import BEST
from plimsoll.scheduler.snapshot.node_query_cache import NodeQuery, Rows

#: Units of a node's utilization: PARTS is all of its allocatable amount.
PARTS = 100_000
#: Larger amounts could overflow int64 and are computed node by node, in Python integers.
LARGE = (1 << 63) // (2 * PARTS)
#: Balances are in thousandths of a point; half of the best score, and the rounding offset.
FINE = 1_000
HALF = BEST // 2 * FINE + FINE


class WeightedResource(NamedTuple):
    """Resource of a formula, with the pod's demand and the weight."""

    name: str
    demand: int
    weight: int = 1


@dataclass(frozen=True, slots=True)
class Formula(NodeQuery):
    """Score from 0 to 100 by the resources of a node; resources that the node does not have are skipped."""

    parts: tuple[WeightedResource, ...]

    def evaluate(self, columns: NodeColumns, rows: Rows) -> Column:
        if any(p.demand > LARGE or columns.allocatable(p.name).max(initial=0) > LARGE for p in self.parts):
            some = range(columns.size)[rows] if isinstance(rows, slice) else rows.tolist()
            return np.array([self.evaluate_row(columns, row) for row in some], dtype=np.int64)
        return self._evaluate_rows(columns, rows)

    def _evaluate_rows(self, columns: NodeColumns, rows: Rows) -> Column:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Allocated(Formula):
    """LeastAllocated, or MostAllocated with `most`."""

    most: bool = False

    def evaluate_row(self, columns: NodeColumns, row: int) -> int:
        total = weights = 0
        for part in self.parts:
            line = int(columns.allocatable(part.name)[row])
            if line > 0:
                left = max(min(int(columns.non_zero_free(part.name)[row]), line) - part.demand, 0)
                total += (line - left if self.most else left) * BEST // line * part.weight
                weights += part.weight
        return total // weights if weights else 0

    def _evaluate_rows(self, columns: NodeColumns, rows: Rows) -> Column:
        total: Column | int = 0
        weights: Column | int = 0
        for part in self.parts:
            line = columns.allocatable(part.name)[rows]
            left = np.minimum(columns.non_zero_free(part.name)[rows], line)
            left = np.maximum(np.maximum(left, 0) - part.demand, 0)
            has_it = line > 0
            if has_it.all():
                weights += part.weight
            else:
                weights += has_it * np.int64(part.weight)
            # Without an allocatable amount the score is 0, regardless of the divisor.
            total += (line - left if self.most else left) * BEST // np.maximum(line, 1) * part.weight
        return np.asarray(total // (weights if isinstance(weights, int) else np.maximum(weights, 1)))


@dataclass(frozen=True, slots=True)
class RequestedToCapacityRatio(Formula):
    """Score of the utilization that a pod causes, by a function; resources that score 0 do not count."""

    #: Score for each utilization from 0 to 100.
    table: tuple[int, ...] = ()

    def evaluate_row(self, columns: NodeColumns, row: int) -> int:
        total = weights = 0
        for part in self.parts:
            line = int(columns.allocatable(part.name)[row])
            if line > 0:
                used = line - min(int(columns.non_zero_free(part.name)[row]), line) + part.demand
                score = self.table[min(used * UTILIZATION_MAX // line, UTILIZATION_MAX)]
                total += score * part.weight
                weights += part.weight if score else 0
        return (2 * total + weights) // (2 * weights) if weights else 0  # rounded to nearest

    def _evaluate_rows(self, columns: NodeColumns, rows: Rows) -> Column:
        table: Column = np.array(self.table, dtype=np.int64)
        total: Column | int = 0
        weights: Column | int = 0
        for part in self.parts:
            line = columns.allocatable(part.name)[rows]
            used = line - np.minimum(columns.non_zero_free(part.name)[rows], line) + part.demand
            used = np.minimum(used, line)
            scores = table[used * UTILIZATION_MAX // np.maximum(line, 1)] * (line > 0)
            total += scores * part.weight
            weights += (scores > 0) * np.int64(part.weight)
        divisor = np.maximum(weights, 1)
        return np.asarray((2 * total + divisor) // (2 * divisor) * (weights > 0))


def tabulate_shape(shape: Sequence[ShapePoint]) -> tuple[int, ...]:
    """Return the scores of a function, linear between its points, for each utilization from 0 to 100."""
    scale = BEST // SHAPE_SCORE_MAX
    table = [shape[-1].score * scale] * (UTILIZATION_MAX + 1)
    before = shape[0]
    for point in shape:
        for used in range(before.utilization, point.utilization + 1):
            rise, width = (point.score - before.score) * scale, point.utilization - before.utilization
            step = abs(rise) * (used - before.utilization) // (width or 1)  # rounded towards zero
            table[used] = before.score * scale + (step if rise >= 0 else -step)
        before = point
    for used in range(shape[0].utilization):
        table[used] = shape[0].score * scale
    return tuple(table)


@dataclass(frozen=True, slots=True)
class Balanced(Formula):
    """Balanced allocation: 50 to 100, where 75 means that the pod does not change the balance."""

    def evaluate_row(self, columns: NodeColumns, row: int) -> int:
        before, after = [], []
        for part in self.parts:
            line = int(columns.allocatable(part.name)[row])
            if line > 0:
                free = min(int(columns.free(part.name)[row]), line)
                before.append((line - max(free, 0)) * PARTS // line)
                after.append((line - max(free - part.demand, 0)) * PARTS // line)
        return BEST // 2 + (HALF + _balance(after) - _balance(before)) // (2 * FINE)

    def _evaluate_rows(self, columns: NodeColumns, rows: Rows) -> Column:
        has_it, before, after = [], [], []
        for part in self.parts:
            line = columns.allocatable(part.name)[rows]
            free = np.maximum(np.minimum(columns.free(part.name)[rows], line), 0)
            divisor = np.maximum(line, 1)
            has_it.append(line > 0)
            before.append((line - free) * PARTS // divisor)
            after.append((line - np.maximum(free - part.demand, 0)) * PARTS // divisor)
        gain = _balances(after, has_it) - _balances(before, has_it)
        return BEST // 2 + (HALF + gain) // (2 * FINE)


def _balance(shares: list[int]) -> int:
    """Return the balance in thousandths: 100 if all shares are equal, 50 at the largest deviation."""
    count = len(shares)
    if count < 2:
        return BEST * FINE
    total = sum(shares)
    spread = isqrt(
        sum((count * share - total) ** 2 for share in shares) // count
    )  # count times the standard deviation
    return (count * PARTS - spread) * BEST * FINE // (count * PARTS)


def _balances(shares: list[Column], has_it: list[Mask]) -> Column:
    """Compute `_balance` for all nodes; resources that a node does not have do not count."""
    if len(shares) == 2:
        apart: Column = np.abs(shares[0] - shares[1]) * (has_it[0] & has_it[1])
        return (2 * PARTS - apart) * BEST * FINE // (2 * PARTS)
    count: Column = np.sum(has_it, axis=0, dtype=np.int64)
    total: Column = np.sum(shares, axis=0, dtype=np.int64)
    squares: Column = np.zeros_like(total)
    for share, here in zip(shares, has_it, strict=True):
        squares += (count * share - total) ** 2 * here
    divisor: Column = np.maximum(count, 1)
    spread = np.array([isqrt(square) for square in (squares // divisor).tolist()], dtype=np.int64)
    return (divisor * PARTS - spread) * BEST * FINE // (divisor * PARTS)
