"""Base class of indexes that need the labels of namespaces; unknown namespaces have none."""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll.api.core import Namespace
from plimsoll.scheduler.snapshot.index import SnapshotIndex


class NamespaceIndex(SnapshotIndex):
    """Index with the labels of all namespaces."""

    def __init__(self) -> None:
        self.namespaces: dict[str, Mapping[str, str]] = {}

    def on_labels_changed(self) -> None:
        """Handle a change of a namespace's labels."""

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
            self.on_labels_changed()
