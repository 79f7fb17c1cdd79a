"""JSON merge patch (RFC 7386).

Owns `apply_merge_patch`: null removes, objects merge, everything else replaces. Neither tree is changed; the
result shares with them what it took over whole.
"""

from __future__ import annotations

from typing import Any

from plimsoll.cluster.patch.guard import guarded
from plimsoll.errors import PatchError


@guarded
def apply_merge_patch(tree: Any, patch: Any) -> Any:
    """The tree with the patch merged into it."""
    if not isinstance(patch, dict):
        raise PatchError("a JSON merge patch for an object is an object", malformed=True)
    return _merge(tree, patch)


def _merge(tree: Any, patch: dict[str, Any]) -> dict[str, Any]:
    merged = dict(tree) if isinstance(tree, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            merged[key] = _merge(merged.get(key), value)
        else:
            merged[key] = value
    return merged
