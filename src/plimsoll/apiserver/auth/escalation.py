"""Privilege escalation check of writes to roles and bindings.

The writer of a role or binding must have every permission that it grants, or the right to `escalate` that
role, or to `bind` it. Administrators (`system:masters`) are exempt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from plimsoll.apiserver import status
from plimsoll.apiserver.auth.attributes import Attributes
from plimsoll.apiserver.auth.authorization import Authorizer
from plimsoll.apiserver.auth.rbac_rules import ALL, PolicyRule, path_matches, quote
from plimsoll.apiserver.auth.role_index import (
    CLUSTER_BINDINGS,
    CLUSTER_ROLES,
    LOCAL_BINDINGS,
    LOCAL_ROLES,
    read_role_ref,
    read_rules,
)
from plimsoll.apiserver.auth.users import MASTERS, User
from plimsoll.apiserver.json_values import mapping, text
from plimsoll.errors import ApiError

RBAC = "rbac.authorization.k8s.io"
#: Maximum number of single rights of a role that are checked one by one. DIFF: Kubernetes has no limit; see
#: test_a_huge_role_costs_little.
_MAX_RIGHTS = 10_000
_EVERYTHING = (PolicyRule((ALL,), (ALL,), (ALL,)), PolicyRule((ALL,), paths=(ALL,)))
#: Fields that garbage collection changes; such a write grants nothing.
_GC_FIELDS = frozenset({"ownerReferences", "finalizers", "managedFields", "selfLink", "resourceVersion"})


def check_escalation(
    user: User,
    resource_key: str,
    tree: Any,
    old: Any,
    authorizer: Authorizer,
    *,
    namespace: str = "",
    name: str = "",
) -> None:
    """Reject (ApiError 403) a role or binding that grants what its writer does not have; other objects pass.

    `old` is the existing object, None on creation; namespace and name are those of the path.
    """
    if resource_key not in _CHECKED or MASTERS in user.groups:
        return
    if old is not None and _is_only_gc_change(mapping(tree), mapping(old)):
        return
    metadata = mapping(mapping(tree).get("metadata"))
    target_namespace = namespace or text(metadata.get("namespace"))
    named = name or text(metadata.get("name"))
    if resource_key in (CLUSTER_ROLES, LOCAL_ROLES):
        _check_role(user, resource_key, tree, old, authorizer, target_namespace, named)
    else:
        _check_binding(user, resource_key, tree, authorizer, target_namespace, named)


_CHECKED = frozenset({CLUSTER_ROLES, LOCAL_ROLES, CLUSTER_BINDINGS, LOCAL_BINDINGS})


def _check_role(
    user: User, resource: str, tree: Any, old: Any, authorizer: Authorizer, namespace: str, name: str
) -> None:
    plural = resource.partition(".")[0]
    if authorizer.allows(Attributes(user, "escalate", RBAC, "*", plural, "", namespace, name)):
        return
    _confirm_no_escalation(user, plural, name, read_rules(tree), authorizer, namespace)
    # An aggregating role may get any permission later.
    aggregates = resource == CLUSTER_ROLES and (_aggregates(tree) or _aggregates(old))
    if aggregates and any(uncovered(authorizer.rules_for(user, ""), _EVERYTHING)):
        why = "must have cluster-admin privileges to use the aggregationRule"
        raise status.forbidden(RBAC, plural, name, why)


def _check_binding(
    user: User, resource: str, tree: Any, authorizer: Authorizer, namespace: str, name: str
) -> None:
    kind, role = read_role_ref(tree)
    plural = {"ClusterRole": "clusterroles", "Role": "roles"}.get(kind, "")
    if plural and authorizer.allows(Attributes(user, "bind", RBAC, "*", plural, "", namespace, role)):
        return
    if not authorizer.roles.has_role(kind, role, namespace):
        # It would grant whatever a role of that name allows later.
        raise status.not_found(RBAC, resource.partition(".")[0], role)
    rules = authorizer.roles.rules_of(kind, role, namespace)
    _confirm_no_escalation(user, resource.partition(".")[0], name, rules, authorizer, namespace)


def _confirm_no_escalation(
    user: User, plural: str, name: str, rules: Sequence[PolicyRule], authorizer: Authorizer, namespace: str
) -> None:
    if sum(_count_rights(rule) for rule in rules) > _MAX_RIGHTS:
        owned = authorizer.rules_for(user, namespace)
        if not all(any(_covers(own, rule) for own in owned) for rule in rules):
            raise status.forbidden(
                RBAC, plural, name, f"the role holds more than {_MAX_RIGHTS} rights; split it"
            )
        return
    missing = list(uncovered(authorizer.rules_for(user, namespace), rules))
    if missing:
        raise _escalation_error(user, plural, name, missing)


def _escalation_error(user: User, plural: str, name: str, missing: Sequence[PolicyRule]) -> ApiError:
    """Create the error; permissions that differ in their verb only are one line."""
    verbs: dict[PolicyRule, list[str]] = {}
    for part in missing:
        without = PolicyRule((), part.groups, part.resources, part.names, part.paths)
        verbs.setdefault(without, []).extend(part.verbs)
    lines = sorted(
        str(PolicyRule(tuple(dict.fromkeys(listed)), rule.groups, rule.resources, rule.names, rule.paths))
        for rule, listed in verbs.items()
    )
    shown = "\n".join(lines[:20]) + (f"\nand {len(lines) - 20} more" if len(lines) > 20 else "")
    who = f'user "{user.name}" (groups={quote(user.groups)})'
    why = f"{who} is attempting to grant RBAC permissions not currently held:\n{shown}"
    return status.forbidden(RBAC, plural, name, why)


def uncovered(owned: Sequence[PolicyRule], wanted: Sequence[PolicyRule]) -> Iterator[PolicyRule]:
    """Yield the single permissions of `wanted` that no rule of `owned` covers."""
    for rule in wanted:
        if not any(_covers(own, rule) for own in owned):
            for part in break_down(rule):
                if not any(_covers(own, part) for own in owned):
                    yield part


def break_down(rule: PolicyRule) -> Iterator[PolicyRule]:
    """Split a rule into rules of one verb, group, resource and name, or of one verb and path."""
    names: tuple[str | None, ...] = rule.names or (None,)
    for group, resource, verb, name in product(rule.groups, rule.resources, rule.verbs, names):
        yield PolicyRule((verb,), (group,), (resource,), (name,) if name is not None else ())
    for path, verb in product(rule.paths, rule.verbs):
        yield PolicyRule((verb,), paths=(path,))


def _count_rights(rule: PolicyRule) -> int:
    return len(rule.verbs) * (
        len(rule.groups) * len(rule.resources) * max(1, len(rule.names)) + len(rule.paths)
    )


def _covers(own: PolicyRule, part: PolicyRule) -> bool:
    """Return whether one rule covers all of another."""
    if ALL not in own.verbs and not set(part.verbs) <= set(own.verbs):
        return False
    if ALL not in own.groups and not set(part.groups) <= set(own.groups):
        return False
    if ALL not in own.resources and not all(_has_resource(own, resource) for resource in part.resources):
        return False
    if own.names and (not part.names or not set(part.names) <= set(own.names)):
        return False
    return all(any(path == mine or _within(mine, path) for mine in own.paths) for path in part.paths)


def _has_resource(own: PolicyRule, resource: str) -> bool:
    _, slash, subresource = resource.partition("/")
    return resource in own.resources or (bool(slash) and f"*/{subresource}" in own.resources)


def _within(pattern: str, path: str) -> bool:
    return pattern.endswith(ALL) and path_matches(pattern, path)


def _aggregates(tree: Any) -> bool:
    return bool(mapping(mapping(tree).get("aggregationRule")).get("clusterRoleSelectors"))


def _is_only_gc_change(tree: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    """Return whether only fields that garbage collection changes are different."""

    def rest(of: Mapping[str, Any]) -> dict[str, Any]:
        metadata = mapping(of.get("metadata"))
        return {**of, "metadata": {k: v for k, v in metadata.items() if k not in _GC_FIELDS}}

    return rest(tree) == rest(old)
