"""How many pods of a crowd there are at each place.

Owns `Tallies`: a count for each census that some pod's rule has asked for, made on first use and kept up to
date as pods come and go. Pods with the same labels in the same namespace are of one kind; which censuses
count it is found out once per kind, not per pod, and only those are tried that want one of its labels. The
censuses that were asked for longest ago are dropped when there are too many.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from plimsoll.api.core import Pod
from plimsoll.scheduler.topology.affinity_terms import Crowd, NamespaceLabels
from plimsoll.scheduler.topology.counts import PlaceCounts
from plimsoll.scheduler.topology.namespaces import NamespaceIndex

_MOST = 256
_Anchor: TypeAlias = "tuple[str, str] | None"
_Key: TypeAlias = "tuple[str, bool, frozenset[tuple[str, str]]]"


class Kind:
    """Pods that no rule about labels can tell apart, and how many there are at each place."""

    __slots__ = ("censuses", "counts", "labels", "living", "namespace", "size")

    def __init__(self, pod: Pod) -> None:
        self.namespace = pod.metadata.namespace
        self.labels: Mapping[str, str] = pod.metadata.labels
        self.living = pod.metadata.deletion_timestamp is None
        self.counts = PlaceCounts()
        self.size = 0
        self.censuses: dict[Census, PlaceCounts] = {}  #: those that count it


@dataclass(frozen=True, slots=True)
class Census:
    """The pods that belong to all of these crowds at once; `living` leaves those being deleted out."""

    crowds: tuple[Crowd, ...]
    living: bool = False

    def counts(self, kind: Kind, labels: NamespaceLabels) -> bool:
        """Whether pods of a kind are counted."""
        if self.living and not kind.living:
            return False
        return bool(self.crowds) and all(
            crowd.has(kind.namespace, kind.labels, labels) for crowd in self.crowds
        )

    @property
    def anchor(self) -> _Anchor:
        """A label that all who are counted have, if there is one."""
        return next((crowd.selector.anchor for crowd in self.crowds if crowd.selector.anchor), None)

    @property
    def by_namespace_labels(self) -> bool:
        return any(crowd.namespace_selector is not None for crowd in self.crowds)


class Tallies(NamespaceIndex):
    """The counts of all censuses that were asked for lately."""

    def __init__(self) -> None:
        super().__init__()
        self._kinds: dict[_Key, Kind] = {}
        self._alike: dict[tuple[str, str], dict[_Key, Kind]] = {}  # the kinds that have a label
        self._tallies: dict[Census, PlaceCounts] = {}
        self._anchored: dict[_Anchor, dict[Census, PlaceCounts]] = {}

    def count(self, census: Census) -> PlaceCounts:
        """How many pods a census counts, by place."""
        found = self._tallies.pop(census, None)
        if found is None:
            found = self._take(census)
            if len(self._tallies) >= _MOST:
                self._drop(next(iter(self._tallies)))
        self._tallies[census] = found  # the one that was asked for last comes last
        return found

    def kept(self) -> Collection[Census]:
        """The censuses that are kept up to date."""
        return self._tallies.keys()

    def _take(self, census: Census) -> PlaceCounts:
        counts, anchor = PlaceCounts(), census.anchor
        for kind in (self._kinds if anchor is None else self._alike.get(anchor, {})).values():
            if census.counts(kind, self.namespaces):
                kind.censuses[census] = counts
                for row, amount in kind.counts.as_dict().items():
                    counts.add(row, amount)
        self._anchored.setdefault(anchor, {})[census] = counts
        return counts

    def _drop(self, census: Census) -> None:
        del self._tallies[census]
        anchor = census.anchor
        del self._anchored[anchor][census]
        if not self._anchored[anchor]:
            del self._anchored[anchor]
        for kind in (self._kinds if anchor is None else self._alike.get(anchor, {})).values():
            kind.censuses.pop(census, None)

    # -- hearing of changes

    def pod_added(self, row: int, pod: Pod) -> None:
        key = _key(pod)
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._found(key, pod)
        kind.size += 1
        kind.counts.add(row, 1)
        for counts in kind.censuses.values():
            counts.add(row, 1)

    def pod_removed(self, row: int, pod: Pod) -> None:
        key = _key(pod)
        kind = self._kinds[key]
        kind.size -= 1
        kind.counts.add(row, -1)
        for counts in kind.censuses.values():
            counts.add(row, -1)
        if not kind.size:
            del self._kinds[key]
            for label in kind.labels.items():
                del self._alike[label][key]
                if not self._alike[label]:
                    del self._alike[label]

    def _found(self, key: _Key, pod: Pod) -> Kind:
        """A new kind, and those who count it."""
        kind = self._kinds[key] = Kind(pod)
        for label in kind.labels.items():
            self._alike.setdefault(label, {})[key] = kind
        for anchor in (None, *kind.labels.items()):
            for census, counts in self._anchored.get(anchor, {}).items():
                if census.counts(kind, self.namespaces):
                    kind.censuses[census] = counts
        return kind

    def relabelled(self) -> None:
        """Who is counted by the labels of namespaces is found out again when asked for next."""
        for census in [each for each in self._tallies if each.by_namespace_labels]:
            self._drop(census)


def _key(pod: Pod) -> _Key:
    meta = pod.metadata
    return meta.namespace, meta.deletion_timestamp is None, frozenset(meta.labels.items())
