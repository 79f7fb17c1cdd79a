"""Generations: when something was last freed, in the cluster and on each node.

A result that was refused at a generation holds until the generation of its node is higher.
"""

from __future__ import annotations

import numpy as np

from plimsoll.ledger.columns import Column


class Generations:
    """Number of the last change that may have freed something, and that of each row.

    `rows` counts every change; `device_rows` those that the search for devices on a node can read: not the
    labels of other pods, for example, which change when a pod is bound (PodTopologyLabels).
    """

    __slots__ = ("device_rows", "last", "rows")

    def __init__(self, size: int) -> None:
        self.last = 0
        self.rows: Column = np.zeros(size, dtype=np.int64)
        self.device_rows: Column = np.zeros(size, dtype=np.int64)

    def grow(self, size: int) -> None:
        """Add rows up to this number."""
        more = np.zeros(size - len(self.rows), dtype=np.int64)
        self.rows = np.concatenate([self.rows, more])
        self.device_rows = np.concatenate([self.device_rows, more])

    def bump(self, row: int | None, *, devices: bool = True) -> None:
        """Count a change on one row, or (None) on all; `devices` if it may matter to a search for devices."""
        self.last += 1
        for column in (self.rows, self.device_rows) if devices else (self.rows,):
            column[slice(None) if row is None else row] = self.last

    def restore(self, before: Generations) -> None:
        """Return to the state of a copy."""
        self.last = before.last
        self.rows[:], self.device_rows[:] = before.rows, before.device_rows

    def copy(self) -> Generations:
        found = Generations(0)
        found.last, found.rows, found.device_rows = self.last, self.rows.copy(), self.device_rows.copy()
        return found
