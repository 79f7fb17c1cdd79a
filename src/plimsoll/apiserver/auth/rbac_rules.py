"""RBAC rules and their matching.

`PolicyRule` is a rule of a role, `GrantIndex` an index over the rules of a user. A property test checks that
the index agrees with evaluating every rule (`PolicyRule.allows`). A malformed rule grants nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from plimsoll.apiserver.auth.attributes import Attributes, Decision

ALL = "*"
#: Maximum number of cached results per user; hostile requests must not make it grow.
_MAX_CACHED = 2048


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """PolicyRule of RBAC: verbs on resources of groups (optionally some names only), or on paths."""

    verbs: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()

    @classmethod
    def from_tree(cls, tree: Any) -> PolicyRule:
        """Read a rule of a role. A rule with a malformed field grants nothing: dropping a name would widen
        it to all names.
        """
        fields = [_texts(tree, key) for key in _FIELDS] if isinstance(tree, Mapping) else [None]
        return cls(*(field for field in fields if field is not None)) if None not in fields else cls()

    def to_tree(self) -> dict[str, list[str]]:
        """Return the rule as in a role."""
        values = (self.verbs, self.groups, self.resources, self.names, self.paths)
        return {key: list(value) for key, value in zip(_FIELDS, values, strict=True) if value}

    def allows(self, attributes: Attributes) -> bool:
        """Return whether this rule alone allows a request."""
        if ALL not in self.verbs and attributes.verb not in self.verbs:
            return False
        if attributes.path:
            return any(path_matches(pattern, attributes.path) for pattern in self.paths)
        if ALL not in self.groups and attributes.group not in self.groups:
            return False
        if self.names and attributes.name not in self.names:
            return False
        wanted = resource_patterns(attributes.resource, attributes.subresource)
        return any(pattern in wanted for pattern in self.resources)

    def __str__(self) -> str:
        shown = (
            ("APIGroups", self.groups),
            ("Resources", self.resources),
            ("NonResourceURLs", self.paths),
            ("ResourceNames", self.names),
            ("Verbs", self.verbs),
        )
        return "{" + ", ".join(f"{name}:{quote(value)}" for name, value in shown if value) + "}"


_FIELDS = ("verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs")


def _texts(tree: Mapping[str, Any], key: str) -> tuple[str, ...] | None:
    """Return a list of strings; None if it is something else."""
    value = tree.get(key)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        return None
    return tuple(value)


def quote(values: Iterable[str]) -> str:
    """Format strings as in error messages: `["a" "b"]`."""
    return "[" + " ".join(f'"{value}"' for value in values) + "]"


def resource_patterns(resource: str, subresource: str) -> tuple[str, ...]:
    """Return the patterns by which a rule can match a resource."""
    if not subresource:
        return (resource, ALL)
    return (f"{resource}/{subresource}", ALL, f"*/{subresource}")


def path_matches(pattern: str, path: str) -> bool:
    """Return whether `/metrics`, `/healthz/*` or `*` matches a path."""
    if pattern.endswith(ALL):
        return path.startswith(pattern.rstrip(ALL))
    return pattern == path


class RoleGrant(NamedTuple):
    """Rule and the binding it comes from."""

    rule: PolicyRule
    source: str = ""


class _IndexedGrant(NamedTuple):
    """Grant prepared for lookups: sets instead of lists."""

    verbs: frozenset[str]
    groups: frozenset[str]
    rule: PolicyRule
    decision: Decision


class _MatchingGrants(NamedTuple):
    """Grants for one verb, group and resource: for any name, or for these."""

    anything: Decision | None
    named: Mapping[str, Decision]


class GrantIndex:
    """Grants of one user in one scope, indexed by resource.

    The index is as large as the rules, not their product; results are cached per verb, group and resource, so
    that a request costs a lookup or two.
    """

    __slots__ = ("_by_resource", "_paths", "cache", "grants")

    def __init__(self, grants: Iterable[RoleGrant]) -> None:
        self.grants = tuple(grants)
        self._by_resource: dict[str, list[_IndexedGrant]] = {}
        self._paths: list[_IndexedGrant] = []
        self.cache: dict[tuple[str, str, str, str], _MatchingGrants] = {}
        for rule, source in self.grants:
            entry = _IndexedGrant(frozenset(rule.verbs), frozenset(rule.groups), rule, Decision(True, source))
            for resource in dict.fromkeys(rule.resources):
                self._by_resource.setdefault(resource, []).append(entry)
            if rule.paths:
                self._paths.append(entry)

    def __bool__(self) -> bool:
        return bool(self.grants)

    def find(self, attributes: Attributes) -> Decision | None:
        """Return the decision of the first grant that allows a request, or None."""
        if attributes.path:
            return self._find_path(attributes.verb, attributes.path)
        key = (attributes.verb, attributes.group, attributes.resource, attributes.subresource)
        found = self.cache.get(key)
        if found is None:
            if len(self.cache) >= _MAX_CACHED:
                self.cache.clear()
            found = self.cache[key] = self._find_resource(*key)
        return found.anything or found.named.get(attributes.name)

    def _find_resource(self, verb: str, group: str, resource: str, subresource: str) -> _MatchingGrants:
        anything: Decision | None = None
        named: dict[str, Decision] = {}
        for pattern in resource_patterns(resource, subresource):
            for entry in self._by_resource.get(pattern, ()):
                if not (verb in entry.verbs or ALL in entry.verbs):
                    continue
                if not (group in entry.groups or ALL in entry.groups):
                    continue
                if not entry.rule.names:
                    anything = anything or entry.decision
                for name in entry.rule.names:
                    named.setdefault(name, entry.decision)
        return _MatchingGrants(anything, named)

    def _find_path(self, verb: str, path: str) -> Decision | None:
        for entry in self._paths:
            if (verb in entry.verbs or ALL in entry.verbs) and any(
                path_matches(pattern, path) for pattern in entry.rule.paths
            ):
                return entry.decision
        return None
