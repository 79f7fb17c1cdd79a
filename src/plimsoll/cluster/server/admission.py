"""Admission: what the rest of the cluster has to say about a write.

Owns fetching what the rules of `plimsoll.validate.admission` need from the store (namespaces, priority
classes, quotas, service accounts) and the order in which they are asked. Namespace before anything else;
quota last, since it charges what all the others have settled.
"""

from __future__ import annotations

from typing import Any

from plimsoll.api import codec
from plimsoll.cluster.server.context import Context
from plimsoll.cluster.server.route import Route
from plimsoll.cluster.server.security.escalation import check_escalation
from plimsoll.cluster.server.security.restriction import restrict_driver, restrict_node
from plimsoll.cluster.server.security.users import User
from plimsoll.cluster.server.status import forbidden, not_found
from plimsoll.cluster.store import Key

Tree = dict[str, Any]


class Admission:
    """Admission for one API."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._store = context.store

    def admit_namespace(self, route: Route) -> None:
        """New objects need a namespace that exists and is not on its way out; ApiError 404 or 403."""
        if not route.resource.namespaced or not route.resource.stored:
            return
        stored = self._store.get(Key("namespaces", "", route.namespace))
        if stored is None:
            raise not_found("", "namespaces", route.namespace)
        if b'"deletionTimestamp"' in stored.raw and _is_ending(codec.decode_tree(stored.raw)):
            why = (
                f"unable to create new content in namespace {route.namespace} because it is being terminated"
            )
            raise forbidden(route.group, route.plural, "", why)

    def admit(
        self, operation: str, route: Route, tree: Tree, old: Tree | None, user: User, dry_run: bool
    ) -> list[str]:
        """Ask all the rules about a write; returns warnings, raises ApiError. May fill in the tree."""
        self._restrict(user, operation, route, tree, old)
        check_escalation(
            user,
            route.resource.key,
            tree,
            old,
            self._context.authorizer,
            namespace=route.namespace,
            name=tree["metadata"].get("name", ""),
        )
        return []

    def admit_deletion(self, route: Route, tree: Tree, user: User) -> None:
        """Ask the rules about a deletion; raises ApiError."""
        self._restrict(user, "delete", route, None, tree)

    def admit_eviction(self, route: Route, eviction: Any, user: User) -> None:
        """Nodes evict their own pods only; raises ApiError."""
        self._restrict(user, "create", route, eviction, None)

    def admit_token(self, route: Route, request: Any, user: User) -> None:
        """Nodes ask for tokens of their own pods only; raises ApiError."""
        self._restrict(user, "create", route, request, None)

    def _restrict(self, user: User, verb: str, route: Route, tree: Any, old: Any) -> None:
        restrict_node(
            user,
            verb,
            route.resource.key,
            route.subresource,
            tree,
            old,
            self._store,
            namespace=route.namespace,
            name=route.name,
            allows=self._context.authorizer.allows,
        )
        restrict_driver(user, route.resource.key, tree, old)


def _is_ending(namespace: Tree) -> bool:
    return bool(namespace["metadata"].get("deletionTimestamp"))
