"""Write by a node, as the checks of `node_restriction.py` and `pod_restriction.py` receive it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from plimsoll.api.codec import decode_tree
from plimsoll.apiserver import status
from plimsoll.apiserver.auth.attributes import Attributes, StoreReader
from plimsoll.apiserver.auth.users import User
from plimsoll.apiserver.json_values import mapping
from plimsoll.apiserver.storage.records import ObjectKey
from plimsoll.errors import ApiError


class NodeWrite(NamedTuple):
    """Write by a node: `operation` is create, update or delete; `tree` and `old` are empty if there is
    none.
    """

    user: User
    node: str
    operation: str
    resource: str
    subresource: str
    namespace: str
    name: str
    tree: Mapping[str, Any]
    old: Mapping[str, Any]
    reader: StoreReader
    allows: Callable[[Attributes], bool]

    def refusal(self, why: str) -> ApiError:
        """Create ApiError 403 with a reason."""
        plural, _, group = self.resource.partition(".")
        return status.forbidden(group, plural, self.name, why)

    def unexpected(self) -> ApiError:
        """Create ApiError 403 for an operation that nodes never need."""
        return self.refusal(f'unexpected operation "{self.operation.upper()}"')

    def find(self, resource: str, namespace: str, name: str) -> Mapping[str, Any] | None:
        """Return an object of the store, or None."""
        stored = self.reader.get(ObjectKey(resource, namespace, name))
        return mapping(decode_tree(stored.raw)) if stored is not None else None

    def require(self, resource: str, namespace: str, name: str) -> Mapping[str, Any]:
        """Return an object of the store; ApiError 404."""
        tree = self.find(resource, namespace, name)
        if tree is None:
            raise status.not_found("", resource, name)
        return tree
