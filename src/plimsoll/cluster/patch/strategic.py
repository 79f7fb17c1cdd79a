"""Strategic merge patch."""

from __future__ import annotations

from typing import Any

from plimsoll.cluster.patch.guard import guarded
from plimsoll.cluster.patch.merge_patch import apply_merge_patch
from plimsoll.cluster.patch.shape import Shape


@guarded
def apply_strategic_patch(tree: Any, patch: Any, schema: Shape) -> Any:
    """The tree with the patch merged into it."""
    return apply_merge_patch(tree, patch)
