"""NodeAffinity: `nodeSelector`, required node affinity, and the affinity that a profile adds.

An invalid required term matches no node, as in Kubernetes. Terms that name nodes or label values (`In`) are
evaluated only for those nodes, so that many pods with different hosts cost as little as equal pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Self, TypeAlias

import numpy as np

from plimsoll.api.core import Node, NodeSelector, NodeSelectorTerm, Pod
from plimsoll.api.node_selection import NAME_FIELD, filter_valid_terms, term_matches
from plimsoll.ledger.columns import Mask
from plimsoll.ledger.verdict import VerdictCode
from plimsoll.scheduler.events import ClusterEvent, EventKind, NodeCapacity, NodeUpdate
from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.filters.queueing_hint import WaitingPod
from plimsoll.scheduler.filters.static import A, S, SignatureIndex
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.reasons import NodeReason, ReasonMessage, Rule
from plimsoll.scheduler.snapshot.snapshot import Snapshot


class NodeAffinityMessage(ReasonMessage):
    """Messages of NodeAffinity."""

    AFFINITY = "node(s) didn't match Pod's node affinity/selector"
    ENFORCED = "node(s) didn't match scheduler-enforced node affinity"


#: Node requirements: labels, and a selector to match.
NodeRequirements: TypeAlias = "tuple[tuple[tuple[str, str], ...], NodeSelector | None]"
#: Maximum number of label keys that are indexed.
_MAX_LABEL_KEYS = 64


def required_selector(pod: Pod) -> NodeSelector | None:
    """Return the required node affinity of a pod."""
    affinity = pod.spec.affinity
    if affinity is None or affinity.node_affinity is None:
        return None
    return affinity.node_affinity.required


def node_requirements(pod: Pod) -> NodeRequirements | None:
    """Return the node selector and required affinity of a pod, or None if it has neither."""
    selector = required_selector(pod)
    if selector is None and not pod.spec.node_selector:
        return None
    return tuple(sorted(pod.spec.node_selector.items())), selector


def meets_requirements(required: NodeRequirements, node: Node) -> bool:
    """Return whether a node matches node requirements."""
    labels, selector = required
    if any(node.metadata.labels.get(key) != value for key, value in labels):
        return False
    return selector is None or any(term_matches(term, node) for term in _valid_terms(selector))


@lru_cache(maxsize=1024)
def _valid_terms(selector: NodeSelector) -> tuple[NodeSelectorTerm, ...]:
    return filter_valid_terms(selector.node_selector_terms)


def named_nodes(selector: NodeSelector | None) -> frozenset[str] | None:
    """Return the named nodes if every term names some, or None if other nodes may match."""
    if selector is None or not selector.node_selector_terms:
        return None
    names: set[str] = set()
    for term in selector.node_selector_terms:
        own = _names_of(term)
        if own is None:
            return None
        names |= own
    return frozenset(names)


def only_node(pod: Pod) -> str:
    """Return the only node that required affinity allows, as for DaemonSet pods, or "" if there are more."""
    names = named_nodes(required_selector(pod))
    return next(iter(names)) if names is not None and len(names) == 1 else ""


def _names_of(term: NodeSelectorTerm) -> set[str] | None:
    found: set[str] | None = None
    for field in term.match_fields:
        if field.key == NAME_FIELD and field.operator == "In":
            found = {*field.values} if found is None else found & {*field.values}
    return found


_NO_ROWS: set[int] = set()


class LabelIndex(SignatureIndex[S, A]):
    """Index of values that depend on labels and names; finds nodes by either."""

    def __init__(self) -> None:
        super().__init__()
        self._rows: dict[str, int] = {}
        self._by_label: dict[str, dict[str, set[int]]] = {}  # label -> value -> rows

    def relevant(self, node: Node) -> object:
        return node.metadata.labels

    def rows_of(self, terms: Iterable[NodeSelectorTerm]) -> set[int] | None:
        """Return the only rows where one of these terms can match, or None if they are not known."""
        union: set[int] = set()
        for term in terms:
            own = self._rows_of(term)
            if own is None:
                return None
            union |= own
        return union

    def _rows_of(self, term: NodeSelectorTerm) -> set[int] | None:
        names = _names_of(term)
        if names is not None:
            return {self._rows[name] for name in names if name in self._rows}
        for each in term.match_expressions:
            if each.operator == "In":
                return {row for value in each.values for row in self.with_label(each.key, value)}
        return None

    def with_label(self, key: str, value: str) -> set[int]:
        """Return the rows of nodes with a label value; read-only."""
        by_value = self._by_label.get(key)
        if by_value is None:
            if len(self._by_label) >= _MAX_LABEL_KEYS:
                del self._by_label[next(iter(self._by_label))]
            by_value = self._by_label[key] = {}
            for row, node in self.nodes.items():
                own = node.metadata.labels.get(key)
                if own is not None:
                    by_value.setdefault(own, set()).add(row)
        return by_value.get(value, _NO_ROWS)

    def node_changed(self, row: int, new: Node | None, old: Node | None) -> None:
        if old is not None:
            self._rows.pop(old.metadata.name, None)
        if new is not None:
            self._rows[new.metadata.name] = row
        for key, by_value in self._by_label.items():
            before = None if old is None else old.metadata.labels.get(key)
            after = None if new is None else new.metadata.labels.get(key)
            if before != after and before is not None:
                by_value[before].discard(row)
                if not by_value[before]:
                    del by_value[before]
            if before != after and after is not None:
                by_value.setdefault(after, set()).add(row)


class NodeAffinityIndex(LabelIndex[NodeRequirements, np.bool_]):
    """Index of the nodes that match node requirements."""

    dtype = np.bool_

    def evaluate(self, signature: NodeRequirements, node: Node) -> bool:
        return meets_requirements(signature, node)

    def candidates(self, signature: NodeRequirements) -> Iterable[int]:
        labels, selector = signature
        found = [self.with_label(key, value) for key, value in labels]
        if selector is not None:
            named = self.rows_of(selector.node_selector_terms)
            if named is not None:
                found.append(named)
        if not found:
            return self.nodes
        return min(found, key=len)


def selected_nodes(pod: Pod, snapshot: Snapshot) -> Mask | None:
    """Return the nodes that match the pod's node selector and required affinity; None for all."""
    required = node_requirements(pod)
    return None if required is None else snapshot.index(NodeAffinityIndex).column(required)


def enforced_requirements(profile: SchedulerProfile) -> NodeRequirements | None:
    """Return the node requirements that a profile adds to those of each pod."""
    added = profile.added_affinity
    return None if added is None or added.required is None else ((), added.required)


_OWN = NodeReason(Rule.NODE_AFFINITY, NodeAffinityMessage.AFFINITY, VerdictCode.UNRESOLVABLE)
_ENFORCED = NodeReason(Rule.NODE_AFFINITY, NodeAffinityMessage.ENFORCED, VerdictCode.UNRESOLVABLE)


class NodeAffinityFilter(Filter):
    """Filter by node selector, required node affinity, and the affinity that the profile adds."""

    rule = Rule.NODE_AFFINITY
    events = frozenset({EventKind.NODE_ADDED, NodeUpdate.LABELS})
    pod_fields = frozenset({"node_selector", "affinity"})

    def __init__(
        self,
        pod_info: PodInfo,
        snapshot: Snapshot,
        own: Mask | None = None,
        enforced: Mask | None = None,
    ) -> None:
        super().__init__(pod_info, snapshot)
        self._own = own
        self._enforced = enforced

    @classmethod
    def pre_filter(cls, pod_info: PodInfo, snapshot: Snapshot) -> Self | None:
        own, added = selected_nodes(pod_info.pod, snapshot), enforced_requirements(pod_info.profile)
        if own is None and added is None:
            return None
        enforced = None if added is None else snapshot.index(NodeAffinityIndex).column(added)
        return cls(pod_info, snapshot, own, enforced)

    def filter(self) -> Mask:
        if self._own is None or self._enforced is None:
            mask = self._own if self._enforced is None else self._enforced
            assert mask is not None, "pre_filter() sets one of the masks"
            return mask
        return self._own & self._enforced

    def filter_node(self, row: int) -> tuple[NodeReason, ...]:
        node = self.snapshot.node(row)
        added = enforced_requirements(self.pod_info.profile)
        if added is not None and not meets_requirements(added, node):
            return (_ENFORCED,)
        required = node_requirements(self.pod_info.pod)
        return () if required is None or meets_requirements(required, node) else (_OWN,)

    def count_reasons(self, removed: Mask) -> Sequence[tuple[NodeReason, int]]:
        not_enforced = removed & ~self._enforced if self._enforced is not None else np.zeros_like(removed)
        counts = ((_ENFORCED, not_enforced), (_OWN, removed & ~not_enforced))
        return [(reason, int(np.count_nonzero(mask))) for reason, mask in counts if mask.any()]

    def resolvable_nodes(self, removed: Mask) -> Mask:
        return np.zeros_like(removed)

    @classmethod
    def queueing_hint(cls, event: ClusterEvent, waiting_pod: WaitingPod) -> bool:
        if event.kind is EventKind.NODE_CHANGED and not cls.rejects_node(waiting_pod, event.old, None):
            return False
        return super().queueing_hint(event, waiting_pod)

    @classmethod
    def rejects_node(cls, waiting_pod: WaitingPod, node: Node, capacity: NodeCapacity | None) -> bool:
        added = enforced_requirements(waiting_pod.profile)
        if added is not None and not meets_requirements(added, node):
            return True
        requirements = waiting_pod.value(node_requirements)
        return requirements is not None and not meets_requirements(requirements, node)
