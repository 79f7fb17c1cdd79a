"""Index of the number of pods that match selectors, by node.

A count is created on first use and maintained as pods are added and removed. Pods with the same labels in the
same namespace form one group; the matchers that count it are determined once per group, not per pod.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from plimsoll.api.core import Pod
from plimsoll.scheduler.topology.affinity_terms import NamespaceLabels, PodSelector
from plimsoll.scheduler.topology.counts import NodeCounts
from plimsoll.scheduler.topology.namespaces import NamespaceIndex

#: Maximum number of counts.
MAX_COUNTS = 256
_Anchor: TypeAlias = "tuple[str, str] | None"
_Key: TypeAlias = "tuple[str, bool, frozenset[tuple[str, str]]]"


class LabelGroup:
    """Pods with equal labels and namespace, and their number on each node."""

    __slots__ = ("counts", "is_terminating", "labels", "matchers", "namespace", "size")

    def __init__(self, pod: Pod) -> None:
        self.namespace = pod.metadata.namespace
        self.labels: Mapping[str, str] = pod.metadata.labels
        self.is_terminating = pod.metadata.deletion_timestamp is not None
        self.counts = NodeCounts()
        self.size = 0
        self.matchers: dict[PodMatcher, NodeCounts] = {}  #: matchers that count the group


@dataclass(frozen=True, slots=True)
class PodMatcher:
    """Conjunction of pod selectors."""

    selectors: tuple[PodSelector, ...]
    skip_terminating: bool = False

    def matches(self, group: LabelGroup, labels: NamespaceLabels) -> bool:
        """Return whether the pods of a group match."""
        if self.skip_terminating and group.is_terminating:
            return False
        return bool(self.selectors) and all(
            selector.matches(group.namespace, group.labels, labels) for selector in self.selectors
        )

    @property
    def anchor(self) -> _Anchor:
        """Label that all matching pods have, if there is one."""
        return next(
            (selector.selector.anchor for selector in self.selectors if selector.selector.anchor), None
        )

    @property
    def selects_namespaces(self) -> bool:
        """True if a selector selects namespaces by label."""
        return any(selector.namespace_selector is not None for selector in self.selectors)


class MatchCounts(NamespaceIndex):
    """Counts of recently used matchers, least recently used first."""

    def __init__(self) -> None:
        super().__init__()
        self.groups: dict[_Key, LabelGroup] = {}
        self.groups_by_label: dict[tuple[str, str], dict[_Key, LabelGroup]] = {}
        self._counts: dict[PodMatcher, NodeCounts] = {}
        self._anchored: dict[_Anchor, dict[PodMatcher, NodeCounts]] = {}

    def count(self, matcher: PodMatcher) -> NodeCounts:
        """Return the number of matching pods by node."""
        found = self._counts.pop(matcher, None)
        if found is None:
            found = self._create(matcher)
            if len(self._counts) >= MAX_COUNTS:
                self._drop(next(iter(self._counts)))
        self._counts[matcher] = found
        return found

    def kept(self) -> Collection[PodMatcher]:
        """Return the matchers whose counts are maintained."""
        return self._counts.keys()

    def _create(self, matcher: PodMatcher) -> NodeCounts:
        counts, anchor = NodeCounts(), matcher.anchor
        for group in (self.groups if anchor is None else self.groups_by_label.get(anchor, {})).values():
            if matcher.matches(group, self.namespaces):
                group.matchers[matcher] = counts
                for row, amount in group.counts.as_dict().items():
                    counts.add(row, amount)
        self._anchored.setdefault(anchor, {})[matcher] = counts
        return counts

    def _drop(self, matcher: PodMatcher) -> None:
        del self._counts[matcher]
        anchor = matcher.anchor
        del self._anchored[anchor][matcher]
        if not self._anchored[anchor]:
            del self._anchored[anchor]
        for group in (self.groups if anchor is None else self.groups_by_label.get(anchor, {})).values():
            group.matchers.pop(matcher, None)

    # -- changes

    def pod_added(self, row: int, pod: Pod) -> None:
        key = _key(pod)
        group = self.groups.get(key)
        if group is None:
            group = self._add_group(key, pod)
        group.size += 1
        group.counts.add(row, 1)
        for counts in group.matchers.values():
            counts.add(row, 1)

    def pod_removed(self, row: int, pod: Pod) -> None:
        key = _key(pod)
        group = self.groups[key]
        group.size -= 1
        group.counts.add(row, -1)
        for counts in group.matchers.values():
            counts.add(row, -1)
        if not group.size:
            del self.groups[key]
            for label in group.labels.items():
                del self.groups_by_label[label][key]
                if not self.groups_by_label[label]:
                    del self.groups_by_label[label]

    def _add_group(self, key: _Key, pod: Pod) -> LabelGroup:
        """Create a group, counted by the matchers it matches."""
        group = self.groups[key] = LabelGroup(pod)
        for label in group.labels.items():
            self.groups_by_label.setdefault(label, {})[key] = group
        for anchor in (None, *group.labels.items()):
            for matcher, counts in self._anchored.get(anchor, {}).items():
                if matcher.matches(group, self.namespaces):
                    group.matchers[matcher] = counts
        return group

    def on_labels_changed(self) -> None:
        """Drop the counts that depend on the labels of namespaces."""
        for matcher in [each for each in self._counts if each.selects_namespaces]:
            self._drop(matcher)


def _key(pod: Pod) -> _Key:
    meta = pod.metadata
    return meta.namespace, meta.deletion_timestamp is None, frozenset(meta.labels.items())
