"""Access to parts of decoded JSON that may be missing or malformed; nothing raises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def branch(tree: Any, *path: str) -> dict[str, Any]:
    """Return the object at a path; {} if there is none."""
    for key in path:
        tree = tree.get(key) if isinstance(tree, Mapping) else None
    return dict(tree) if isinstance(tree, Mapping) else {}


def items(tree: Any, key: str) -> list[dict[str, Any]]:
    """Return the objects of a list."""
    found = tree.get(key) if isinstance(tree, Mapping) else None
    return [dict(item) for item in found if isinstance(item, Mapping)] if isinstance(found, list) else []


def number(tree: Any, key: str) -> int:
    """Return an integer; 0 if there is none."""
    found = tree.get(key) if isinstance(tree, Mapping) else None
    return found if isinstance(found, int) and not isinstance(found, bool) else 0


def text(tree: Any, key: str) -> str:
    """Return a string; "" if there is none."""
    found = tree.get(key) if isinstance(tree, Mapping) else None
    return found if isinstance(found, str) else ""
