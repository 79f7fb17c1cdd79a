"""How full a node would be with a pod on it, as a score: least and most allocated, and balanced allocation.

Owns the formulas. Each has two forms, for one node in Python's whole numbers and for all nodes at once; a
test holds them equal. Both read the unified ledger: what claims charge counts as requests do.

DIFF: balanced allocation counts in hundred-thousandths, rounded down, instead of doubles: equal nodes score
alike on every machine, and no score is more than one away from upstream's
(test_balance_is_what_doubles_make_of_it).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt

import numpy as np

from plimsoll.ledger.columns import Column, Mask, NodeColumns
from plimsoll.schedule.score.scorer import BEST

#: The parts that the share of a node in use is counted in.
PARTS = 100_000
#: Columns with more than this are worked out place by place, in numbers that do not overflow.
LARGE = (1 << 63) // (2 * PARTS)


@dataclass(frozen=True, slots=True)
class Part:
    """A resource in a formula: what the pod takes of it, and what it weighs."""

    name: str
    demand: int
    weight: int = 1


@dataclass(frozen=True, slots=True)
class Formula:
    """A score from 0 to 100 by the resources of a node; resources that a node does not have are left out."""

    parts: tuple[Part, ...]

    def at(self, columns: NodeColumns, place: int) -> int:
        """The score of one node."""
        raise NotImplementedError

    def over(self, columns: NodeColumns) -> Column:
        """The scores of all nodes."""
        if any(p.demand > LARGE or columns.line(p.name).max(initial=0) > LARGE for p in self.parts):
            return np.array([self.at(columns, place) for place in range(columns.size)], dtype=np.int64)
        return self._over(columns)

    def _over(self, columns: NodeColumns) -> Column:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Allocated(Formula):
    """The more would be left, the better; or the less, if `most` is asked for."""

    most: bool = False

    def at(self, columns: NodeColumns, place: int) -> int:
        total = weights = 0
        for part in self.parts:
            line = int(columns.line(part.name)[place])
            if line > 0:
                left = max(min(int(columns.spare(part.name)[place]), line) - part.demand, 0)
                total += (line - left if self.most else left) * BEST // line * part.weight
                weights += part.weight
        return total // weights if weights else 0

    def _over(self, columns: NodeColumns) -> Column:
        total: Column = np.zeros(columns.size, dtype=np.int64)
        weights: Column = np.zeros(columns.size, dtype=np.int64)
        for part in self.parts:
            line = columns.line(part.name)
            left = np.maximum(np.clip(columns.spare(part.name), 0, line) - part.demand, 0)
            # Where there is no line there is nothing left either: the score is 0 whatever it is divided by.
            score = (line - left if self.most else left) * BEST // np.maximum(line, 1)
            total += score * part.weight
            weights += (line > 0) * np.int64(part.weight)
        return total // np.maximum(weights, 1)


@dataclass(frozen=True, slots=True)
class Balanced(Formula):
    """The more the pod evens out how full the resources are, the better: 50 to 100, no change being 75."""

    def at(self, columns: NodeColumns, place: int) -> int:
        before, after = [], []
        for part in self.parts:
            line = int(columns.line(part.name)[place])
            if line > 0:
                free = min(int(columns.free(part.name)[place]), line)
                before.append((line - max(free, 0)) * PARTS // line)
                after.append((line - max(free - part.demand, 0)) * PARTS // line)
        return BEST // 2 + (BEST // 2 + _balance(after) - _balance(before)) // 2

    def _over(self, columns: NodeColumns) -> Column:
        there, before, after = [], [], []
        for part in self.parts:
            line = columns.line(part.name)
            free = np.clip(columns.free(part.name), 0, line)
            divisor = np.maximum(line, 1)
            there.append(line > 0)
            before.append((line - free) * PARTS // divisor)
            after.append((line - np.maximum(free - part.demand, 0)) * PARTS // divisor)
        gain = _balances(after, there, columns.size) - _balances(before, there, columns.size)
        return BEST // 2 + (BEST // 2 + gain) // 2


def _balance(shares: list[int]) -> int:
    """100 if all shares are equal, 50 if they are as far apart as can be: by their standard deviation."""
    count = len(shares)
    if count < 2:
        return BEST
    total = sum(shares)
    spread = isqrt(sum((count * share - total) ** 2 for share in shares) // count)  # count x the deviation
    return (count * PARTS - spread) * BEST // (count * PARTS)


def _balances(shares: list[Column], there: list[Mask], size: int) -> Column:
    if len(shares) < 2:
        return np.full(size, BEST, dtype=np.int64)
    if len(shares) == 2:
        apart: Column = np.abs(shares[0] - shares[1]) * (there[0] & there[1])
        return (2 * PARTS - apart) * BEST // (2 * PARTS)
    count: Column = np.sum(there, axis=0, dtype=np.int64)
    total: Column = np.sum(shares, axis=0, dtype=np.int64)  # what is not there has a share of 0
    squares: Column = np.zeros(size, dtype=np.int64)
    for share, here in zip(shares, there, strict=True):
        squares += (count * share - total) ** 2 * here
    divisor: Column = np.maximum(count, 1)
    spread = np.array([isqrt(square) for square in (squares // divisor).tolist()], dtype=np.int64)
    return (divisor * PARTS - spread) * BEST // (divisor * PARTS)
