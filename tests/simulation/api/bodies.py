"""Bodies of writes: what the path names, and trees whose metadata a write may change."""

from __future__ import annotations

from typing import Any, NamedTuple

from plimsoll.apiserver.status import bad_request, invalid
from plimsoll.apiserver.validation.field_errors import FieldPath
from plimsoll.apiserver.validation.field_errors import invalid as invalid_field
from tests.simulation.api.kinds import Kind
from tests.simulation.api.store import Tree, encode

#: Fields that are often empty, and are kept so.
_OFTEN_EMPTY = (b'"securityContext":{}', b'"resources":{}', b'"status":{}')
#: Fields of metadata that the server omits when they are empty.
_OMITTED = frozenset(("labels", "annotations", "finalizers", "ownerReferences", "managedFields"))


class Target(NamedTuple):
    """Kind, object and subresource that the path of a request names."""

    kind: Kind
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def read_body(target: Target, body: Any, *, needs_name: bool = False, is_patch: bool = False) -> Tree:
    """Return the object of a body with metadata of its own; ApiError 400 if it is not what the path names."""
    kind = target.kind
    if not isinstance(body, dict):
        raise bad_request(f"the body must be a {kind.name} object")
    if is_patch and not (body.get("apiVersion") and body.get("kind")):
        raise bad_request("the patch result has no apiVersion and kind")
    if (body.get("kind") or kind.name) != kind.name or (
        body.get("apiVersion") or kind.api_version
    ) != kind.api_version:
        error = bad_request("the object provided is unrecognized")
        raise invalid("", "", "", [invalid_field(FieldPath("patch"), None, "kind")]) if is_patch else error
    tree = own_tree(kind, body)
    meta = tree["metadata"]
    if kind.namespaced:
        if meta.get("namespace") not in (None, "", target.namespace):
            raise bad_request(
                "the namespace of the provided object does not match the namespace of the request"
            )
        meta["namespace"] = target.namespace
    else:
        meta.pop("namespace", None)
    if target.name:
        if needs_name and not meta.get("name"):
            raise bad_request("name must be provided")
        if meta.get("name") not in (None, "", target.name):
            raise bad_request(f"the name of the object does not match the name on the URL ({target.name})")
        meta["name"] = target.name
    return tree


def has_empty_values(tree: Tree, subresource: str) -> bool:
    """Return whether a write has lists or maps that are empty where that is not usual."""
    part = tree.get("status") if subresource == "status" else {**tree, "metadata": None}
    raw = encode(part)
    usual = sum(map(raw.count, _OFTEN_EMPTY))
    return raw.count(b":{}") + raw.count(b":[]") > usual


def own_tree(kind: Kind, body: Tree) -> Tree:
    """Return a copy of the first level and of the metadata, without what the server omits."""
    meta = body.get("metadata") or {}
    meta = {
        name: value for name, value in meta.items() if value is not None and (value or name not in _OMITTED)
    }
    tree = {
        "kind": kind.name,
        "apiVersion": kind.api_version,
        "metadata": meta,
    }  # in the order of `Kind.head`
    for name, value in body.items():
        if name not in tree and value is not None:
            tree[name] = value
    return tree


def copy_field(before: Tree, meta: Tree, name: str) -> None:
    if name in before:
        meta[name] = before[name]
    else:
        meta.pop(name, None)
