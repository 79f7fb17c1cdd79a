"""Attributes of one request for admission policies, and the CEL variables made from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from plimsoll.api.quantity import Number
from plimsoll.apiserver.auth.users import User
from plimsoll.apiserver.registry.resource import Resource
from plimsoll.apiserver.registry.resources import SUBRESOURCES
from plimsoll.apiserver.request_info import RequestInfo

Tree = dict[str, Any]

CREATE, UPDATE, DELETE = "CREATE", "UPDATE", "DELETE"
#: Fields of a namespace's metadata that `namespaceObject` has.
_NAMESPACE_METADATA = frozenset(
    (
        *("name", "generateName", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp"),
        *("deletionTimestamp", "deletionGracePeriodSeconds", "labels", "annotations", "finalizers"),
    )
)


class KindName(NamedTuple):
    """Group, version and kind."""

    group: str
    version: str
    kind: str

    def __str__(self) -> str:
        return f"{self.group}/{self.version}, Kind={self.kind}"


class MatchedResource(NamedTuple):
    """Resource and version in which a policy sees the objects of a request."""

    resource: Resource
    version: str
    kind: KindName


@dataclass(slots=True)
class AdmissionAttributes:
    """One request: the object in the storage version (None for a deletion) and the stored one.

    `name` is empty if the server generates it. `convert` converts an object to a version of its resource,
    `to_storage` back to the storage version. Warnings of policies are added to `warnings`.
    """

    operation: str
    info: RequestInfo
    name: str
    tree: Tree | None
    old: Tree | None
    user: User
    options: Tree
    dry_run: bool
    convert: Callable[[Tree, Resource, str], Tree]
    to_storage: Callable[[Tree, Resource, str], Tree]
    warnings: list[str] = field(default_factory=list)
    #: Cost that policies may still spend in the event loop; None: only their own limits count.
    inline_cost: int | None = None

    @property
    def namespace(self) -> str:
        """Return the namespace; that of a stored Namespace is its own name."""
        if self.is_namespace and self.operation != CREATE:
            return self.name
        return self.info.namespace

    @property
    def is_namespace(self) -> bool:
        return self.info.resource.key == "namespaces"

    @property
    def has_own_kind(self) -> bool:
        """Return whether the object is of the resource's kind, and not a Binding, Scale or the like."""
        subresource = self.info.subresource
        return not subresource or SUBRESOURCES[subresource].group is None

    def kind_in(self, resource: Resource, version: str) -> KindName:
        """Return the kind of the object in a version of the resource."""
        if self.has_own_kind:
            return KindName(resource.group, version, resource.kind)
        body = SUBRESOURCES[self.info.subresource]
        return KindName(body.group or "", body.version, body.kind)

    @property
    def requested(self) -> MatchedResource:
        """Return the resource and version of the request itself."""
        resource, version = self.info.resource, self.info.version
        return MatchedResource(resource, version, self.kind_in(resource, version))

    def in_version(self, tree: Tree | None, matched: MatchedResource) -> Tree | None:
        """Return an object in the version that a policy matched."""
        if tree is None or not self.has_own_kind:
            return tree
        return self.convert(tree, matched.resource, matched.version)

    def request_variable(self, matched: MatchedResource) -> Tree:
        """Return the variable `request`; empty fields are absent, as in an AdmissionRequest."""
        requested, info, user = self.requested, self.info, self.user
        person = {
            "username": user.name,
            "uid": user.uid,
            "groups": list(user.groups),
            "extra": {name: list(values) for name, values in user.extra.items()},
        }
        optional = {
            "subResource": info.subresource,
            "requestSubResource": info.subresource,
            "name": self.name,
            "namespace": self.namespace,
        }
        return {
            "kind": _kind_tree(matched.kind),
            "resource": _resource_tree(matched),
            "requestKind": _kind_tree(requested.kind),
            "requestResource": _resource_tree(requested),
            **{name: text for name, text in optional.items() if text},
            "operation": self.operation,
            "userInfo": {name: value for name, value in person.items() if value},
            "dryRun": self.dry_run,
            "options": self.options,
        }


def namespace_variable(namespace: Tree | None) -> Tree | None:
    """Return the variable `namespaceObject`."""
    if namespace is None:
        return None
    metadata = namespace["metadata"]
    return {
        "metadata": {name: metadata[name] for name in metadata if name in _NAMESPACE_METADATA},
        "spec": namespace.get("spec") or {},
        "status": namespace.get("status") or {},
    }


def to_cel(value: Any) -> Any:
    """Return a JSON value as CEL reads it: numbers with a fraction are doubles."""
    if isinstance(value, dict):
        return {name: to_cel(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [to_cel(item) for item in value]
    return float(value.text) if isinstance(value, Number) else value


def object_labels(tree: Tree | None) -> Mapping[str, str] | None:
    """Return the labels of an object, None if there is no object."""
    metadata = tree.get("metadata") if isinstance(tree, dict) else None
    if not isinstance(metadata, dict):
        return None
    labels = metadata.get("labels")
    return labels if isinstance(labels, dict) else {}


def _kind_tree(kind: KindName) -> Tree:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _resource_tree(matched: MatchedResource) -> Tree:
    resource = matched.resource
    return {"group": resource.group, "version": matched.version, "resource": resource.plural}
