"""RBAC rules and how they match.

Owns `PolicyRule`, the PolicyRule of roles, with its plain reading (`PolicyRule.allows`), and `GrantIndex`,
the same answer out of an index. Promises that the two agree, whatever the rules say; a property test holds
them to it. A rule that is malformed grants nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from plimsoll.apiserver.auth.attributes import Attributes, Decision

ALL = "*"
#: Answers a user's index remembers at most; hostile requests must not make it grow.
_MAX_CACHED = 2048


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """One PolicyRule: verbs on resources of groups (perhaps some names only), or on paths."""

    verbs: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()

    @classmethod
    def from_tree(cls, tree: Any) -> PolicyRule:
        """Read a rule of a role. One with a malformed field grants nothing: a name that was dropped would
        widen it to all names."""
        fields = [_texts(tree, key) for key in _FIELDS] if isinstance(tree, Mapping) else [None]
        return cls(*(field for field in fields if field is not None)) if None not in fields else cls()

    def to_tree(self) -> dict[str, list[str]]:
        """The rule as a role writes it down."""
        values = (self.verbs, self.groups, self.resources, self.names, self.paths)
        return {key: list(value) for key, value in zip(_FIELDS, values, strict=True) if value}

    def allows(self, attributes: Attributes) -> bool:
        """Whether this rule alone allows a request: the plain reading, in the order of the fields."""
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
    """A list of texts; None if it is something else."""
    value = tree.get(key)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        return None
    return tuple(value)


def quote(values: Iterable[str]) -> str:
    """A list of texts as refusals show it: `["a" "b"]`."""
    return "[" + " ".join(f'"{value}"' for value in values) + "]"


def resource_patterns(resource: str, subresource: str) -> tuple[str, ...]:
    """What a rule may say to mean this resource."""
    if not subresource:
        return (resource, ALL)
    return (f"{resource}/{subresource}", ALL, f"*/{subresource}")


def path_matches(pattern: str, path: str) -> bool:
    """Whether `/metrics`, `/healthz/*` or `*` means this path."""
    if pattern.endswith(ALL):
        return path.startswith(pattern.rstrip(ALL))
    return pattern == path


class RoleGrant(NamedTuple):
    """A rule and where it comes from."""

    rule: PolicyRule
    source: str = ""


class _IndexedGrant(NamedTuple):
    """A grant made ready: sets instead of lists."""

    verbs: frozenset[str]
    groups: frozenset[str]
    rule: PolicyRule
    decision: Decision


class _MatchingGrants(NamedTuple):
    """What is allowed for one verb, group and resource: any name, or these."""

    anything: Decision | None
    named: Mapping[str, Decision]


class GrantIndex:
    """The grants of one user in one scope, indexed by what they say of resources.

    The index is as large as the rules are, never their product; answers are remembered per verb, group and
    resource, so that a request costs a look-up or two.
    """

    __slots__ = ("_by_resource", "_cache", "_paths", "grants")

    def __init__(self, grants: Iterable[RoleGrant]) -> None:
        self.grants = tuple(grants)
        self._by_resource: dict[str, list[_IndexedGrant]] = {}
        self._paths: list[_IndexedGrant] = []
        self._cache: dict[tuple[str, str, str, str], _MatchingGrants] = {}
        for rule, source in self.grants:
            entry = _IndexedGrant(frozenset(rule.verbs), frozenset(rule.groups), rule, Decision(True, source))
            for resource in dict.fromkeys(rule.resources):
                self._by_resource.setdefault(resource, []).append(entry)
            if rule.paths:
                self._paths.append(entry)

    def __bool__(self) -> bool:
        return bool(self.grants)

    def find(self, attributes: Attributes) -> Decision | None:
        """The decision of the first grant that allows a request, None if none does."""
        if attributes.path:
            return self._find_path(attributes.verb, attributes.path)
        key = (attributes.verb, attributes.group, attributes.resource, attributes.subresource)
        found = self._cache.get(key)
        if found is None:
            if len(self._cache) >= _MAX_CACHED:
                self._cache.clear()
            found = self._cache[key] = self._find_resource(*key)
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


def is_allowed_naive(grants: Iterable[RoleGrant], attributes: Attributes) -> bool:
    """The twin of `GrantIndex.find`: every rule in turn."""
    return any(grant.rule.allows(attributes) for grant in grants)
