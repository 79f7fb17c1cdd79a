"""PodTopologySpread: constraints with `whenUnsatisfiable: DoNotSchedule`, of the pod or by default.

Domains are those of nodes that have all topology labels and that the constraint's policies include. With
fewer domains than `minDomains`, the global minimum is 0. Other nodes are evaluated as well: their domain has
no matching pods.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar

import numpy as np

from plimsoll.api.core import Pod
from plimsoll.api.label_selection import SelectorProblem, compile_label_selector
from plimsoll.api.quantity import INT32_MAX
from plimsoll.ledger.columns import Column, Mask
from plimsoll.ledger.verdict import VerdictCode
from plimsoll.scheduler.events import ClusterEvent, EventKind, NodeUpdate, PodUpdate
from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.filters.queueing_hint import WaitingPod
from plimsoll.scheduler.filters.spread_counts import SpreadState
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.reasons import NodeReason, ReasonMessage, Rule, SharedMessage
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.scheduler.topology.constraints import (
    DO_NOT_SCHEDULE,
    SpreadConstraint,
)
from plimsoll.scheduler.topology.counts import NO_DOMAIN
from plimsoll.scheduler.topology.default_constraints import spread_constraints


class PodTopologySpreadMessage(ReasonMessage):
    """Messages of PodTopologySpread."""

    SKEW = "node(s) didn't match pod topology spread constraints"
    MISSING_LABEL = "node(s) didn't match pod topology spread constraints (missing required label)"


_NO_LABEL = NodeReason(Rule.SPREAD, PodTopologySpreadMessage.MISSING_LABEL, VerdictCode.UNRESOLVABLE)
_SKEW = NodeReason(Rule.SPREAD, PodTopologySpreadMessage.SKEW, VerdictCode.UNSCHEDULABLE)


class PodTopologySpreadFilter(Filter):
    """Filter by the spread constraints that must hold."""

    rule: ClassVar[Rule] = Rule.SPREAD
    depends_on_pods = True
    is_node_local = False
    events = frozenset(
        {
            EventKind.NODE_ADDED,
            EventKind.NODE_REMOVED,
            NodeUpdate.LABELS,
            NodeUpdate.TAINTS,
            EventKind.POD_ASSIGNED,
            EventKind.POD_DELETED,
            PodUpdate.LABELS,
            PodUpdate.TERMINATING,
        }
    )
    pod_fields = frozenset(
        {"labels", "tolerations", "node_selector", "affinity", "topology_spread_constraints"}
    )

    def __init__(
        self, pod_info: PodInfo, snapshot: Snapshot, constraints: tuple[SpreadConstraint, ...]
    ) -> None:
        super().__init__(pod_info, snapshot)
        self._spread = SpreadState(pod_info, snapshot, constraints)

    @classmethod
    def pre_filter(cls, pod_info: PodInfo, snapshot: Snapshot) -> PodTopologySpreadFilter | NodeReason | None:
        constraints = spread_constraints(pod_info, snapshot, DO_NOT_SCHEDULE)
        if isinstance(constraints, SelectorProblem):
            return NodeReason.unresolvable(cls.rule, SharedMessage.INVALID_POD, text=str(constraints))
        return cls(pod_info, snapshot, constraints) if constraints else None

    # -- all nodes at once

    def filter(self) -> Mask:
        no_label, skewed = self._refusals
        return ~(no_label | skewed)

    @cached_property
    def _refusals(self) -> tuple[Mask, Mask]:
        """Masks of nodes without a topology label, and of nodes that would exceed the skew, in constraint
        order.
        """
        no_label = np.zeros(self.snapshot.size, dtype=np.bool_)
        skewed = no_label.copy()
        for number, constraint in enumerate(self._spread.constraints):
            column = self._spread.columns[number]
            sums, most = self._limit(number, constraint)
            no_label |= ~column.known & ~skewed
            skewed |= (sums[column.ids] > most) & ~no_label
        return no_label, skewed

    def _limit(self, number: int, constraint: SpreadConstraint) -> tuple[Column, int]:
        """Return the matching pods in each domain, and the highest number that allows one more."""
        sums, present = self._spread.sums(number), self._spread.present(number)
        enough = int(np.count_nonzero(present)) >= constraint.min_domains
        least = int(sums.min(initial=INT32_MAX, where=present)) if enough else 0
        return sums, constraint.max_skew + least - constraint.own

    # -- one node

    def filter_node(self, row: int) -> tuple[NodeReason, ...]:
        for number, constraint in enumerate(self._spread.constraints):
            domain = self._spread.columns[number].ids[row]
            if domain == NO_DOMAIN:
                return (_NO_LABEL,)
            sums, most = self._limit(number, constraint)
            if sums[domain] > most:
                return (_SKEW,)
        return ()

    # -- summary

    def count_reasons(self, removed: Mask) -> Sequence[tuple[NodeReason, int]]:
        no_label, skewed = self._refusals
        counts = ((_NO_LABEL, removed & no_label), (_SKEW, removed & skewed))
        return [(reason, int(np.count_nonzero(mask))) for reason, mask in counts if mask.any()]

    def resolvable_nodes(self, removed: Mask) -> Mask:
        return removed & ~self._refusals[0]

    # -- queueing hint

    @classmethod
    def queueing_hint(cls, event: ClusterEvent, waiting_pod: WaitingPod) -> bool:
        match event.kind:
            case EventKind.POD_ASSIGNED:
                return _counts_pod(waiting_pod, event.new)
            case EventKind.POD_DELETED:
                return _counts_pod(waiting_pod, event.old)
            case EventKind.POD_UPDATED:
                return any(_counts_pod(waiting_pod, state) for state in (event.new, event.old))
        return True  # a node may add or remove a domain

    @classmethod
    def hint_key(cls, pod: Pod) -> object:
        return pod.metadata.namespace, pod.metadata.labels


def _counts_pod(waiting_pod: WaitingPod, other: Pod) -> bool:
    """Return whether a spread constraint of a pod counts another pod."""
    pod = waiting_pod.pod
    if pod.metadata.namespace != other.metadata.namespace:
        return False
    if not pod.spec.topology_spread_constraints:
        # The selector of default constraints is not known here.
        defaults = waiting_pod.profile.default_constraints or ()
        return any(constraint.when_unsatisfiable == DO_NOT_SCHEDULE for constraint in defaults)
    for constraint in pod.spec.topology_spread_constraints:
        selector = compile_label_selector(constraint.label_selector)
        if isinstance(selector, SelectorProblem) or selector.matches(other.metadata.labels):
            return True
    return False
