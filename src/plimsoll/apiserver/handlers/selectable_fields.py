"""Cache of labels and selectable fields of stored objects.

A selector over all objects of a resource decodes each version of an object once, not once per request. The
cache holds no more entries than there are objects, plus the recent events.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NamedTuple

from plimsoll.api import codec
from plimsoll.api.label_selection import CompiledLabelSelector
from plimsoll.apiserver.registry.resource import Resource
from plimsoll.apiserver.selectors import FieldSelector
from plimsoll.apiserver.storage import ObjectKey, StoredObject, StoreEvent

_NONE: Mapping[str, str] = {}
_EVENTS_KEPT = 4096


class SelectableFields(NamedTuple):
    """Labels and selectable fields of one version of an object."""

    revision: int
    labels: Mapping[str, str]
    fields: Mapping[str, str]


class ObjectSelection(NamedTuple):
    """Namespace and selectors of a list or watch."""

    resource: Resource
    namespace: str | None
    labels: CompiledLabelSelector
    fields: FieldSelector

    @property
    def matches_all(self) -> bool:
        """Return whether there is no selector, so that every object of the namespace is included."""
        return self.labels.everything and not self.fields

    def includes(self, key: ObjectKey, selectable: SelectableFields) -> bool:
        if self.namespace is not None and key.namespace != self.namespace:
            return False
        return self.labels.matches(selectable.labels) and self.fields.matches(selectable.fields)


class SelectableFieldCache:
    """Selectable fields of the stored objects and of recent events, extracted on first use."""

    def __init__(self) -> None:
        self._objects: dict[tuple[str, ObjectKey], SelectableFields] = {}
        self._events: OrderedDict[tuple[str, int], tuple[SelectableFields | None, SelectableFields]] = (
            OrderedDict()
        )

    def of(self, resource: Resource, stored: StoredObject) -> SelectableFields:
        cache_key = (resource.key, stored.key)
        selectable = self._objects.get(cache_key)
        if selectable is None or selectable.revision != stored.revision:
            selectable = self._objects[cache_key] = _extract(resource, stored.raw, stored.revision)
        return selectable

    def of_event(
        self, resource: Resource, event: StoreEvent
    ) -> tuple[SelectableFields | None, SelectableFields]:
        """Return the selectable fields before and after an event."""
        cache_key = (resource.key, event.revision)
        seen = self._events.get(cache_key)
        if seen is None:
            before = None
            if event.previous is not None:
                before = _extract(resource, event.previous, event.revision)
            after = _extract(resource, event.raw, event.revision)
            seen = self._events[cache_key] = (before, after)
            if len(self._events) > _EVENTS_KEPT:
                self._events.popitem(last=False)
        return seen

    def forget(self, key: ObjectKey) -> None:
        """Drop the entries of a removed object."""
        for cache_key in [cache_key for cache_key in self._cache_keys(key) if cache_key in self._objects]:
            del self._objects[cache_key]

    @staticmethod
    def _cache_keys(key: ObjectKey) -> list[tuple[str, ObjectKey]]:
        # Events are served by two resources.
        return [(key.resource, key), (f"{key.resource}.events.k8s.io", key)]


def _extract(resource: Resource, raw: bytes, revision: int) -> SelectableFields:
    tree = codec.decode_tree(raw)
    return SelectableFields(revision, _labels(tree), selectable_fields(resource, tree))


def _labels(tree: Any) -> Mapping[str, str]:
    return tree.get("metadata", {}).get("labels") or _NONE


def selectable_fields(resource: Resource, tree: Any) -> Mapping[str, str]:
    """Return the selectable fields of an object; equal strings are interned."""
    labels = ("metadata.name", "metadata.namespace", *resource.field_labels)
    return {label: sys.intern(resource.field_value(tree, label)) for label in labels}
