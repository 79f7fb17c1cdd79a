"""Strategy of a write: selects the preparation and validation for the kind of a request.

Kinds with rules of their own use them; the others are stored generically. Also collects the cluster state
that the rules need.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from plimsoll.api import codec
from plimsoll.apiserver.auth.claim_status_writers import caller_for
from plimsoll.apiserver.auth.users import User
from plimsoll.apiserver.context import ApiContext
from plimsoll.apiserver.handlers.conversion import convert_to_storage, convert_tree
from plimsoll.apiserver.request_info import RequestInfo
from plimsoll.apiserver.status import bad_request
from plimsoll.apiserver.storage import ObjectKey
from plimsoll.apiserver.validation.write import PreparedObject, Write, prepare, prepare_generic
from plimsoll.errors import DecodeError

Tree = dict[str, Any]


def prepare_write(
    context: ApiContext, info: RequestInfo, tree: Tree, old: Tree | None, user: User
) -> PreparedObject:
    """Prepare and validate an object in the storage version; ApiError 400 if it is not an object of its
    kind.
    """
    resource = info.resource
    if resource.stored_as:  # the rules are those of the served version
        tree = convert_tree(tree, resource, info.version)
        old = convert_tree(old, resource, info.version) if old is not None else None
    write = Write(
        resource.kind,
        "create" if old is None else "update",
        tree,
        context.now(),
        old,
        info.subresource,
        context.gates,
        _namespace_labels(context, info),
        caller_for(user, context.authorizer, info.verb) if _is_claim_status(info) else None,
        old_is_canonical=True,
    )
    try:
        if resource.stored_as:
            prepared = prepare(write)
            return replace(prepared, tree=convert_to_storage(prepared.tree, resource, info.version))
        if resource.has_strategy:
            return prepare(write)
        has_status = "status" in resource.subresources
        return prepare_generic(write, namespaced=resource.namespaced, has_status=has_status)
    except DecodeError as error:
        raise bad_request(
            f'{resource.kind} in version "{info.version}" cannot be handled as a {resource.kind}: {error}'
        ) from None


def _is_claim_status(info: RequestInfo) -> bool:
    return info.subresource == "status" and info.resource.kind == "ResourceClaim"


def _namespace_labels(context: ApiContext, info: RequestInfo) -> dict[str, str] | None:
    """Return the labels of the namespace, which only claims with admin access need."""
    if info.resource.kind not in ("ResourceClaim", "ResourceClaimTemplate"):
        return {}
    stored = context.store.get(ObjectKey("namespaces", "", info.namespace))
    if stored is None:
        return None
    labels: dict[str, str] = codec.decode_tree(stored.raw)["metadata"].get("labels") or {}
    return labels
