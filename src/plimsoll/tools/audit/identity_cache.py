"""`IdentityCache`: values computed once for parts that many objects of a cluster state share.

Machines of one type share their devices, and claims of one template their spec (`cluster_state/
shared_parts.py`). What is computed from such a part is found again by the identity of the part, which costs
less than comparing contents.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

V = TypeVar("V")


class IdentityCache(Generic[V]):
    """Values by the identity of an immutable part, which is kept alive so that no other part gets it."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[tuple[int, Hashable], tuple[object, V]] = {}

    def get(self, part: object, make: Callable[[], V], more: Hashable = None) -> V:
        """Return the value of a part, computing it on first use; `more` is what else it depends on."""
        key = (id(part), more)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = (part, make())
        return known[1]
