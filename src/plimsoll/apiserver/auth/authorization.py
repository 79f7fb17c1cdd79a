"""Authorizer: decides about every request.

Administrators (`system:masters`) are allowed everything, a node what the Node authorizer grants it, and every
user what its roles grant. No part denies what another one allows. The grants of a user are cached until a
role or binding changes; `observe` must be called after every write to the store, so that no decision is older
than the last write.
"""

from __future__ import annotations

from typing import Any

from plimsoll.apiserver.auth.attributes import Attributes, Decision, StoreReader, forbidden_error
from plimsoll.apiserver.auth.node_authorizer import NodeAuthorizer
from plimsoll.apiserver.auth.rbac_rules import GrantIndex, PolicyRule, RoleGrant
from plimsoll.apiserver.auth.role_index import RESOURCES, RoleIndex
from plimsoll.apiserver.auth.users import MASTERS, User, node_name_of
from plimsoll.apiserver.storage.records import ObjectKey

#: Maximum number of users with cached grants.
_USERS = 4096

_ALLOWED = Decision(True, "")
_DENIED = Decision(False, "")
_RBAC = frozenset(RESOURCES)


class _UserGrants:
    """Grants of one user: cluster-wide, and by namespace."""

    __slots__ = ("everywhere", "local", "missing")

    def __init__(self, roles: RoleIndex, user: User) -> None:
        everywhere: list[RoleGrant] = []
        local: dict[str, list[RoleGrant]] = {}
        for namespace, grant in roles.grants_of(user):
            (local.setdefault(namespace, []) if namespace else everywhere).append(grant)
        self.everywhere = GrantIndex(everywhere)
        self.local = {namespace: GrantIndex(grants) for namespace, grants in local.items()}
        self.missing = tuple(roles.missing_roles_of(user))

    def explain_denial(self, namespace: str, reason: str) -> Decision:
        """Return a denial that names the bound roles that do not exist."""
        texts = dict.fromkeys(text for where, text in self.missing if where in ("", namespace))
        if texts:
            listed = next(iter(texts)) if len(texts) == 1 else f"[{', '.join(texts)}]"
            reason = f"{reason}\nRBAC: {listed}" if reason else f"RBAC: {listed}"
        return Decision(False, reason)


class Authorizer:
    """Authorizer of requests."""

    def __init__(self, reader: StoreReader) -> None:
        self.roles = RoleIndex(reader)
        self.nodes = NodeAuthorizer(reader)
        self.grants_by_user: dict[tuple[str, tuple[str, ...]], _UserGrants] = {}

    def authorize(self, attributes: Attributes) -> Decision:
        """Decide whether a request is allowed, and why."""
        user = attributes.user
        if MASTERS in user.groups:
            return _ALLOWED
        decision = _DENIED
        node = node_name_of(user)
        if node is not None:
            decision = self.nodes.authorize(node, attributes)
            if decision.allowed:
                return decision
        grants_of_user = self.grants_by_user.get((user.name, user.groups)) or self._prepare(user)
        found = grants_of_user.everywhere.find(attributes)
        if found is None and attributes.namespace:
            local = grants_of_user.local.get(attributes.namespace)
            found = local.find(attributes) if local is not None else None
        if found is None and grants_of_user.missing:
            return grants_of_user.explain_denial(attributes.namespace, decision.reason)
        return found or decision

    def allows(self, attributes: Attributes) -> bool:
        """Return whether a request is allowed."""
        return self.authorize(attributes).allowed

    def require(self, attributes: Attributes) -> None:
        """Raise ApiError 403 with Kubernetes' text unless a request is allowed."""
        decision = self.authorize(attributes)
        if not decision.allowed:
            raise forbidden_error(attributes, decision.reason)

    def observe(self, key: ObjectKey, tree: Any) -> None:
        """Update the indexes after a write; `tree` is the stored object, or None if it was deleted."""
        if key.resource in _RBAC:
            self.roles.stale = True
            self.grants_by_user.clear()
        else:
            self.nodes.observe(key, tree)

    async def warm_up(self) -> None:
        """Build the node graph in small steps; without it, the first request of a node waits until all
        pods have been read.
        """
        await self.nodes.graph.warm_up()

    def rules_for(self, user: User, namespace: str) -> tuple[PolicyRule, ...]:
        """Return all rules of a user that apply in a namespace (or, if empty, cluster-wide)."""
        grants_of_user = self.grants_by_user.get((user.name, user.groups)) or self._prepare(user)
        local = grants_of_user.local.get(namespace)
        grants = grants_of_user.everywhere.grants + (local.grants if local is not None else ())
        return tuple(grant.rule for grant in grants)

    def _prepare(self, user: User) -> _UserGrants:
        if len(self.grants_by_user) >= _USERS:
            self.grants_by_user.clear()
        grants_of_user = self.grants_by_user[user.name, user.groups] = _UserGrants(self.roles, user)
        return grants_of_user
