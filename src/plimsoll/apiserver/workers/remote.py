"""Store, authorizer and admission chain of a worker process, backed by the server.

The classes stand in for `Store`, `Authorizer` and `AdmissionChain`, so that `Api` runs in a worker unchanged;
they send the queries of `messages.py`. The server commits a write only if the object is still the one that
was read; otherwise `ObjectChangedError` ends the attempt, and `worker_process.py` starts another one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from plimsoll.api import codec
from plimsoll.apiserver.admission.chain import AdmissionChain
from plimsoll.apiserver.auth.attributes import Attributes, Decision
from plimsoll.apiserver.auth.authorization import Authorizer
from plimsoll.apiserver.auth.rbac_rules import PolicyRule
from plimsoll.apiserver.auth.role_index import RoleIndex
from plimsoll.apiserver.auth.users import User
from plimsoll.apiserver.context import ApiContext
from plimsoll.apiserver.request_info import RequestInfo
from plimsoll.apiserver.storage import ListPage, ObjectKey, Store, StoredObject
from plimsoll.apiserver.storage.store import Observer, check_size
from plimsoll.apiserver.workers import messages
from plimsoll.apiserver.workers.messages import (
    ConflictReply,
    DecisionReply,
    ErrorReply,
    ObjectsReply,
    RulesReply,
    ServerReply,
    WorkerQuery,
)

#: Sends a query to the server and waits for the reply.
SendQuery = Callable[[WorkerQuery], ServerReply]
Tree = dict[str, Any]
StoredObjects: TypeAlias = list[StoredObject]


class ObjectChangedError(Exception):
    """Error of a write whose object was changed concurrently."""


class RemoteStore(Store):
    """Store whose objects are in the server process; only what handling a request needs."""

    def __init__(self, send_query: SendQuery) -> None:
        self._send_query = send_query
        self._seen = 0
        self.reset()

    def reset(self) -> None:
        """Prepare for an attempt."""
        #: The revision that must be durable before the response is sent.
        self.awaited = 0
        #: True if the next write is charged to quotas; set by `RemoteAdmission`.
        self.charges = False

    @property
    def revision(self) -> int:
        """Return the newest revision that the server has reported."""
        return self._seen

    @property
    def durable(self) -> int:
        """Return the newest revision: waiting for durability is left to the server, see
        `JobResult.revision`.
        """
        return self._seen

    @property
    def write_error(self) -> str:
        return ""

    def get(self, key: ObjectKey) -> StoredObject | None:
        items = self._objects(messages.GetObject(key))
        return items[0] if items else None

    def list(self, resource: str, namespace: str | None = None, **paging: Any) -> ListPage:
        """Return all objects of a resource; a worker never pages."""
        assert not paging
        return ListPage(self._objects(messages.ListObjects(resource, namespace)), self._seen, 0)

    def observe(self, observer: Observer) -> None:
        """Do nothing: changes are observed in the server."""

    def create(self, key: ObjectKey, tree: Tree) -> StoredObject:
        return self._commit(key, tree, None)

    def update(self, key: ObjectKey, tree: Tree, expected: int) -> StoredObject:
        return self._commit(key, tree, expected)

    def delete(self, key: ObjectKey, tree: Tree, expected: int) -> StoredObject:
        return self._commit(key, tree, expected, deletes=True)

    async def wait_durable(self, revision: int) -> None:
        """Have the server wait for durability."""
        self.awaited = max(self.awaited, revision)

    def _objects(self, query: WorkerQuery) -> StoredObjects:
        reply = self._send_query(query)
        assert isinstance(reply, ObjectsReply)
        self._seen = reply.revision
        return reply.items

    def _commit(
        self, key: ObjectKey, tree: Tree, expected: int | None, *, deletes: bool = False
    ) -> StoredObject:
        # For the size; the server process sets the real one.
        tree["metadata"]["resourceVersion"] = str(self._seen + 1)
        raw = codec.encode(tree)
        if not deletes:
            check_size(raw)
        charges, self.charges = self.charges, False
        reply = self._send_query(messages.WriteObject(key, raw, expected, deletes, charges))
        if isinstance(reply, ConflictReply):
            raise ObjectChangedError
        if isinstance(reply, ErrorReply):
            raise reply.error()
        assert isinstance(reply, ObjectsReply)
        return reply.items[0]


class RemoteRoleIndex(RoleIndex):
    """Role index of the server."""

    def __init__(self, send_query: SendQuery) -> None:
        self._send_query = send_query

    def has_role(self, kind: str, name: str, namespace: str) -> bool:
        return self._rules(kind, name, namespace) is not None

    def rules_of(self, kind: str, name: str, namespace: str) -> tuple[PolicyRule, ...]:
        return _read_rules(self._rules(kind, name, namespace))

    def _rules(self, kind: str, name: str, namespace: str) -> list[tuple[tuple[str, ...], ...]] | None:
        reply = self._send_query(messages.GetRoleRules(kind, name, namespace))
        assert isinstance(reply, RulesReply)
        return reply.rules


class RemoteAuthorizer(Authorizer):
    """Authorizer of the server."""

    def __init__(self, send_query: SendQuery) -> None:
        self._send_query = send_query
        self.roles = RemoteRoleIndex(send_query)

    def authorize(self, attributes: Attributes) -> Decision:
        reply = self._send_query(messages.Authorize.of(attributes))
        assert isinstance(reply, DecisionReply)
        return Decision(reply.allowed, reply.reason)

    def rules_for(self, user: User, namespace: str) -> tuple[PolicyRule, ...]:
        reply = self._send_query(messages.GetUserRules(namespace))
        assert isinstance(reply, RulesReply)
        return _read_rules(reply.rules)

    def observe(self, key: ObjectKey, tree: Any) -> None:
        """Do nothing: changes are observed in the server."""


class RemoteAdmission(AdmissionChain):
    """Admission chain whose quota charge the server commits together with the write."""

    def __init__(self, context: ApiContext, store: RemoteStore) -> None:
        super().__init__(context, is_observed=False)
        self._remote = store

    def charge(self, info: RequestInfo, tree: Tree, old: Tree | None, *, dry_run: bool) -> None:
        """Reject early what exceeds a quota now; the server checks again when it commits."""
        super().charge(info, tree, old, dry_run=True)
        self._remote.charges = not dry_run


def _read_rules(rules: list[tuple[tuple[str, ...], ...]] | None) -> tuple[PolicyRule, ...]:
    return tuple(PolicyRule(*fields) for fields in rules or ())
