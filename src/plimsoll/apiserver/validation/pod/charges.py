"""Claim charges in a pod's status, as far as writes of the status depend on them."""

from __future__ import annotations

from plimsoll.apiserver.validation.equality import trees_equal
from plimsoll.apiserver.validation.object_trees import Tree, subtree

_CHARGES = ("nodeAllocatableResourceClaimStatuses", "nativeResourceClaimStatus")


def has_same_charges(tree: Tree, old: Tree) -> bool:
    """Return whether two versions of a pod have equal charges in their status."""
    now, before = subtree(tree, "status"), subtree(old, "status")
    for name in _CHARGES:
        found, known = now.get(name), before.get(name)
        if found is not known and not trees_equal(found, known):  # few pods have charges
            return False
    return True
