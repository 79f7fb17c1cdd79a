"""Messages between the server and its worker processes.

A frame is four bytes of length and a msgpack message. The server sends a `WorkerSetup` and then one
`WorkerJob` after another; while a worker handles a job it sends queries, each of which gets exactly one
reply; a `JobResult` ends the job. Messages contain data only, never code.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeAlias

import msgspec

from plimsoll.apiserver.auth.attributes import Attributes
from plimsoll.apiserver.auth.users import User
from plimsoll.apiserver.request import ApiRequest
from plimsoll.apiserver.storage import ObjectKey, StoredObject
from plimsoll.errors import ApiError

HEADER_BYTES = 4


class WorkerSetup(msgspec.Struct, tag=True, array_like=True):
    """First message to a worker: settings for all its jobs."""

    gates: frozenset[str]
    #: Limits on address space and CPU time that the worker sets for itself.
    memory_bytes: int
    cpu_seconds: int


class WireUser(msgspec.Struct, array_like=True):
    """`User` in a message."""

    name: str
    uid: str
    groups: tuple[str, ...]
    extra: dict[str, tuple[str, ...]]

    @classmethod
    def of(cls, user: User) -> WireUser:
        return cls(user.name, user.uid, user.groups, dict(user.extra))

    def user(self) -> User:
        return User(self.name, self.uid, self.groups, self.extra)


class WorkerJob(msgspec.Struct, tag=True, array_like=True):
    """Authorized request, with the time and the UID of a new object."""

    method: str
    path: str
    user: WireUser
    query: list[tuple[str, str]]
    headers: dict[str, str]
    body: bytes
    now: datetime
    uid: str

    @classmethod
    def of(cls, request: ApiRequest, now: datetime, uid: str) -> WorkerJob:
        """Create the job of a request, without headers that `Api` does not read, such as credentials."""
        headers = {name: request.headers[name] for name in _HEADERS if name in request.headers}
        user = WireUser.of(request.user)
        return cls(request.method, request.path, user, list(request.query), headers, request.body, now, uid)

    def request(self) -> ApiRequest:
        return ApiRequest(self.method, self.path, self.user.user(), self.query, self.headers, self.body)


_HEADERS = ("accept", "content-type", "user-agent")


# -- queries of a worker


class GetObject(msgspec.Struct, tag=True, array_like=True):
    """Query for the current state of an object."""

    key: ObjectKey


class ListObjects(msgspec.Struct, tag=True, array_like=True):
    """Query for all objects of a resource, in one namespace or in all."""

    resource: str
    namespace: str | None


class Authorize(msgspec.Struct, tag=True, array_like=True):
    """Query for a decision of the authorizer about a user: that of the job, or a service account that an
    admission policy names.
    """

    user: WireUser
    verb: str
    group: str
    version: str
    resource: str
    subresource: str
    namespace: str
    name: str
    path: str
    fields: list[tuple[str, str]]

    @classmethod
    def of(cls, attributes: Attributes) -> Authorize:
        return cls(WireUser.of(attributes.user), *attributes[1:9], list(attributes.fields))

    def attributes(self) -> Attributes:
        return Attributes(
            self.user.user(),
            self.verb,
            self.group,
            self.version,
            self.resource,
            self.subresource,
            self.namespace,
            self.name,
            self.path,
            tuple(self.fields),
        )


class GetUserRules(msgspec.Struct, tag=True, array_like=True):
    """Query for the RBAC rules of the user of the job in a namespace."""

    namespace: str


class GetRoleRules(msgspec.Struct, tag=True, array_like=True):
    """Query for the rules of a role that a binding names."""

    kind: str
    name: str
    namespace: str


class WriteObject(msgspec.Struct, tag=True, array_like=True):
    """Write to commit if the object is still at `expected` (None: absent)."""

    key: ObjectKey
    raw: bytes
    expected: int | None
    deletes: bool = False
    #: Charge it to the quotas of its namespace atomically.
    charges: bool = False


class JobResult(msgspec.Struct, tag=True, array_like=True):
    """End of a job: the response, and the revision that must be durable before it is sent."""

    status: int
    body: bytes
    content_type: str
    headers: dict[str, str]
    revision: int
    #: The worker has grown too large to be used again.
    retire: bool = False


class WorkerReady(msgspec.Struct, tag=True, array_like=True):
    """Message of a worker that has started and waits for jobs."""


WorkerQuery: TypeAlias = GetObject | ListObjects | Authorize | GetUserRules | GetRoleRules | WriteObject
FromWorker: TypeAlias = WorkerQuery | JobResult | WorkerReady


# -- replies to them


class ObjectsReply(msgspec.Struct, tag=True, array_like=True):
    """Stored objects at the server's current revision."""

    items: list[StoredObject]
    revision: int


class DecisionReply(msgspec.Struct, tag=True, array_like=True):
    """Decision of the authorizer."""

    allowed: bool
    reason: str


class RulesReply(msgspec.Struct, tag=True, array_like=True):
    """RBAC rules: verbs, groups, resources, names, paths; None if there is no such role."""

    rules: list[tuple[tuple[str, ...], ...]] | None


class ConflictReply(msgspec.Struct, tag=True, array_like=True):
    """Reply to a write whose object has changed since it was read: the request must be handled again."""


class ErrorReply(msgspec.Struct, tag=True, array_like=True):
    """Reply to a rejected write: the fields of an `ApiError`."""

    code: int
    reason: str
    message: str
    details: dict[str, Any]
    headers: dict[str, str]

    @classmethod
    def of(cls, error: ApiError) -> ErrorReply:
        return cls(error.code, error.reason, error.message, error.details, error.headers)

    def error(self) -> ApiError:
        return ApiError(self.code, self.reason, self.message, self.details, self.headers)


ServerReply: TypeAlias = ObjectsReply | DecisionReply | RulesReply | ConflictReply | ErrorReply
ToWorker: TypeAlias = WorkerSetup | WorkerJob | ServerReply

_encoder = msgspec.msgpack.Encoder()
_from_worker: msgspec.msgpack.Decoder[FromWorker] = msgspec.msgpack.Decoder(FromWorker)
_to_worker: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)


def encode_frame(message: FromWorker | ToWorker) -> bytes:
    """Encode a message with its length before it."""
    body = _encoder.encode(message)
    return len(body).to_bytes(HEADER_BYTES, "big") + body


def decode_from_worker(body: bytes) -> FromWorker:
    return _from_worker.decode(body)


def decode_to_worker(body: bytes) -> ToWorker:
    return _to_worker.decode(body)
