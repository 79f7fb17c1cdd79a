"""The labels of namespaces, for rules that choose namespaces by label.

Owns `NamespaceIndex`, what indexes that need them have in common. A namespace that is not known has no
labels.
"""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll.api.core import Namespace
from plimsoll.scheduler.snapshot.index import SnapshotIndex


class NamespaceIndex(SnapshotIndex):
    """An index that knows the labels of namespaces."""

    def __init__(self) -> None:
        self.namespaces: dict[str, Mapping[str, str]] = {}

    def relabelled(self) -> None:
        """The labels of a namespace are other than they were."""

    def object_set(self, new: object, old: object) -> None:
        if isinstance(new, Namespace):
            self._set(new.metadata.name, new.metadata.labels)

    def object_removed(self, old: object) -> None:
        if isinstance(old, Namespace):
            self._set(old.metadata.name, {})

    def _set(self, namespace: str, labels: Mapping[str, str]) -> None:
        if self.namespaces.get(namespace, {}) != labels:
            if labels:
                self.namespaces[namespace] = labels
            else:
                del self.namespaces[namespace]
            self.relabelled()
