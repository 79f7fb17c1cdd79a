"""Recorded outputs below tests/golden, so that a change of wording is seen in review.

`PLIMSOLL_GOLDEN=write pytest ...` rewrites them; read the difference before committing it.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

GOLDEN_DIR = Path(__file__).parent / "golden"


def check_output(name: str, text: str) -> None:
    """Compare a text with the file of this name below tests/golden, as `top/nodes.txt`."""
    path = GOLDEN_DIR / name
    if os.environ.get("PLIMSOLL_GOLDEN") == "write":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return
    if not path.exists():
        pytest.fail(f"{path} is missing; PLIMSOLL_GOLDEN=write makes it")
    assert text == path.read_text(), f"differs from {path}"


def check_json_fields(name: str, *trees: Any) -> None:
    """Compare the fields of JSON outputs and their types with a file: the values are in the recorded text."""
    types: dict[str, set[str]] = defaultdict(set)
    for tree in trees:
        for field, value in _fields(tree):
            types[field].add(type(value).__name__)
    check_output(name, "".join(f"{field}: {' | '.join(sorted(types[field]))}\n" for field in sorted(types)))


def _fields(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(tree, dict):
        for key, value in tree.items():
            name = "*" if "/" in key else key  # cgroup paths and qualified names are data
            yield from _fields(value, f"{path}.{name}" if path else name)
    elif isinstance(tree, list):
        for value in tree:
            yield from _fields(value, f"{path}[]")
    else:
        yield path, tree
