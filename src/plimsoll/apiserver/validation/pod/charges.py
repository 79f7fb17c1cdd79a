"""Claim charges in a pod's status, as far as writes of the status depend on them."""

from __future__ import annotations

from plimsoll.apiserver.validation.equality import trees_equal
from plimsoll.apiserver.validation.object_trees import Tree, subtree

_CHARGES = ("nodeAllocatableResourceClaimStatuses", "nativeResourceClaimStatus")


def has_same_charges(tree: Tree, old: Tree) -> bool:
    """Return whether two versions of a pod have equal charges in their status."""
    now, before = subtree(tree, "status"), subtree(old, "status")
    return all(trees_equal(now.get(name), before.get(name)) for name in _CHARGES)
