"""Base class of filters: a bulk form over all nodes and a pointwise form for one node.

A filter is prepared once per attempt. Scheduling uses `filter`, explanations use `filter_node`, and a test
holds the two equal. `count_reasons` and `resolvable_nodes` summarize the excluded nodes; rules override the
simple implementations here with faster ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

import numpy as np

from plimsoll.ledger.columns import Mask
from plimsoll.scheduler.filters.queueing_hint import QueueingHint
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.reasons import NodeReason, ReasonCounts
from plimsoll.scheduler.snapshot.snapshot import Snapshot


class Filter(QueueingHint):
    """One scheduling rule, applied to one pod on one snapshot."""

    #: Whether the result for a node depends on pods that are on it or on other nodes.
    depends_on_pods: ClassVar[bool] = False

    def __init__(self, pod_info: PodInfo, snapshot: Snapshot) -> None:
        self.pod_info = pod_info
        self.snapshot = snapshot

    @classmethod
    def pre_filter(cls, pod_info: PodInfo, snapshot: Snapshot) -> Self | NodeReason | None:
        """Prepare the filter for a pod; return None if the rule does not apply, a reason if no node fits."""
        return cls(pod_info, snapshot)

    def filter(self) -> Mask:
        """Return the nodes that pass; rows without a node have an arbitrary value."""
        raise NotImplementedError

    def filter_node(self, row: int) -> tuple[NodeReason, ...]:
        """Return the reasons why a node does not pass; empty if it does."""
        raise NotImplementedError

    def count_reasons(self, removed: Mask) -> Sequence[tuple[NodeReason, int]]:
        """Count the reasons for excluded nodes."""
        counts = ReasonCounts()
        for row in np.flatnonzero(removed).tolist():
            for reason in self.filter_node(row):
                counts.add(reason)
        return counts.items()

    def resolvable_nodes(self, removed: Mask) -> Mask:
        """Return the excluded nodes that would pass if other pods were removed."""
        mask = np.zeros_like(removed)
        for row in np.flatnonzero(removed).tolist():
            mask[row] = all(reason.resolvable for reason in self.filter_node(row))
        return mask


class SingleReasonFilter(Filter):
    """Filter that gives the same reason for every node it rejects."""

    reason: ClassVar[NodeReason]

    def count_reasons(self, removed: Mask) -> Sequence[tuple[NodeReason, int]]:
        count = int(np.count_nonzero(removed))
        return [(self.reason, count)] if count else []

    def resolvable_nodes(self, removed: Mask) -> Mask:
        return removed.copy() if self.reason.resolvable else np.zeros_like(removed)
