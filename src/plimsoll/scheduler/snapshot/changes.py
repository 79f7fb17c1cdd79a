"""Changes of API objects that affect scheduling."""

from __future__ import annotations

from typing import TypeAlias

from plimsoll.api.core import Node
from plimsoll.api.resource import ResourceClaim
from plimsoll.api.storage import PersistentVolume, PersistentVolumeClaim

Written: TypeAlias = ResourceClaim | PersistentVolume | PersistentVolumeClaim
#: Kinds that the scheduler writes: a response may arrive before older watch events.
WRITTEN_KINDS = frozenset({ResourceClaim, PersistentVolume, PersistentVolumeClaim})


def scheduling_fields(node: Node) -> tuple[object, ...]:
    """Return the fields of a node that rules read."""
    meta, status = node.metadata, node.status
    return status.allocatable, status.declared_features, meta.labels, meta.annotations, node.spec


def is_older(new: Written, old: Written) -> bool:
    """Return whether an object is older than the known one: a write response was faster than the watch."""
    one, other = new.metadata.resource_version, old.metadata.resource_version
    return one.isdecimal() and other.isdecimal() and int(one) < int(other)
