"""Counts of the pods that match a rule, by node.

A count is created on first use and maintained as pods are added and removed. Pods with the same labels in the
same namespace form one group; which matchers count it is determined once per group, not per pod.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from plimsoll.api.core import Pod
from plimsoll.scheduler.topology.affinity_terms import NamespaceLabels, PodSelector
from plimsoll.scheduler.topology.counts import PlaceCounts
from plimsoll.scheduler.topology.namespaces import NamespaceIndex

_MOST = 256
_Anchor: TypeAlias = "tuple[str, str] | None"
_Key: TypeAlias = "tuple[str, bool, frozenset[tuple[str, str]]]"


class LabelGroup:
    """Pods with equal labels and namespace, and their number at each node."""

    __slots__ = ("counts", "labels", "living", "matchers", "namespace", "size")

    def __init__(self, pod: Pod) -> None:
        self.namespace = pod.metadata.namespace
        self.labels: Mapping[str, str] = pod.metadata.labels
        self.living = pod.metadata.deletion_timestamp is None
        self.counts = PlaceCounts()
        self.size = 0
        self.matchers: dict[PodMatcher, PlaceCounts] = {}  #: matchers that count the group


@dataclass(frozen=True, slots=True)
class PodMatcher:
    """Pods that match all of these selectors; `living` excludes pods being deleted."""

    selectors: tuple[PodSelector, ...]
    living: bool = False

    def counts(self, kind: LabelGroup, labels: NamespaceLabels) -> bool:
        """Return whether pods of a group are counted."""
        if self.living and not kind.living:
            return False
        return bool(self.selectors) and all(
            selector.has(kind.namespace, kind.labels, labels) for selector in self.selectors
        )

    @property
    def anchor(self) -> _Anchor:
        """Return a label that all counted pods have, if there is one."""
        return next(
            (selector.selector.anchor for selector in self.selectors if selector.selector.anchor), None
        )

    @property
    def by_namespace_labels(self) -> bool:
        return any(selector.namespace_selector is not None for selector in self.selectors)


class MatchCounts(NamespaceIndex):
    """Counts of all recently used matchers."""

    def __init__(self) -> None:
        super().__init__()
        self._kinds: dict[_Key, LabelGroup] = {}
        self._alike: dict[tuple[str, str], dict[_Key, LabelGroup]] = {}  # groups by label
        self._tallies: dict[PodMatcher, PlaceCounts] = {}
        self._anchored: dict[_Anchor, dict[PodMatcher, PlaceCounts]] = {}

    def count(self, matcher: PodMatcher) -> PlaceCounts:
        """Return the number of matching pods by node."""
        found = self._tallies.pop(matcher, None)
        if found is None:
            found = self._take(matcher)
            if len(self._tallies) >= _MOST:
                self._drop(next(iter(self._tallies)))
        self._tallies[matcher] = found  # least recently used first
        return found

    def kept(self) -> Collection[PodMatcher]:
        """Return the matchers that are maintained."""
        return self._tallies.keys()

    def _take(self, matcher: PodMatcher) -> PlaceCounts:
        counts, anchor = PlaceCounts(), matcher.anchor
        for kind in (self._kinds if anchor is None else self._alike.get(anchor, {})).values():
            if matcher.counts(kind, self.namespaces):
                kind.matchers[matcher] = counts
                for row, amount in kind.counts.as_dict().items():
                    counts.add(row, amount)
        self._anchored.setdefault(anchor, {})[matcher] = counts
        return counts

    def _drop(self, matcher: PodMatcher) -> None:
        del self._tallies[matcher]
        anchor = matcher.anchor
        del self._anchored[anchor][matcher]
        if not self._anchored[anchor]:
            del self._anchored[anchor]
        for kind in (self._kinds if anchor is None else self._alike.get(anchor, {})).values():
            kind.matchers.pop(matcher, None)

    # -- changes

    def pod_added(self, row: int, pod: Pod) -> None:
        key = _key(pod)
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._found(key, pod)
        kind.size += 1
        kind.counts.add(row, 1)
        for counts in kind.matchers.values():
            counts.add(row, 1)

    def pod_removed(self, row: int, pod: Pod) -> None:
        key = _key(pod)
        kind = self._kinds[key]
        kind.size -= 1
        kind.counts.add(row, -1)
        for counts in kind.matchers.values():
            counts.add(row, -1)
        if not kind.size:
            del self._kinds[key]
            for label in kind.labels.items():
                del self._alike[label][key]
                if not self._alike[label]:
                    del self._alike[label]

    def _found(self, key: _Key, pod: Pod) -> LabelGroup:
        """Register a new group with the matchers that count it."""
        kind = self._kinds[key] = LabelGroup(pod)
        for label in kind.labels.items():
            self._alike.setdefault(label, {})[key] = kind
        for anchor in (None, *kind.labels.items()):
            for matcher, counts in self._anchored.get(anchor, {}).items():
                if matcher.counts(kind, self.namespaces):
                    kind.matchers[matcher] = counts
        return kind

    def relabelled(self) -> None:
        """Invalidate counts that depend on the labels of namespaces."""
        for matcher in [each for each in self._tallies if each.by_namespace_labels]:
            self._drop(matcher)


def _key(pod: Pod) -> _Key:
    meta = pod.metadata
    return meta.namespace, meta.deletion_timestamp is None, frozenset(meta.labels.items())
