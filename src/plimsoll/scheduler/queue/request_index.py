"""Waiting pods indexed by CPU request, to find those that fit into freed capacity.

One sorted list per priority, because the capacity that counts depends on it: a pod may preempt others.
Requests that are too large are not visited.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator


class RequestIndex:
    """Keys by priority and CPU request."""

    __slots__ = ("_lists",)

    def __init__(self) -> None:
        self._lists: dict[int, list[tuple[int, bytes]]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._lists.values()))

    def add(self, key: bytes, priority: int, size: int) -> None:
        insort(self._lists.setdefault(priority, []), (size, key))

    def remove(self, key: bytes, priority: int, size: int) -> None:
        found = self._lists[priority]
        del found[bisect_left(found, (size, key))]
        if not found:
            del self._lists[priority]

    def up_to(self, limit: Callable[[int], int]) -> Iterator[bytes]:
        """Return the keys whose request is at most the limit for their priority."""
        for priority, found in self._lists.items():
            for _, key in found[: bisect_right(found, limit(priority), key=_size)]:
                yield key


def _size(item: tuple[int, bytes]) -> int:
    return item[0]
