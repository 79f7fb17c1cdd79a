"""Keys in the order of numbers: who is first.

Owns `OrderedKeys`, a heap whose members can be taken out and moved: an item that is not valid any more stays
in the heap until it comes up, or until there are more such items than others. Putting, dropping and taking
cost O(log n), averaged over many.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TypeAlias

#: What keys are ordered by; smaller comes first, equal ones in the order in which they were put.
Order: TypeAlias = "tuple[int, ...]"

_FEW = 64


class OrderedKeys:
    """Keys, each with its order; the first is at hand."""

    __slots__ = ("_heap", "_number", "_valid")

    def __init__(self) -> None:
        self._heap: list[tuple[Order, int, str]] = []
        self._valid: dict[str, int] = {}
        self._number = 0

    def __len__(self) -> int:
        return len(self._valid)

    def __contains__(self, key: str) -> bool:
        return key in self._valid

    def put(self, key: str, order: Order) -> None:
        """Put a key in, or give it another order."""
        self._number += 1
        self._valid[key] = self._number
        heappush(self._heap, (order, self._number, key))
        if len(self._heap) > 2 * len(self._valid) + _FEW:
            self._heap = [item for item in self._heap if self._valid.get(item[2]) == item[1]]
            heapify(self._heap)

    def drop(self, key: str) -> bool:
        """Take a key out, wherever it is; whether it was there."""
        return self._valid.pop(key, None) is not None

    def first(self) -> tuple[Order, str] | None:
        """The first key with its order."""
        while self._heap:
            order, number, key = self._heap[0]
            if self._valid.get(key) == number:
                return order, key
            heappop(self._heap)
        return None

    def first_key(self) -> str:
        """The first key; there must be one."""
        found = self.first()
        assert found is not None, "nothing is here"
        return found[1]

    def take(self) -> str | None:
        """Take out the first key."""
        found = self.first()
        if found is None:
            return None
        heappop(self._heap)
        del self._valid[found[1]]
        return found[1]

    def take_up_to(self, limit: int) -> list[str]:
        """Take out the keys whose order begins with a number that is at most `limit`, in order."""
        taken: list[str] = []
        while True:
            found = self.first()
            if found is None or found[0][0] > limit:
                return taken
            heappop(self._heap)
            del self._valid[found[1]]
            taken.append(found[1])
