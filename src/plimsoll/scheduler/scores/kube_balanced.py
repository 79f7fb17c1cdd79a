"""Balanced allocation and image sizes exactly as kube-scheduler 1.36 computes them, in float64.

For predictions of kube-scheduler and its configuration file. The formula of this scheduler is
`formulas.Balanced`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np

from plimsoll.ledger.columns import Column, NodeColumns
from plimsoll.scheduler.scores.formulas import Formula
from plimsoll.scheduler.scores.scorer import BEST
from plimsoll.scheduler.snapshot.node_query_cache import Rows


@dataclass(frozen=True, slots=True)
class KubeBalanced(Formula):
    """Balanced allocation in float64."""

    def evaluate_row(self, columns: NodeColumns, row: int) -> int:
        before, after = [], []
        for part in self.parts:
            line = int(columns.allocatable(part.name)[row])
            if line > 0:
                used = line - min(int(columns.free(part.name)[row]), line)
                before.append(min(used / line, 1.0))
                after.append(min((used + part.demand) / line, 1.0))
        return BEST // 2 + (BEST // 2 + _balance_float64(after) - _balance_float64(before)) // 2

    def _evaluate_rows(self, columns: NodeColumns, rows: Rows) -> Column:
        some = range(columns.size)[rows] if isinstance(rows, slice) else rows.tolist()
        return np.array([self.evaluate_row(columns, row) for row in some], dtype=np.int64)


def _balance_float64(shares: list[float]) -> int:
    deviation = 0.0
    if len(shares) == 2:
        deviation = abs((shares[0] - shares[1]) / 2)
    elif len(shares) > 2:
        # Added one by one, as in Go: Python's `sum` of floats is more exact.
        total = squares = 0.0
        for share in shares:
            total += share
        mean = total / len(shares)
        for share in shares:
            squares += (share - mean) * (share - mean)
        deviation = sqrt(squares / len(shares))
    return int((1 - deviation) * BEST)


def scale_sizes_float64(sizes: Column, having: int, nodes: int) -> Column:
    """Return image sizes in proportion to the number of nodes that have the image."""
    return (sizes.astype(np.float64) * (having / nodes)).astype(np.int64)
