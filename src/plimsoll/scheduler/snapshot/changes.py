"""Changes of API objects that affect scheduling."""

from __future__ import annotations

from plimsoll.api.core import Node
from plimsoll.api.resource import ResourceClaim


def scheduling_fields(node: Node) -> tuple[object, ...]:
    """Return the fields of a node that rules read."""
    meta, status = node.metadata, node.status
    return status.allocatable, status.declared_features, meta.labels, meta.annotations, node.spec


def is_older(new: ResourceClaim, old: ResourceClaim) -> bool:
    """Return whether a claim is older than the known one: a write response was faster than the watch."""
    one, other = new.metadata.resource_version, old.metadata.resource_version
    return one.isdecimal() and other.isdecimal() and int(one) < int(other)
