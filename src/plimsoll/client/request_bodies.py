"""Parameters and bodies of requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plimsoll.errors import InputError


def build_query(**parameters: str) -> tuple[tuple[str, str], ...]:
    """Return the parameters that have a value."""
    return tuple((name, value) for name, value in parameters.items() if value)


def namespace_of(tree: Mapping[str, Any]) -> str:
    """Return the namespace of an object; "" without one."""
    metadata = tree.get("metadata")
    return str(metadata.get("namespace") or "") if isinstance(metadata, Mapping) else ""


def require_tree(tree: Mapping[str, Any]) -> Mapping[str, Any]:
    """Reject typed views: they have only some fields, and writing one would delete the others."""
    if not isinstance(tree, Mapping):
        raise InputError(f"write a plain tree, not a {type(tree).__name__}: a view would lose fields")
    return tree


def delete_options(
    uid: str | None, revision: str | None, grace: int | None, propagation: str | None, dry_run: bool
) -> dict[str, Any]:
    """Return the DeleteOptions of a request."""
    tree: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1"}
    if uid is not None or revision is not None:
        tree["preconditions"] = {
            key: value for key, value in (("uid", uid), ("resourceVersion", revision)) if value is not None
        }
    if grace is not None:
        tree["gracePeriodSeconds"] = grace
    if propagation is not None:
        tree["propagationPolicy"] = propagation
    if dry_run:
        tree["dryRun"] = ["All"]
    return tree
