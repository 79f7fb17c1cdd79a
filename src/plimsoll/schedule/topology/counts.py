"""How many there are at each place, few places or all of them.

Owns `PlaceCounts`: whole numbers by place, kept in a dictionary while there are few and in a column when
there are many, so that thousands of rules with a pod each cost little and one rule with thousands of pods
is still counted at once.
"""

from __future__ import annotations

import numpy as np

from plimsoll.ledger.columns import Column

_FEW = 32


class PlaceCounts:
    """Amounts by place; places that are not mentioned have none."""

    __slots__ = ("_column", "_few")

    def __init__(self) -> None:
        self._few: dict[int, int] = {}
        self._column: Column | None = None

    def add(self, place: int, amount: int) -> None:
        if self._column is not None:
            if place >= len(self._column):
                more = np.zeros(max(place + 1, len(self._column)), dtype=np.int64)
                self._column = np.concatenate([self._column, more])
            self._column[place] += amount
            return
        now = self._few.get(place, 0) + amount
        if now:
            self._few[place] = now
            if len(self._few) > _FEW:
                self._spread()
        else:
            self._few.pop(place, None)

    def _spread(self) -> None:
        self._column = np.zeros(max(self._few) + 1, dtype=np.int64)
        for place, amount in self._few.items():
            self._column[place] = amount
        self._few = {}

    def at(self, place: int) -> int:
        if self._column is None:
            return self._few.get(place, 0)
        return int(self._column[place]) if place < len(self._column) else 0

    def nonzero(self) -> tuple[Column, Column]:
        """The places that have any, and how many each."""
        if self._column is not None:
            places = np.flatnonzero(self._column)
            return places, self._column[places]
        many = len(self._few)
        places = np.fromiter(self._few.keys(), dtype=np.int64, count=many)
        return places, np.fromiter(self._few.values(), dtype=np.int64, count=many)

    def spread_over(self, size: int) -> Column:
        """The amounts as a column over all places."""
        column = np.zeros(size, dtype=np.int64)
        places, amounts = self.nonzero()
        column[places] = amounts
        return column

    def as_dict(self) -> dict[int, int]:
        places, amounts = self.nonzero()
        return dict(sorted(zip(places.tolist(), amounts.tolist(), strict=True)))
