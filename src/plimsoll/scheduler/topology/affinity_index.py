"""Index of the affinity terms of existing pods.

Equal terms are stored once, with the nodes of their pods; a new pod is compared only with terms that select
one of its labels. A cluster without such terms costs nothing, and many replicas with the same term cost as
much as one.
"""

from __future__ import annotations

from collections.abc import Iterator

from plimsoll.api.core import Pod
from plimsoll.scheduler.topology.affinity_terms import AffinityTerm, NamespaceLabels, read_terms
from plimsoll.scheduler.topology.counts import PlaceCounts
from plimsoll.scheduler.topology.namespaces import NamespaceIndex


class _Held:
    __slots__ = ("counts", "holders")

    def __init__(self) -> None:
        self.counts = PlaceCounts()
        self.holders = 0


class TermWeights:
    """Terms, and the sum of their weights at each node."""

    __slots__ = ("_anchored",)

    def __init__(self) -> None:
        self._anchored: dict[tuple[str, str] | None, dict[AffinityTerm, _Held]] = {}

    def note(self, term: AffinityTerm, row: int, weight: int, added: bool) -> None:
        anchor = term.selector.selector.anchor
        terms = self._anchored.setdefault(anchor, {})
        held = terms.get(term)
        if held is None:
            held = terms[term] = _Held()
        held.holders += 1 if added else -1
        held.counts.add(row, weight if added else -weight)
        if not held.holders:
            del terms[term]
            if not terms:
                del self._anchored[anchor]

    def about(self, pod: Pod, labels: NamespaceLabels) -> Iterator[tuple[AffinityTerm, PlaceCounts]]:
        """Yield the terms that a pod matches, each with its weight by node."""
        if not self._anchored:
            return
        for anchor in (None, *pod.metadata.labels.items()):
            for term, held in self._anchored.get(anchor, {}).items():
                if term.selector.has(pod.metadata.namespace, pod.metadata.labels, labels):
                    yield term, held.counts

    def as_dict(self) -> dict[AffinityTerm, dict[int, int]]:
        """Return all entries, for comparison."""
        return {
            term: held.counts.as_dict() for terms in self._anchored.values() for term, held in terms.items()
        }


class AffinityTermIndex(NamespaceIndex):
    """Terms of existing pods: required affinity, required anti-affinity, and preferred."""

    def __init__(self) -> None:
        super().__init__()
        self.affinity = TermWeights()
        self.anti_affinity = TermWeights()
        self.preferred = TermWeights()

    def pod_added(self, row: int, pod: Pod) -> None:
        self._note(row, pod, True)

    def pod_removed(self, row: int, pod: Pod) -> None:
        self._note(row, pod, False)

    def _note(self, row: int, pod: Pod, added: bool) -> None:
        if pod.spec.affinity is None:
            return
        terms = read_terms(pod)
        for term in terms.affinity:
            self.affinity.note(term, row, 1, added)
        for term in terms.anti_affinity:
            self.anti_affinity.note(term, row, 1, added)
        for term, weight in terms.preferred:
            self.preferred.note(term, row, weight, added)
