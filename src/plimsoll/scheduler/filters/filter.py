"""What all rules have in common: a form for all nodes at once, and one for a single node.

Owns `Filter`. A filter is read from a task once per attempt; `feasible` is what scheduling uses, `why_not`
is what explaining uses, and a test holds the two equal. `tally` and `resolvable` sum up why nodes were left
out; what stands here is the naive form of both, which rules replace by something quicker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar, Self

import numpy as np

from plimsoll.ledger.columns import Mask
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.reasons import NodeReason, Rule, render
from plimsoll.scheduler.snapshot.snapshot import Snapshot


class Filter:
    """One rule, applied to one task on one snapshot."""

    rule: ClassVar[Rule]

    def __init__(self, pod_info: PodInfo, snapshot: Snapshot) -> None:
        self.pod_info = pod_info
        self.snapshot = snapshot

    @classmethod
    def pre_filter(cls, pod_info: PodInfo, snapshot: Snapshot) -> Self | NodeReason | None:
        """The filter for this task; None if the rule does not concern it; a reason if no node will do."""
        return cls(pod_info, snapshot)

    def filter(self) -> Mask:
        """The places that pass, over all places; what it says of places without a node does not matter."""
        raise NotImplementedError

    def filter_node(self, row: int) -> tuple[NodeReason, ...]:
        """Why a node does not pass; empty if it does."""
        raise NotImplementedError

    def count_reasons(self, removed: Mask) -> Sequence[tuple[NodeReason, int]]:
        """The reasons for these places, alike ones counted together."""
        counts: Counter[str] = Counter()
        first: dict[str, NodeReason] = {}
        for row in np.flatnonzero(removed).tolist():
            for reason in self.filter_node(row):
                text = render(reason)
                first.setdefault(text, reason)
                counts[text] += 1
        return [(first[text], count) for text, count in counts.items()]

    def resolvable_nodes(self, removed: Mask) -> Mask:
        """Those of these places that would pass if other pods were gone."""
        mask = np.zeros_like(removed)
        for row in np.flatnonzero(removed).tolist():
            mask[row] = all(reason.resolvable for reason in self.filter_node(row))
        return mask
