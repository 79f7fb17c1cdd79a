"""Base class of indexes that need the labels of namespaces; unknown namespaces have none."""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll.api.core import Namespace
from plimsoll.scheduler.snapshot.index import SnapshotIndex


class NamespaceIndex(SnapshotIndex):
    """Index with the labels of all namespaces."""

    kinds = (Namespace,)

    def __init__(self) -> None:
        self.namespaces: dict[str, Mapping[str, str]] = {}

    def on_labels_changed(self) -> None:
        """Handle a change of a namespace's labels."""

    def object_changed(self, old: object, new: object) -> None:
        changed = old if new is None else new
        if not isinstance(changed, Namespace):
            return
        name, labels = changed.metadata.name, {} if new is None else changed.metadata.labels
        if self.namespaces.get(name, {}) != labels:
            if labels:
                self.namespaces[name] = labels
            else:
                del self.namespaces[name]
            self.on_labels_changed()
