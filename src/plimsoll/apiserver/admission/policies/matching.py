"""Matching of requests: the matchConstraints of a policy and the matchResources of a binding."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from plimsoll.api.label_selection import CompiledLabelSelector
from plimsoll.apiserver.admission.policies.attributes import (
    CREATE,
    UPDATE,
    AdmissionAttributes,
    MatchedResource,
    Tree,
    object_labels,
)
from plimsoll.apiserver.registry.resource import Resource
from plimsoll.apiserver.registry.resources import RESOURCES
from plimsoll.apiserver.selectors import read_selector

#: Returns the labels of the namespace of a request.
NamespaceLabels = Callable[[AdmissionAttributes], Mapping[str, str]]
_WILDCARD = "*"


@dataclass(frozen=True, slots=True)
class ResourceRule:
    """One entry of resourceRules or excludeResourceRules."""

    names: frozenset[str]
    operations: frozenset[str]
    groups: frozenset[str]
    versions: frozenset[str]
    resources: tuple[tuple[str, str], ...]
    scope: str

    @classmethod
    def of(cls, tree: Tree) -> ResourceRule:
        def texts(name: str) -> frozenset[str]:
            return frozenset(tree.get(name) or ())

        parts = (text.partition("/") for text in tree.get("resources") or ())
        return cls(
            texts("resourceNames"),
            texts("operations"),
            texts("apiGroups"),
            texts("apiVersions"),
            tuple((name, sub) for name, _, sub in parts),
            tree.get("scope") or _WILDCARD,
        )

    def matches(self, attributes: AdmissionAttributes, resource: Resource, version: str) -> bool:
        """Return whether the rule matches a request as one of this resource and version."""
        return (
            self._matches_scope(attributes)
            and _has(self.operations, attributes.operation)
            and _has(self.groups, resource.group)
            and _has(self.versions, version)
            and any(
                name in (_WILDCARD, resource.plural) and sub in (_WILDCARD, attributes.info.subresource)
                for name, sub in self.resources
            )
            and (not self.names or attributes.name in self.names)
        )

    def _matches_scope(self, attributes: AdmissionAttributes) -> bool:
        if self.scope == _WILDCARD:
            return True
        is_cluster_scoped = attributes.is_namespace or not attributes.namespace
        return self.scope == ("Cluster" if is_cluster_scoped else "Namespaced")


@dataclass(frozen=True, slots=True)
class MatchCriteria:
    """Compiled MatchResources; without rules, every resource matches."""

    namespaces: CompiledLabelSelector
    objects: CompiledLabelSelector
    rules: tuple[ResourceRule, ...]
    excluded: tuple[ResourceRule, ...]
    equivalent: bool

    @classmethod
    def of(cls, tree: Tree) -> MatchCriteria:
        return cls(
            read_selector(tree.get("namespaceSelector") or {}),
            read_selector(tree.get("objectSelector") or {}),
            tuple(ResourceRule.of(rule) for rule in tree.get("resourceRules") or ()),
            tuple(ResourceRule.of(rule) for rule in tree.get("excludeResourceRules") or ()),
            tree.get("matchPolicy") != "Exact",
        )

    def match(self, attributes: AdmissionAttributes, labels_of: NamespaceLabels) -> MatchedResource | None:
        """Return the resource and version in which a request matches, or None."""
        if not self._matches_selectors(attributes, labels_of):
            return None
        if self._find(self.excluded, attributes) is not None:
            return None
        return self._find(self.rules, attributes) if self.rules else attributes.requested

    def _matches_selectors(self, attributes: AdmissionAttributes, labels_of: NamespaceLabels) -> bool:
        has_namespace = bool(attributes.namespace) or attributes.is_namespace
        selects = has_namespace and not self.namespaces.everything
        if selects and not self.namespaces.matches(labels_of(attributes)):
            return False
        if self.objects.everything:
            return True
        found = (object_labels(attributes.tree), object_labels(attributes.old))
        return any(labels is not None and self.objects.matches(labels) for labels in found)

    def _find(self, rules: Iterable[ResourceRule], attributes: AdmissionAttributes) -> MatchedResource | None:
        resource, version = attributes.info.resource, attributes.info.version
        if any(rule.matches(attributes, resource, version) for rule in rules):
            return attributes.requested
        if not self.equivalent:
            return None
        for rule in rules:
            for other, served in equivalent_resources(resource, version):
                if rule.matches(attributes, other, served):
                    return MatchedResource(other, served, attributes.kind_in(other, served))
        return None


@cache
def equivalent_resources(resource: Resource, version: str) -> tuple[tuple[Resource, str], ...]:
    """Return the other resources and versions that serve the same stored objects."""
    return tuple(
        (other, served)
        for other in RESOURCES
        if other.storage_key == resource.storage_key
        for served in other.versions
        if (other, served) != (resource, version)
    )


def namespace_of_object(attributes: AdmissionAttributes) -> Tree | None:
    """Return the Namespace that is being created or updated, whose labels are the new ones."""
    writes = attributes.operation in (CREATE, UPDATE) and not attributes.info.subresource
    return attributes.tree if attributes.is_namespace and writes else None


def _has(items: frozenset[str], value: Any) -> bool:
    return _WILDCARD in items or value in items
