"""How many pods of a crowd there are at each place.

Owns `Tallies`: a count for each crowd that some pod's rule has asked for, made on first use and kept up to
date as pods come and go. A pod that comes is held against the crowds that want one of its labels only. The
crowds that were asked for longest ago are dropped when there are too many.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from plimsoll.api.core import Namespace, Pod
from plimsoll.ledger.node import pod_key
from plimsoll.schedule.index import Index
from plimsoll.schedule.topology.counts import PlaceCounts
from plimsoll.schedule.topology.terms import Crowd, NamespaceLabels

_MOST = 256


@dataclass(frozen=True, slots=True)
class Census:
    """The pods that belong to all of these crowds at once; `living` leaves those being deleted out."""

    crowds: tuple[Crowd, ...]
    living: bool = False

    def counts(self, pod: Pod, labels: NamespaceLabels) -> bool:
        """Whether a pod is counted."""
        if self.living and pod.metadata.deletion_timestamp is not None:
            return False
        return bool(self.crowds) and all(crowd.has(pod, labels) for crowd in self.crowds)

    @property
    def anchor(self) -> tuple[str, str] | None:
        """A label that all who are counted have, if there is one."""
        return next((crowd.selector.anchor for crowd in self.crowds if crowd.selector.anchor), None)

    @property
    def by_namespace_labels(self) -> bool:
        return any(crowd.namespace_selector is not None for crowd in self.crowds)


class Tallies(Index):
    """The counts of all censuses that were asked for lately, and the labels of namespaces."""

    def __init__(self) -> None:
        self.namespaces: dict[str, dict[str, str]] = {}
        self._pods: dict[str, dict[str, tuple[int, Pod]]] = {}
        self._tallies: dict[Census, PlaceCounts] = {}
        self._anchored: dict[tuple[str, str] | None, dict[Census, PlaceCounts]] = {}

    def count(self, census: Census) -> PlaceCounts:
        """How many pods a census counts, by place."""
        found = self._tallies.pop(census, None)
        if found is None:
            found = self._take(census)
            self._anchored.setdefault(census.anchor, {})[census] = found
            if len(self._tallies) >= _MOST:
                self._drop(next(iter(self._tallies)))
        self._tallies[census] = found  # the one that was asked for last comes last
        return found

    def kept(self) -> Collection[Census]:
        """The censuses that are kept up to date."""
        return self._tallies.keys()

    def _take(self, census: Census) -> PlaceCounts:
        counts = PlaceCounts()
        for namespace, pods in self._pods.items():
            if all(crowd.reaches(namespace, self.namespaces) for crowd in census.crowds):
                for place, pod in pods.values():
                    if census.counts(pod, self.namespaces):
                        counts.add(place, 1)
        return counts

    def _drop(self, census: Census) -> None:
        self._tallies.pop(census, None)
        beside = self._anchored[census.anchor]
        del beside[census]
        if not beside:
            del self._anchored[census.anchor]

    # -- hearing of changes

    def pod_added(self, place: int, pod: Pod) -> None:
        self._pods.setdefault(pod.metadata.namespace, {})[pod_key(pod)] = (place, pod)
        self._count_in(place, pod, 1)

    def pod_removed(self, place: int, pod: Pod) -> None:
        pods = self._pods[pod.metadata.namespace]
        del pods[pod_key(pod)]
        if not pods:
            del self._pods[pod.metadata.namespace]
        self._count_in(place, pod, -1)

    def _count_in(self, place: int, pod: Pod, amount: int) -> None:
        if self._anchored:
            for census, counts in self._concerned(pod):
                if census.counts(pod, self.namespaces):
                    counts.add(place, amount)

    def _concerned(self, pod: Pod) -> Iterator[tuple[Census, PlaceCounts]]:
        for anchor in (None, *pod.metadata.labels.items()):
            if anchor in self._anchored:
                yield from self._anchored[anchor].items()

    def object_set(self, new: object, old: object) -> None:
        if isinstance(new, Namespace):
            self._relabel(new.metadata.name, new.metadata.labels)

    def object_removed(self, old: object) -> None:
        if isinstance(old, Namespace):
            self._relabel(old.metadata.name, None)

    def _relabel(self, namespace: str, labels: dict[str, str] | None) -> None:
        """Who is counted by the labels of namespaces is found out again when asked for next."""
        if self.namespaces.get(namespace, {}) != (labels or {}):
            for census in [each for each in self._tallies if each.by_namespace_labels]:
                self._drop(census)
        if labels is None:
            self.namespaces.pop(namespace, None)
        else:
            self.namespaces[namespace] = labels
