"""Objects with managed fields."""

from __future__ import annotations

import json
from typing import Any

from plimsoll.apiserver.patch import track_update
from plimsoll.apiserver.patch.field_set import iter_paths
from plimsoll.apiserver.patch.path_elements import sort_key
from tests.unit.apiserver.patch.sample_schemas import THING

NOW = "2026-01-01T00:00:00Z"


LATER = "2026-01-01T00:00:09Z"


def track(old: Any, new: Any, manager: str = "m", **how: Any) -> dict[str, Any]:
    how = {"schema": THING, "api_version": "test/v1", "subresource": "", "now": NOW, **how}
    before = json.dumps([old, new])
    tree = track_update(old, new, manager=manager, **how)
    assert json.dumps([old, new]) == before
    return tree


def thing(**fields: Any) -> dict[str, Any]:
    return {"apiVersion": "test/v1", "kind": "Thing", "metadata": {"name": "x"}, **fields}


def owned(tree: dict[str, Any]) -> dict[str, set[str]]:
    """Return the last path elements of the fields of each manager."""
    return {
        entry["manager"]: {
            "/".join(step[2:] for step in path) for path in iter_paths(entry["fieldsV1"], sort_key)
        }
        for entry in tree["metadata"].get("managedFields", [])
    }
