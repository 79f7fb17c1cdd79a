"""What is asked for, and the answer.

Owns the question the authorizer is put for every request, the words of a refusal, and what the security of
the server reads of the store.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from plimsoll.apiserver import status
from plimsoll.apiserver.auth.users import User
from plimsoll.apiserver.storage.records import ObjectKey, StoredObject
from plimsoll.errors import ApiError

READ_VERBS = frozenset({"get", "list", "watch"})


class Attributes(NamedTuple):
    """One request, as far as rights go.

    `path` is set for requests outside the resources only (`/healthz`), with the method in lower case as the
    verb. `fields` are the requirements of the field selector that ask for one exact value: nodes may list
    only what they select by their own name.
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
    """Whether a request is allowed, and what allowed it or is known of why not."""

    allowed: bool
    reason: str = ""


class ObjectPage(Protocol):
    """A page of stored objects."""

    @property
    def items(self) -> Sequence[StoredObject]: ...


class ObjectReader(Protocol):
    """What is read of the store: one object, or all of a resource."""

    def get(self, key: ObjectKey) -> StoredObject | None: ...

    def list(self, resource: str, namespace: str | None = None) -> ObjectPage: ...


def describe_request(attributes: Attributes) -> str:
    """The request in the words kubectl users know."""
    who = f'User "{attributes.user.name}"'
    if attributes.path:
        return f'{who} cannot {attributes.verb} path "{attributes.path}"'
    what = attributes.resource + (f"/{attributes.subresource}" if attributes.subresource else "")
    text = f'{who} cannot {attributes.verb} resource "{what}" in API group "{attributes.group}"'
    if attributes.namespace:
        return f'{text} in the namespace "{attributes.namespace}"'
    return f"{text} at the cluster scope"


def forbidden_error(attributes: Attributes, reason: str = "") -> ApiError:
    """The refusal of a request that is not allowed."""
    tail = f"{describe_request(attributes)}{f': {reason}' if reason else ''}"
    if attributes.path:
        return ApiError(403, "Forbidden", f"forbidden: {tail}")
    return status.forbidden(attributes.group, attributes.resource, attributes.name, tail)
