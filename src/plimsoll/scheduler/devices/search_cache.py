"""Cache of device searches.

A failed search on a node stays failed for all pods with the same resource signature until capacity is freed
there, because allocating more never helps. Nodes with the same devices, allocations and headroom share their
results.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from plimsoll.api.core import Node
from plimsoll.api.resource import DeviceClass
from plimsoll.ledger.columns import Column
from plimsoll.ledger.verdict import VerdictCode
from plimsoll.scheduler.devices.exact import MAX_SCORE
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.reasons import NodeReason, render
from plimsoll.scheduler.snapshot.index import SnapshotIndex

#: Maximum number of resource signatures.
MAX_SIGNATURES = 256
#: Maximum number of node states per signature.
MAX_STATES = 1024
#: Generation of results that must not be reused.
NEVER = -1
#: Node state that determines a result: devices, their allocations, and headroom.
NodeState: TypeAlias = "tuple[object, object, object]"


class SearchCache(SnapshotIndex):
    """Results of device searches by resource signature and node.

    A refusal holds while more is allocated, although its reason may be outdated. `refused_at` is the
    generation of the node when the search failed; the refusal holds until that increases. `ranks` are upper
    bounds for the ranks of alternatives, as of the last search.
    """

    kinds = (DeviceClass,)

    def __init__(self) -> None:
        self._results: dict[bytes, SearchResults] = {}
        self._size = 0

    def resized(self, size: int) -> None:
        self._size = size
        self._results.clear()

    def object_changed(self, old: Any, new: Any) -> None:
        if isinstance(old, DeviceClass) or isinstance(new, DeviceClass):
            self._results.clear()  # results depend on device classes

    def clear(self) -> None:
        self._results.clear()

    def node_removed(self, row: int, node: Node) -> None:
        self.forget(row)

    def forget(self, row: int) -> None:
        """Drop the results for a node."""
        for results in self._results.values():
            results.clear(row)

    def results_for(self, key: bytes) -> SearchResults:
        known = self._results.pop(key, None) or SearchResults(self._size)
        self._results[key] = known  # least recently used first
        if len(self._results) > MAX_SIGNATURES:
            del self._results[next(iter(self._results))]
        return known


class SearchResults:
    """Results for one resource signature. Equal reasons share one number, so that they can be counted.

    Reasons name the claims of `owner`, the pod that was searched first.
    """

    __slots__ = ("_numbers", "kinds", "owner", "ranked_at", "ranks", "reasons", "refused_at", "states")

    def __init__(self, size: int) -> None:
        self.owner: PodInfo | None = None
        self.refused_at: Column = np.full(size, NEVER, dtype=np.int64)
        self.ranked_at: Column = np.full(size, NEVER, dtype=np.int64)
        self.ranks: Column = np.full(size, MAX_SCORE, dtype=np.int64)
        self.kinds: Column = np.zeros(size, dtype=np.int64)
        self.reasons: list[tuple[NodeReason, ...]] = []
        self._numbers: dict[tuple[tuple[str, VerdictCode], ...], int] = {}
        self.states: dict[NodeState, tuple[NodeReason, ...]] = {}

    def add_state(self, state: NodeState, reasons: tuple[NodeReason, ...]) -> None:
        """Record that nodes in this state refuse pods with this signature."""
        self.states[state] = reasons
        if len(self.states) > MAX_STATES:
            del self.states[next(iter(self.states))]

    def refuse(self, row: int, generation: int, reasons: tuple[NodeReason, ...]) -> None:
        key = tuple((render(reason), reason.code) for reason in reasons)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.reasons)
            self.reasons.append(reasons)
        self.refused_at[row] = generation
        self.kinds[row] = number

    def clear(self, row: int) -> None:
        self.refused_at[row] = self.ranked_at[row] = NEVER
