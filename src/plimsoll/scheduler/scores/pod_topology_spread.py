"""Score of topology spread constraints with ScheduleAnyway.

Matching pods in a domain are weighted by the logarithm of the number of domains, so that zones do not
outweigh hosts; maxSkew is added, which reduces differences. Nodes without all topology labels score 0, except
with the default constraints of Kubernetes: then the labels that a node has count.
"""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar

import numpy as np

from plimsoll.api.label_selection import SelectorProblem
from plimsoll.ledger.columns import Column, Mask
from plimsoll.scheduler.filters.spread_counts import SpreadState
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.scores.scorer import BEST, Scorer
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.scheduler.topology.constraints import SCHEDULE_ANYWAY, SpreadConstraint
from plimsoll.scheduler.topology.default_constraints import is_system_defaulted, spread_constraints

HOSTNAME = "kubernetes.io/hostname"
#: Logarithms are integers in units of 1/2**_BITS.
_BITS = 36


class PodTopologySpreadScorer(Scorer):
    """Scorer of ScheduleAnyway constraints."""

    name: ClassVar[str] = "PodTopologySpread"

    def __init__(
        self,
        pod_info: PodInfo,
        snapshot: Snapshot,
        settings: SchedulerProfile,
        constraints: tuple[SpreadConstraint, ...],
    ) -> None:
        super().__init__(pod_info, snapshot, settings)
        needs_all_labels = not is_system_defaulted(pod_info.pod, settings)
        self._spread = SpreadState(pod_info, snapshot, constraints, needs_all_labels=needs_all_labels)

    @classmethod
    def pre_score(
        cls, pod_info: PodInfo, snapshot: Snapshot, settings: SchedulerProfile
    ) -> PodTopologySpreadScorer | None:
        constraints = spread_constraints(pod_info.with_profile(settings), snapshot, SCHEDULE_ANYWAY)
        if isinstance(constraints, SelectorProblem) or not constraints:
            return None
        return cls(pod_info, snapshot, settings, constraints)

    def scores(self, feasible: Mask) -> Column:
        scored = feasible & self._spread.labeled
        raw = self._raw(scored)
        most = int(raw.max(initial=0, where=scored))
        if not most:
            return np.where(scored, BEST, 0)
        least = int(raw.min(initial=2**62, where=scored))
        return np.where(scored, BEST * (most + least - raw) // most, 0)

    def _raw(self, scored: Mask) -> Column:
        total: Column = np.zeros(self.snapshot.size, dtype=np.int64)
        for number, constraint in enumerate(self._spread.constraints):
            total += self._pods(number, constraint) * self._weight(number, scored)
        return _rounded(total) + self._tolerance()

    def _pods(self, number: int, constraint: SpreadConstraint) -> Column:
        """Return the number of matching pods for each node."""
        if constraint.topology_key == HOSTNAME:  # every node is its own domain, regardless of policies
            counts = self._spread.counts(constraint).as_column(self.snapshot.size)
            return counts * self._spread.columns[number].known
        return self._spread.sums(number)[self._spread.columns[number].ids]

    def _weight(self, number: int, scored: Mask) -> int:
        column = self._spread.columns[number]
        if column.key == HOSTNAME:
            return logarithm(int(np.count_nonzero(scored)) + 2)
        # Nodes without the label are one more domain.
        domains = int(np.count_nonzero(column.present(scored))) + bool((scored & ~column.known).any())
        return logarithm(domains + 2)

    def _tolerance(self) -> Column:
        """Return the sum of the tolerated skews for each node."""
        total: Column = np.zeros(self.snapshot.size, dtype=np.int64)
        for column, constraint in zip(self._spread.columns, self._spread.constraints, strict=True):
            total += column.known * np.int64(constraint.max_skew - 1)
        return total


def _rounded(parts: Column) -> Column:
    """Round to the nearest integer; halves are rounded up."""
    return (parts + (1 << (_BITS - 1))) >> _BITS


@lru_cache(maxsize=1 << 14)
def logarithm(number: int) -> int:
    """Return the natural logarithm of an integer >= 1, in units of 1/2**_BITS, rounded to nearest.

    The number is a power of two times a fraction y from 1 to 2; the logarithm of each is twice the series z +
    z**3/3 + z**5/5 + ..., where z = (y - 1) / (y + 1), with some bits to spare.
    """
    exponent = number.bit_length() - 1
    parts = exponent * _series(1, 3) + _series(number - (1 << exponent), number + (1 << exponent))
    return (parts + (1 << (_SPARE - 1))) >> _SPARE


_SPARE = 24


def _series(top: int, bottom: int) -> int:
    """Compute 2 * (z + z**3/3 + ...) for z = top / bottom, which is at most 1/3."""
    power = (top << (_BITS + _SPARE)) // bottom
    total, odd = 0, 1
    while power:
        total += power // odd
        power = power * top * top // (bottom * bottom)
        odd += 2
    return 2 * total
