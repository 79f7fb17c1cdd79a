"""Server side of one worker job: answers queries and commits the write.

A worker reads, validates and patches while other requests are served, so what it read may be outdated;
`WriteObject` therefore checks the object's revision, charges quotas and writes without yielding the event
loop. Decisions of the authorizer and other objects that a write depends on are as of the time they were read,
as in kube-apiserver.
"""

from __future__ import annotations

from plimsoll.api import codec
from plimsoll.apiserver.admission.chain import AdmissionChain
from plimsoll.apiserver.auth.rbac_rules import PolicyRule
from plimsoll.apiserver.auth.users import User
from plimsoll.apiserver.context import ApiContext
from plimsoll.apiserver.request_info import RequestInfo
from plimsoll.apiserver.storage import StoredObject
from plimsoll.apiserver.workers.messages import (
    Authorize,
    ConflictReply,
    DecisionReply,
    ErrorReply,
    GetObject,
    GetRoleRules,
    GetUserRules,
    ListObjects,
    ObjectsReply,
    RulesReply,
    ServerReply,
    WorkerQuery,
    WriteObject,
)
from plimsoll.errors import ApiError


class JobSession:
    """Session of one worker job."""

    def __init__(self, context: ApiContext, admission: AdmissionChain, info: RequestInfo, user: User) -> None:
        self._store = context.store
        self._authorizer = context.authorizer
        self._admission = admission
        self._info = info
        self._user = user

    def handle_query(self, query: WorkerQuery) -> ServerReply:
        """Reply to a query of the worker, without yielding the event loop."""
        if isinstance(query, GetObject):
            stored = self._store.get(query.key)
            return self._objects([] if stored is None else [stored])
        if isinstance(query, ListObjects):
            return self._objects(self._store.list(query.resource, query.namespace).items)
        if isinstance(query, Authorize):
            return DecisionReply(*self._authorizer.authorize(query.attributes()))
        if isinstance(query, GetUserRules):
            return _rules(self._authorizer.rules_for(self._user, query.namespace))
        if isinstance(query, GetRoleRules):
            role, roles = (query.kind, query.name, query.namespace), self._authorizer.roles
            return _rules(roles.rules_of(*role)) if roles.has_role(*role) else RulesReply(None)
        try:
            return self._commit(query)
        except ApiError as error:
            return ErrorReply.of(error)

    def _objects(self, items: list[StoredObject]) -> ObjectsReply:
        return ObjectsReply(items, self._store.revision)

    def _commit(self, write: WriteObject) -> ServerReply:
        """Write the object if it is still the one that the worker read."""
        stored = self._store.get(write.key)
        if (None if stored is None else stored.revision) != write.expected:
            return ConflictReply()
        if stored is None:
            self._admission.admit_namespace(self._info)  # may have been deleted since
        tree = codec.decode_tree(write.raw)
        if write.charges:
            old = None if stored is None else codec.decode_tree(stored.raw)
            self._admission.charge(self._info, tree, old, dry_run=False)
        if stored is None:
            return self._objects([self._store.create(write.key, tree)])
        commit = self._store.delete if write.deletes else self._store.update
        return self._objects([commit(write.key, tree, stored.revision)])


def _rules(rules: tuple[PolicyRule, ...]) -> RulesReply:
    return RulesReply([(rule.verbs, rule.groups, rule.resources, rule.names, rule.paths) for rule in rules])
