"""JSON merge patch (RFC 7386).

Null removes, objects merge, everything else replaces. As in the API server, objects inside lists lose their
nulls unless the list replaces an object. Neither tree is modified; the result shares unchanged parts with
them.
"""

from __future__ import annotations

from typing import Any

from plimsoll.apiserver.patch.recursion_guard import guard_recursion
from plimsoll.errors import PatchError


@guard_recursion
def apply_merge_patch(tree: Any, patch: Any) -> Any:
    """Return the tree with the patch merged into it."""
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
            merged[key] = value if isinstance(merged.get(key), dict) else _prune(value)
    return merged


def _prune(value: Any) -> Any:
    if isinstance(value, list):
        return [_prune(item) for item in value]
    return _merge(None, value) if isinstance(value, dict) else value
