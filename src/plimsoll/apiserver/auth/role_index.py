"""Role index: built-in and stored roles and bindings.

Reads Role, ClusterRole, RoleBinding and ClusterRoleBinding objects, aggregates ClusterRoles by label, and
finds the grants of a user. Stored objects are read again after one of them changed, and only changed ones are
decoded. A malformed rule or subject grants nothing, and never raises.

DIFF: aggregated rules are computed here; in Kubernetes a controller writes them into the role; see
test_roles_aggregate_by_label.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from plimsoll.api.codec import decode_tree
from plimsoll.apiserver.auth.attributes import StoreReader
from plimsoll.apiserver.auth.default_roles import BINDINGS, ROLES, driver_rules
from plimsoll.apiserver.auth.rbac_rules import PolicyRule, RoleGrant
from plimsoll.apiserver.auth.users import SERVICE_ACCOUNT_PREFIX, User, driver_name_of
from plimsoll.apiserver.json_values import mapping, text
from plimsoll.apiserver.selectors import read_selector
from plimsoll.apiserver.storage.records import ObjectKey, StoredObject
from plimsoll.errors import DecodeError

_RBAC = "rbac.authorization.k8s.io"
CLUSTER_ROLES, CLUSTER_BINDINGS = f"clusterroles.{_RBAC}", f"clusterrolebindings.{_RBAC}"
LOCAL_ROLES, LOCAL_BINDINGS = f"roles.{_RBAC}", f"rolebindings.{_RBAC}"
RESOURCES = (CLUSTER_ROLES, CLUSTER_BINDINGS, LOCAL_ROLES, LOCAL_BINDINGS)


class _Role(NamedTuple):
    rules: tuple[PolicyRule, ...]
    labels: Mapping[str, str]
    selectors: tuple[Mapping[str, Any], ...] = ()


class _BoundRole(NamedTuple):
    """Role that a binding grants to one of its subjects."""

    namespace: str  #: empty: everywhere
    kind: str  #: of the role
    role: str
    source: str


class _Binding(NamedTuple):
    """Subjects of a binding, by kind and name, with the roles it grants them."""

    subjects: tuple[tuple[str, str, _BoundRole], ...]


class RoleIndex:
    """Index of all roles and bindings. `stale` is set when a stored one changed."""

    def __init__(self, reader: StoreReader) -> None:
        self._reader = reader
        self.decoded: dict[ObjectKey, tuple[int, _Role | _Binding]] = {}
        self._cluster_roles: dict[str, tuple[_Role, ...]] = {}
        self._local_roles: dict[tuple[str, str], _Role] = {}
        self._bound: dict[tuple[str, str], list[_BoundRole]] = {}
        self._resolved: dict[str, tuple[PolicyRule, ...]] = {}
        self.stale = True

    def grants_of(self, user: User) -> Iterator[tuple[str, RoleGrant]]:
        """Yield every grant of a user with its namespace (empty: cluster-wide)."""
        self.refresh()
        driver = driver_name_of(user)
        if driver:
            yield from (("", RoleGrant(rule, "driver")) for rule in driver_rules(driver))
        for bound in self._bound_to(user):
            for rule in self.rules_of(bound.kind, bound.role, bound.namespace):
                yield bound.namespace, RoleGrant(rule, f"RBAC: allowed by {bound.source}")

    def missing_roles_of(self, user: User) -> Iterator[tuple[str, str]]:
        """Yield the roles that are bound to a user but do not exist: namespace and message."""
        self.refresh()
        for bound in self._bound_to(user):
            if not self.has_role(bound.kind, bound.role, bound.namespace):
                yield bound.namespace, f'{bound.kind.lower()}.{_RBAC} "{bound.role}" not found'

    def _bound_to(self, user: User) -> Iterator[_BoundRole]:
        """Yield the roles bound to a user, each once per namespace: several subjects may match one user."""
        seen = set()
        for subject in (("User", user.name), *(("Group", group) for group in user.groups)):
            for bound in self._bound.get(subject, ()):
                if bound[:3] not in seen:
                    seen.add(bound[:3])
                    yield bound

    def rules_of(self, kind: str, name: str, namespace: str) -> tuple[PolicyRule, ...]:
        """Return the rules of a role that a binding names; none if there is no such role."""
        self.refresh()
        if kind == "ClusterRole":
            resolved = self._resolved.get(name)
            if resolved is None:
                resolved = self._resolved[name] = tuple(dict.fromkeys(self._aggregate(name, set())))
            return resolved
        role = self._local_roles.get((namespace, name)) if kind == "Role" and namespace else None
        return role.rules if role else ()

    def has_role(self, kind: str, name: str, namespace: str) -> bool:
        """Return whether a role exists."""
        self.refresh()
        if kind == "ClusterRole":
            return name in self._cluster_roles
        return kind == "Role" and bool(namespace) and (namespace, name) in self._local_roles

    def _aggregate(self, name: str, visited: set[str]) -> Iterator[PolicyRule]:
        """Yield the rules of a ClusterRole and of all that it aggregates, transitively."""
        if name in visited:
            return
        visited.add(name)
        for role in self._cluster_roles.get(name, ()):
            yield from role.rules
            for selector in role.selectors:
                for other, versions in self._cluster_roles.items():
                    if any(read_selector(selector).matches(version.labels) for version in versions):
                        yield from self._aggregate(other, visited)

    def refresh(self) -> None:
        """Read the stored objects again if they changed."""
        if not self.stale:
            return
        decoded: dict[ObjectKey, tuple[int, _Role | _Binding]] = {}
        cluster_roles: dict[str, tuple[_Role, ...]] = {
            name: (role,) for name, role in _BUILT_IN_ROLES.items()
        }
        local_roles: dict[tuple[str, str], _Role] = {}
        bound = {subject: list(entries) for subject, entries in _BUILT_IN_BOUND_ROLES.items()}
        for resource in RESOURCES:
            for stored in self._reader.list(resource).items:
                known = self.decoded.get(stored.key)
                if known is None or known[0] != stored.revision:
                    known = (stored.revision, _decode(stored))
                decoded[stored.key] = known
                entry = known[1]
                if isinstance(entry, _Binding):
                    for kind, name, what in entry.subjects:
                        bound.setdefault((kind, name), []).append(what)
                elif resource == CLUSTER_ROLES:
                    # A stored role adds to the built-in one of its name.
                    name = stored.key.name
                    cluster_roles[name] = (*cluster_roles.get(name, ()), entry)
                else:
                    local_roles[stored.key.namespace, stored.key.name] = entry
        self.decoded, self._cluster_roles, self._local_roles = decoded, cluster_roles, local_roles
        self._bound, self._resolved, self.stale = bound, {}, False


def _decode(stored: StoredObject) -> _Role | _Binding:
    try:
        tree = decode_tree(stored.raw)
    except DecodeError:
        tree = {}
    if stored.key.resource in (CLUSTER_ROLES, LOCAL_ROLES):
        return _read_role(tree, stored.key.resource == CLUSTER_ROLES)
    return _read_binding(stored.key, tree)


def read_rules(tree: Any) -> tuple[PolicyRule, ...]:
    """Return the rules of a Role or ClusterRole."""
    rules = tree.get("rules") if isinstance(tree, Mapping) else None
    return tuple(PolicyRule.from_tree(rule) for rule in rules) if isinstance(rules, list) else ()


def _read_role(tree: Any, cluster: bool) -> _Role:
    labels = mapping(mapping(mapping(tree).get("metadata")).get("labels"))
    selectors = mapping(mapping(tree).get("aggregationRule")).get("clusterRoleSelectors") if cluster else None
    chosen = [s for s in selectors if isinstance(s, Mapping)] if isinstance(selectors, list) else []
    return _Role(read_rules(tree), labels, tuple(chosen))


def read_role_ref(tree: Any) -> tuple[str, str]:
    """Return kind and name of the role that a binding names."""
    ref = mapping(mapping(tree).get("roleRef"))
    kind, name = ref.get("kind"), ref.get("name")
    return text(kind), text(name)


def _read_binding(key: ObjectKey, tree: Any) -> _Binding:
    kind, name = read_role_ref(tree)
    binding_name = f"{key.name}/{key.namespace}" if key.namespace else key.name
    what = "RoleBinding" if key.namespace else "ClusterRoleBinding"
    found = []
    for subject_kind, subject, shown in _subjects(key.namespace, mapping(tree).get("subjects")):
        source = f'{what} "{binding_name}" of {kind} "{name}" to {shown}'
        found.append((subject_kind, subject, _BoundRole(key.namespace, kind, name, source)))
    return _Binding(tuple(found))


def _subjects(namespace: str, subjects: Any) -> Iterator[tuple[str, str, str]]:
    """Yield subjects as (User or Group, name, name in error messages); service accounts are users."""
    for subject in subjects if isinstance(subjects, list) else ():
        kind, name = mapping(subject).get("kind"), mapping(subject).get("name")
        if not isinstance(name, str):
            continue
        if kind in ("User", "Group"):
            yield kind, name, f'{kind} "{name}"'
        elif kind == "ServiceAccount":
            home = mapping(subject).get("namespace") or namespace
            if isinstance(home, str) and home:
                yield "User", f"{SERVICE_ACCOUNT_PREFIX}{home}:{name}", f'ServiceAccount "{name}/{home}"'


def _built_in_bound_roles() -> dict[tuple[str, str], tuple[_BoundRole, ...]]:
    found: dict[tuple[str, str], tuple[_BoundRole, ...]] = {}
    for binding in BINDINGS:
        subjects: Iterable[tuple[str, str]] = (
            *(("User", user) for user in binding.users),
            *(("Group", group) for group in binding.groups),
        )
        for kind, name in subjects:
            what = f'RoleBinding "{binding.role}/{binding.namespace}"' if binding.namespace else ""
            what = what or f'ClusterRoleBinding "{binding.role}"'
            source = f'{what} of ClusterRole "{binding.role}" to {kind} "{name}"'
            bound = _BoundRole(binding.namespace, "ClusterRole", binding.role, source)
            found[kind, name] = (*found.get((kind, name), ()), bound)
    return found


_BUILT_IN_ROLES = {
    role.name: _Role(
        role.rules, role.labels, ({"matchLabels": {role.aggregates: "true"}},) if role.aggregates else ()
    )
    for role in ROLES
}
_BUILT_IN_BOUND_ROLES = _built_in_bound_roles()
