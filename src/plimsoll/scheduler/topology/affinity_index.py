"""Index of the affinity terms of existing pods.

Equal terms are stored once, with the nodes of their pods; an incoming pod is compared only with terms that
select one of its labels. The cost depends on the number of distinct terms, not on the number of pods.
"""

from __future__ import annotations

from collections.abc import Iterator

from plimsoll.api.core import Pod
from plimsoll.scheduler.topology.affinity_terms import AffinityTerm, NamespaceLabels, read_terms
from plimsoll.scheduler.topology.counts import NodeCounts
from plimsoll.scheduler.topology.namespaces import NamespaceIndex


class _TermEntry:
    """Number of pods with a term, and the sum of their weights by node."""

    __slots__ = ("pods", "weights")

    def __init__(self) -> None:
        self.pods = 0
        self.weights = NodeCounts()


class TermWeights:
    """Weights by term and node; terms are grouped by a label that all pods they select have, if any."""

    __slots__ = ("anchored",)

    def __init__(self) -> None:
        self.anchored: dict[tuple[str, str] | None, dict[AffinityTerm, _TermEntry]] = {}

    def count(self, term: AffinityTerm, row: int, weight: int, added: bool) -> None:
        """Add or remove the term of one pod."""
        anchor = term.selector.selector.anchor
        terms = self.anchored.setdefault(anchor, {})
        entry = terms.get(term)
        if entry is None:
            entry = terms[term] = _TermEntry()
        entry.pods += 1 if added else -1
        entry.weights.add(row, weight if added else -weight)
        if not entry.pods:
            del terms[term]
            if not terms:
                del self.anchored[anchor]

    def matching(self, pod: Pod, labels: NamespaceLabels) -> Iterator[tuple[AffinityTerm, NodeCounts]]:
        """Yield the terms that select a pod, each with its weight by node."""
        if not self.anchored:
            return
        for anchor in (None, *pod.metadata.labels.items()):
            for term, entry in self.anchored.get(anchor, {}).items():
                if term.selector.matches(pod.metadata.namespace, pod.metadata.labels, labels):
                    yield term, entry.weights

    def as_dict(self) -> dict[AffinityTerm, dict[int, int]]:
        """Return all weights, for comparison in tests."""
        return {
            term: entry.weights.as_dict() for terms in self.anchored.values() for term, entry in terms.items()
        }


class AffinityTermIndex(NamespaceIndex):
    """Terms of existing pods: required affinity, required anti-affinity, and preferred (both)."""

    def __init__(self) -> None:
        super().__init__()
        self.affinity = TermWeights()
        self.anti_affinity = TermWeights()
        self.preferred = TermWeights()

    def pod_added(self, row: int, pod: Pod) -> None:
        self._count(row, pod, True)

    def pod_removed(self, row: int, pod: Pod) -> None:
        self._count(row, pod, False)

    def _count(self, row: int, pod: Pod, added: bool) -> None:
        if pod.spec.affinity is None:
            return
        terms = read_terms(pod)
        for term in terms.affinity:
            self.affinity.count(term, row, 1, added)
        for term in terms.anti_affinity:
            self.anti_affinity.count(term, row, 1, added)
        for term, weight in terms.preferred:
            self.preferred.count(term, row, weight, added)
