"""Selection of objects by namespace, labels and fields, for lists, watches and deletions of collections."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from plimsoll.api.label_selection import CompiledLabelSelector
from plimsoll.apiserver.registry.resource import Resource
from plimsoll.apiserver.selectors import FieldSelector, parse_field_selector, parse_label_selector


class Selection(NamedTuple):
    """Parsed selection over the objects of one kind; an empty namespace stands for all."""

    resource: Resource
    namespace: str
    labels: CompiledLabelSelector | None
    fields: FieldSelector

    @property
    def has_conditions(self) -> bool:
        return self.labels is not None or bool(self.fields)

    def matches(self, namespace: str, tree: dict[str, Any]) -> bool:
        if self.namespace and namespace != self.namespace:
            return False
        field_value = self.resource.field_value
        for label, equal, value in self.fields.conditions:
            if (field_value(tree, label) == value) is not equal:
                return False
        return self.labels is None or self.labels.matches(tree["metadata"].get("labels") or {})


@lru_cache(maxsize=1024)
def parse_selection(resource: Resource, namespace: str, labels: str, fields: str) -> Selection:
    """Parse a selection; ApiError 400."""
    found = parse_label_selector(labels) if labels else None
    return Selection(resource, namespace, found, parse_field_selector(fields, resource))
