"""InterPodAffinity: required pod affinity and anti-affinity.

Covers the pod's own required terms and the required anti-affinity of existing pods. The first pod of a group
with affinity to itself may use any node that has the topology labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar

import numpy as np

from plimsoll.api.core import Pod
from plimsoll.ledger.columns import Mask
from plimsoll.ledger.verdict import VerdictCode
from plimsoll.scheduler.events import ClusterEvent, EventKind, NodeUpdate, PodUpdate
from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.filters.queueing_hint import WaitingPod
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.reasons import NodeReason, ReasonMessage, Rule, SharedMessage
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.scheduler.topology.affinity_index import AffinityTermIndex
from plimsoll.scheduler.topology.affinity_terms import AffinityTerm, AffinityTerms, read_terms
from plimsoll.scheduler.topology.counts import NO_DOMAIN, NodeCounts
from plimsoll.scheduler.topology.domains import TopologyDomains
from plimsoll.scheduler.topology.match_counts import LabelGroup, MatchCounts, PodMatcher


class InterPodAffinityMessage(ReasonMessage):
    """Messages of InterPodAffinity."""

    AFFINITY = "node(s) didn't match pod affinity rules"
    ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
    EXISTING_ANTI_AFFINITY = "node(s) didn't satisfy existing pods anti-affinity rules"


_AFFINITY = NodeReason(Rule.INTER_POD, InterPodAffinityMessage.AFFINITY, VerdictCode.UNRESOLVABLE)
_ANTI_AFFINITY = NodeReason(Rule.INTER_POD, InterPodAffinityMessage.ANTI_AFFINITY, VerdictCode.UNSCHEDULABLE)
_EXISTING = NodeReason(
    Rule.INTER_POD, InterPodAffinityMessage.EXISTING_ANTI_AFFINITY, VerdictCode.UNSCHEDULABLE
)


class InterPodAffinityFilter(Filter):
    """Filter by required affinity between the pod and existing pods."""

    rule: ClassVar[Rule] = Rule.INTER_POD
    depends_on_pods = True
    is_node_local = False
    events = frozenset(
        {
            EventKind.NODE_ADDED,
            EventKind.NODE_REMOVED,
            NodeUpdate.LABELS,
            EventKind.POD_ASSIGNED,
            EventKind.POD_DELETED,
            PodUpdate.LABELS,
            EventKind.NAMESPACE_CHANGED,
        }
    )
    pod_fields = frozenset({"labels", "affinity"})

    def __init__(
        self,
        pod_info: PodInfo,
        snapshot: Snapshot,
        terms: AffinityTerms,
        existing: Sequence[tuple[AffinityTerm, NodeCounts]],
    ) -> None:
        super().__init__(pod_info, snapshot)
        self._terms = terms
        self._existing = existing
        self._domains = snapshot.index(TopologyDomains)

    @classmethod
    def pre_filter(cls, pod_info: PodInfo, snapshot: Snapshot) -> InterPodAffinityFilter | NodeReason | None:
        terms = read_terms(pod_info.pod)
        if terms.problem:
            return NodeReason.unresolvable(cls.rule, SharedMessage.INVALID_POD, text=terms.problem)
        index = snapshot.index(AffinityTermIndex)
        existing = list(index.anti_affinity.matching(pod_info.pod, index.namespaces))
        if not (terms.affinity or terms.anti_affinity or existing):
            return None
        return cls(pod_info, snapshot, terms, existing)

    # -- all nodes at once

    def filter(self) -> Mask:
        affinity, anti_affinity, existing = self._refusals
        return ~(affinity | anti_affinity | existing)

    @cached_property
    def _refusals(self) -> tuple[Mask, Mask, Mask]:
        """Masks of nodes that violate the pod's affinity, its anti-affinity, and existing pods'
        anti-affinity.
        """
        return (
            self._without_affinity_match(),
            self._with_matching_pods(self._anti_affinity_counts),
            self._with_matching_pods(self._existing),
        )

    def _without_affinity_match(self) -> Mask:
        terms = self._terms.affinity
        no_nodes = np.zeros(self.snapshot.size, dtype=np.bool_)
        if not terms:
            return no_nodes
        counts = self._affinity_counts
        unmatched, no_label, no_matches = no_nodes, no_nodes, True
        for term in terms:
            column = self._domains.column(term.topology_key)
            sums = counts.sums(column)
            no_matches = no_matches and not sums.any()
            unmatched = unmatched | (sums[column.ids] == 0)
            no_label = no_label | ~column.known
        return no_label if no_matches and self._matches_itself else unmatched

    def _with_matching_pods(self, terms: Sequence[tuple[AffinityTerm, NodeCounts]]) -> Mask:
        refused = np.zeros(self.snapshot.size, dtype=np.bool_)
        for term, counts in terms:
            column = self._domains.column(term.topology_key)
            refused |= counts.sums(column)[column.ids] > 0
        return refused

    @cached_property
    def _affinity_counts(self) -> NodeCounts:
        """Counts of the pods that match all affinity terms."""
        return self.snapshot.index(MatchCounts).count(self._affinity_matcher)

    @cached_property
    def _affinity_matcher(self) -> PodMatcher:
        return PodMatcher(tuple(term.selector for term in self._terms.affinity))

    @cached_property
    def _matches_itself(self) -> bool:
        return self._affinity_matcher.matches(
            LabelGroup(self.pod_info.pod), self.snapshot.index(MatchCounts).namespaces
        )

    @cached_property
    def _anti_affinity_counts(self) -> Sequence[tuple[AffinityTerm, NodeCounts]]:
        """Counts of the pods that match each anti-affinity term."""
        if not self._terms.anti_affinity:
            return ()
        index = self.snapshot.index(MatchCounts)
        return [(term, index.count(PodMatcher((term.selector,)))) for term in self._terms.anti_affinity]

    # -- one node

    def filter_node(self, row: int) -> tuple[NodeReason, ...]:
        if self._terms.affinity and not self._satisfies_affinity(row):
            return (_AFFINITY,)
        for others, reason in ((self._anti_affinity_counts, _ANTI_AFFINITY), (self._existing, _EXISTING)):
            for term, counts in others:
                if counts.sum_at(self._domains.column(term.topology_key), row):
                    return (reason,)
        return ()

    def _satisfies_affinity(self, row: int) -> bool:
        terms, counts = self._terms.affinity, self._affinity_counts
        columns = [self._domains.column(term.topology_key) for term in terms]
        if any(column.ids[row] == NO_DOMAIN for column in columns):
            return False
        if all(counts.sum_at(column, row) for column in columns):
            return True
        return self._matches_itself and not any(counts.sums(column).any() for column in columns)

    # -- summary

    def count_reasons(self, removed: Mask) -> Sequence[tuple[NodeReason, int]]:
        found, left = [], removed
        for refused, reason in zip(self._refusals, (_AFFINITY, _ANTI_AFFINITY, _EXISTING), strict=True):
            count = int(np.count_nonzero(left & refused))
            if count:
                found.append((reason, count))
            left = left & ~refused
        return found

    def resolvable_nodes(self, removed: Mask) -> Mask:
        return removed & ~self._refusals[0]

    # -- queueing hint

    @classmethod
    def queueing_hint(cls, event: ClusterEvent, waiting_pod: WaitingPod) -> bool:
        match event.kind:
            case EventKind.POD_ASSIGNED:
                return _may_satisfy_affinity(waiting_pod, event.new)
            case EventKind.POD_DELETED:
                return _may_unblock(waiting_pod, event.old)
            case EventKind.POD_UPDATED:
                return _may_satisfy_affinity(waiting_pod, event.new) or _may_unblock(waiting_pod, event.old)
        # A node may add a domain, or bring pods that were bound to it before it was known.
        return True

    @classmethod
    def hint_key(cls, pod: Pod) -> object:
        return pod.metadata.namespace, pod.metadata.labels


def _may_satisfy_affinity(waiting_pod: WaitingPod, other: Pod) -> bool:
    """Return whether a required affinity term may match another pod."""
    terms = waiting_pod.value(read_terms)
    return bool(terms.problem) or any(_may_match(term, other) for term in terms.affinity)


def _may_unblock(waiting_pod: WaitingPod, gone: Pod) -> bool:
    """Return whether the removal of a pod may make a waiting pod pass.

    Either an anti-affinity term of one of them matches the other, or the waiting pod's affinity may now be
    satisfied by the waiting pod itself, as the first of its group.
    """
    own, theirs = waiting_pod.value(read_terms), read_terms(gone)
    if own.problem or theirs.problem:
        return True
    return any(_may_match(term, gone) for term in (*own.anti_affinity, *own.affinity)) or any(
        _may_match(term, waiting_pod.pod) for term in theirs.anti_affinity
    )


def _may_match(term: AffinityTerm, pod: Pod) -> bool:
    """Return whether a term may match a pod; a namespace selector is taken to match."""
    selector = term.selector
    in_namespace = pod.metadata.namespace in selector.namespaces or selector.namespace_selector is not None
    return in_namespace and selector.selector.matches(pod.metadata.labels)
