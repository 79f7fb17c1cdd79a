"""Who among the pods that are there already has a rule about others, and where.

Owns `Holders`. Equal terms of pods are kept once, with the places of those who hold them; a new pod is held
against the terms that want one of its labels only. So a cluster of pods without such rules costs nothing,
and one of many replicas with the same rule costs as one.
"""

from __future__ import annotations

from collections.abc import Iterator

from plimsoll.api.core import Pod
from plimsoll.scheduler.topology.affinity_terms import NamespaceLabels, Term, read_terms
from plimsoll.scheduler.topology.counts import PlaceCounts
from plimsoll.scheduler.topology.namespaces import NamespaceIndex


class _Held:
    __slots__ = ("counts", "holders")

    def __init__(self) -> None:
        self.counts = PlaceCounts()
        self.holders = 0


class TermBook:
    """Terms, and the sum of their weights at each place."""

    __slots__ = ("_anchored",)

    def __init__(self) -> None:
        self._anchored: dict[tuple[str, str] | None, dict[Term, _Held]] = {}

    def note(self, term: Term, row: int, weight: int, added: bool) -> None:
        anchor = term.crowd.selector.anchor
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

    def about(self, pod: Pod, labels: NamespaceLabels) -> Iterator[tuple[Term, PlaceCounts]]:
        """The terms that a pod matches, each with its weight by place."""
        if not self._anchored:
            return
        for anchor in (None, *pod.metadata.labels.items()):
            for term, held in self._anchored.get(anchor, {}).items():
                if term.crowd.has(pod.metadata.namespace, pod.metadata.labels, labels):
                    yield term, held.counts

    def as_dict(self) -> dict[Term, dict[int, int]]:
        """Everything in it, for comparison."""
        return {
            term: held.counts.as_dict() for terms in self._anchored.values() for term, held in terms.items()
        }


class Holders(NamespaceIndex):
    """The terms of the pods on the books: those they require, near and apart, and those they prefer."""

    def __init__(self) -> None:
        super().__init__()
        self.affinity = TermBook()
        self.anti_affinity = TermBook()
        self.preferred = TermBook()

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
