"""Priority queue of keys with removal and reordering.

A heap in which outdated items stay until they reach the top or outnumber the others. All operations take
amortized O(log n) time.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TypeAlias

#: Sort key: smaller first, equal ones in insertion order.
Order: TypeAlias = "tuple[int, ...]"

_FEW = 64


class OrderedKeys:
    """Keys in the order of number tuples."""

    __slots__ = ("_number", "_valid", "heap")

    def __init__(self) -> None:
        self.heap: list[tuple[Order, int, str]] = []
        self._valid: dict[str, int] = {}
        self._number = 0

    def __len__(self) -> int:
        return len(self._valid)

    def __contains__(self, key: str) -> bool:
        return key in self._valid

    def put(self, key: str, order: Order) -> None:
        """Add a key, or change its order."""
        self._number += 1
        self._valid[key] = self._number
        heappush(self.heap, (order, self._number, key))
        if len(self.heap) > 2 * len(self._valid) + _FEW:
            self.heap = [item for item in self.heap if self._valid.get(item[2]) == item[1]]
            heapify(self.heap)

    def remove(self, key: str) -> bool:
        """Remove a key and return whether it was there."""
        return self._valid.pop(key, None) is not None

    def first(self) -> tuple[Order, str] | None:
        """Return the first key with its order."""
        while self.heap:
            order, number, key = self.heap[0]
            if self._valid.get(key) == number:
                return order, key
            heappop(self.heap)
        return None

    def first_key(self) -> str:
        """Return the first key; there must be one."""
        found = self.first()
        assert found is not None, "the queue is empty"
        return found[1]

    def pop(self) -> str | None:
        """Remove and return the first key."""
        found = self.first()
        if found is None:
            return None
        heappop(self.heap)
        del self._valid[found[1]]
        return found[1]

    def pop_up_to(self, limit: int) -> list[str]:
        """Remove and return the keys whose order starts with a number of at most `limit`, in order."""
        taken: list[str] = []
        while True:
            found = self.first()
            if found is None or found[0][0] > limit:
                return taken
            heappop(self.heap)
            del self._valid[found[1]]
            taken.append(found[1])
