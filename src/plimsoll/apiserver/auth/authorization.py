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

_MASTER = Decision(True, "")
_DENIED = Decision(False, "")
_RBAC = frozenset(RESOURCES)


class _Rights:
    """The grants of one user: everywhere, and by namespace."""

    __slots__ = ("everywhere", "local", "missing")

    def __init__(self, policy: RoleIndex, user: User) -> None:
        everywhere: list[RoleGrant] = []
        local: dict[str, list[RoleGrant]] = {}
        for namespace, grant in policy.grants_of(user):
            (local.setdefault(namespace, []) if namespace else everywhere).append(grant)
        self.everywhere = GrantIndex(everywhere)
        self.local = {namespace: GrantIndex(grants) for namespace, grants in local.items()}
        self.missing = tuple(policy.missing_roles_of(user))

    def explain_denial(self, namespace: str, reason: str) -> Decision:
        """A denial that names the roles that should have been there."""
        texts = dict.fromkeys(text for where, text in self.missing if where in ("", namespace))
        if texts:
            told = next(iter(texts)) if len(texts) == 1 else f"[{', '.join(texts)}]"
            reason = f"{reason}\nRBAC: {told}" if reason else f"RBAC: {told}"
        return Decision(False, reason)


class Authorizer:
    """Answers whether a request is allowed."""

    def __init__(self, reader: ObjectReader) -> None:
        self.policy = RoleIndex(reader)
        self.nodes = NodeAuthorizer(reader)
        self._rights: dict[tuple[str, tuple[str, ...]], _Rights] = {}

    def authorize(self, asked: Attributes) -> Decision:
        """Whether a request is allowed, and by what."""
        user = asked.user
        if MASTERS in user.groups:
            return _MASTER
        decision = _DENIED
        node = node_name_of(user)
        if node is not None:
            decision = self.nodes.authorize(node, asked)
            if decision.allowed:
                return decision
        rights = self._rights.get((user.name, user.groups)) or self._prepare(user)
        found = rights.everywhere.find(asked)
        if found is None and asked.namespace:
            local = rights.local.get(asked.namespace)
            found = local.find(asked) if local is not None else None
        if found is None and rights.missing:
            return rights.explain_denial(asked.namespace, decision.reason)
        return found or decision

    def allows(self, asked: Attributes) -> bool:
        """Whether a request is allowed."""
        return self.authorize(asked).allowed

    def demand(self, asked: Attributes) -> None:
        """Let a request pass, or refuse it with ApiError 403 in Kubernetes' words."""
        decision = self.authorize(asked)
        if not decision.allowed:
            raise forbidden_error(asked, decision.reason)

    def observe(self, key: ObjectKey, tree: Any) -> None:
        """Take note of a write: the object as stored, or None if it is gone."""
        if key.resource in _RBAC:
            self.policy.stale = True
            self._rights.clear()
        else:
            self.nodes.observe(key, tree)

    async def warm(self) -> None:
        """Prepare for the questions of nodes bit by bit; without it, the first of them waits until all pods
        have been looked at."""
        await self.nodes.relations.warm()

    def rules_for(self, user: User, namespace: str) -> tuple[PolicyRule, ...]:
        """All rules of a user that count in a namespace (or, if empty, everywhere)."""
        rights = self._rights.get((user.name, user.groups)) or self._prepare(user)
        local = rights.local.get(namespace)
        grants = rights.everywhere.grants + (local.grants if local is not None else ())
        return tuple(grant.rule for grant in grants)

    def _prepare(self, user: User) -> _Rights:
        if len(self._rights) >= _USERS:
            self._rights.clear()
        rights = self._rights[user.name, user.groups] = _Rights(self.policy, user)
        return rights
