"""Whether somebody may do something: asked for every request.

Owns `Authorizer`: administrators (`system:masters`) may do anything; a node what the Node authorizer grants
it; everybody what the roles bound to them grant. Nothing ever denies what another part allows. Per user the
grants are kept ready until a role or binding changes; `observe` must be told of every write to the store,
right after it, so that no decision is older than the write before it.
"""

from __future__ import annotations

from typing import Any

from plimsoll.apiserver.auth.attributes import Attributes, Decision, ObjectReader, forbidden_error
from plimsoll.apiserver.auth.node_authorizer import NodeAuthorizer
from plimsoll.apiserver.auth.rbac_rules import GrantIndex, PolicyRule, RoleGrant
from plimsoll.apiserver.auth.role_index import RESOURCES, RoleIndex
from plimsoll.apiserver.auth.users import MASTERS, User, node_name_of
from plimsoll.apiserver.storage.records import ObjectKey

#: Users whose grants are kept ready at most.
_USERS = 4096

_ALLOWED = Decision(True, "")
_DENIED = Decision(False, "")
_RBAC = frozenset(RESOURCES)


class _UserGrants:
    """The grants of one user: everywhere, and by namespace."""

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
        """A denial that names the roles that should have been there."""
        texts = dict.fromkeys(text for where, text in self.missing if where in ("", namespace))
        if texts:
            listed = next(iter(texts)) if len(texts) == 1 else f"[{', '.join(texts)}]"
            reason = f"{reason}\nRBAC: {listed}" if reason else f"RBAC: {listed}"
        return Decision(False, reason)


class Authorizer:
    """Answers whether a request is allowed."""

    def __init__(self, reader: ObjectReader) -> None:
        self.roles = RoleIndex(reader)
        self.nodes = NodeAuthorizer(reader)
        self._grants_by_user: dict[tuple[str, tuple[str, ...]], _UserGrants] = {}

    def authorize(self, attributes: Attributes) -> Decision:
        """Whether a request is allowed, and by what."""
        user = attributes.user
        if MASTERS in user.groups:
            return _ALLOWED
        decision = _DENIED
        node = node_name_of(user)
        if node is not None:
            decision = self.nodes.authorize(node, attributes)
            if decision.allowed:
                return decision
        grants_of_user = self._grants_by_user.get((user.name, user.groups)) or self._prepare(user)
        found = grants_of_user.everywhere.find(attributes)
        if found is None and attributes.namespace:
            local = grants_of_user.local.get(attributes.namespace)
            found = local.find(attributes) if local is not None else None
        if found is None and grants_of_user.missing:
            return grants_of_user.explain_denial(attributes.namespace, decision.reason)
        return found or decision

    def allows(self, attributes: Attributes) -> bool:
        """Whether a request is allowed."""
        return self.authorize(attributes).allowed

    def require(self, attributes: Attributes) -> None:
        """Let a request pass, or refuse it with ApiError 403 in Kubernetes' words."""
        decision = self.authorize(attributes)
        if not decision.allowed:
            raise forbidden_error(attributes, decision.reason)

    def observe(self, key: ObjectKey, tree: Any) -> None:
        """Take note of a write: the object as stored, or None if it is gone."""
        if key.resource in _RBAC:
            self.roles.stale = True
            self._grants_by_user.clear()
        else:
            self.nodes.observe(key, tree)

    async def warm_up(self) -> None:
        """Prepare for the questions of nodes bit by bit; without it, the first of them waits until all pods
        have been looked at."""
        await self.nodes.graph.warm_up()

    def rules_for(self, user: User, namespace: str) -> tuple[PolicyRule, ...]:
        """All rules of a user that count in a namespace (or, if empty, everywhere)."""
        grants_of_user = self._grants_by_user.get((user.name, user.groups)) or self._prepare(user)
        local = grants_of_user.local.get(namespace)
        grants = grants_of_user.everywhere.grants + (local.grants if local is not None else ())
        return tuple(grant.rule for grant in grants)

    def _prepare(self, user: User) -> _UserGrants:
        if len(self._grants_by_user) >= _USERS:
            self._grants_by_user.clear()
        grants_of_user = self._grants_by_user[user.name, user.groups] = _UserGrants(self.roles, user)
        return grants_of_user
