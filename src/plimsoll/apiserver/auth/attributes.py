"""Attributes and decisions of the authorizer, and its view of the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from plimsoll.apiserver import status
from plimsoll.apiserver.auth.users import User
from plimsoll.apiserver.storage.records import ObjectKey, StoredObject
from plimsoll.errors import ApiError

READ_VERBS = frozenset({"get", "list", "watch"})


class Attributes(NamedTuple):
    """Attributes of a request for authorization.

    `path` is set for non-resource requests only (`/healthz`), with the method in lower case as the verb.
    `fields` are the requirements of the field selector for one exact value: nodes may list only what they
    select by their own name.
    """

    user: User
    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    fields: tuple[tuple[str, str], ...] = ()


class Decision(NamedTuple):
    """Decision of an authorizer: whether the request is allowed, and the reason."""

    allowed: bool
    reason: str = ""


class ObjectPage(Protocol):
    """Page of stored objects."""

    @property
    def items(self) -> Sequence[StoredObject]: ...


class StoreReader(Protocol):
    """Interface to the store: get one object, or list a resource."""

    def get(self, key: ObjectKey) -> StoredObject | None: ...

    def list(self, resource: str, namespace: str | None = None) -> ObjectPage: ...


def describe_request(attributes: Attributes) -> str:
    """Describe a request in the words of kubectl's error messages."""
    who = f'User "{attributes.user.name}"'
    if attributes.path:
        return f'{who} cannot {attributes.verb} path "{attributes.path}"'
    what = attributes.resource + (f"/{attributes.subresource}" if attributes.subresource else "")
    text = f'{who} cannot {attributes.verb} resource "{what}" in API group "{attributes.group}"'
    if attributes.namespace:
        return f'{text} in the namespace "{attributes.namespace}"'
    return f"{text} at the cluster scope"


def forbidden_error(attributes: Attributes, reason: str = "") -> ApiError:
    """Create the error of a request that is not allowed."""
    tail = f"{describe_request(attributes)}{f': {reason}' if reason else ''}"
    if attributes.path:
        return ApiError(403, "Forbidden", f"forbidden: {tail}")
    return status.forbidden(attributes.group, attributes.resource, attributes.name, tail)
