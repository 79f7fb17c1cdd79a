"""Values of JSON trees that may have any form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any


def mapping(value: Any) -> Mapping[str, Any]:
    """Return a JSON object, or an empty one if the value is something else."""
    return value if isinstance(value, dict) else {}


def items(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a list."""
    if isinstance(value, list):
        for item in value:
            if isinstance(item, dict):
                yield item


def text(value: Any) -> str:
    """Return a string, or "" if the value is something else."""
    return value if isinstance(value, str) else ""


def get_path(tree: Any, path: Iterable[str]) -> Any:
    """Return the value at a path, or None."""
    for name in path:
        if not isinstance(tree, dict):
            return None
        tree = tree.get(name)
    return tree
