"""Which node a pool of devices belongs to.

Owns the look-up that tells what a released device concerns: one node, or possibly all of them.
"""

from __future__ import annotations

from collections import Counter

from plimsoll.api.resource import ResourceSlice


class PoolPlaces:
    """Pools and the nodes their slices name."""

    __slots__ = ("_nodes",)

    def __init__(self) -> None:
        self._nodes: dict[tuple[str, str], Counter[str]] = {}

    def note(self, slice: ResourceSlice, added: bool) -> str:
        """A slice was added or taken away; the node it concerns, or "" if that may be any."""
        key, node = (slice.spec.driver, slice.spec.pool.name), slice.spec.node_name or ""
        counts = self._nodes.setdefault(key, Counter())
        counts[node] += 1 if added else -1
        if not counts[node]:
            del counts[node]
        if not counts:
            del self._nodes[key]
        return node

    def node_of(self, driver: str, pool: str) -> str:
        """The only node with slices of a pool, or "" if there is none or more than one."""
        counts = self._nodes.get((driver, pool))
        return next(iter(counts)) if counts is not None and len(counts) == 1 else ""
