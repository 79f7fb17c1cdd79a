"""Things by their size: those that are small enough for a room.

Owns `Sizes`, sorted lists, one for each priority, because what counts as room depends on that: a pod may take
the place of less important ones. What is too large is not even looked at.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator


class RequestIndex:
    """Keys with a size and a priority."""

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
        """The keys of at most the size that is the limit for their priority."""
        for priority, found in self._lists.items():
            for _, key in found[: bisect_right(found, limit(priority), key=_size)]:
                yield key


def _size(item: tuple[int, bytes]) -> int:
    return item[0]
