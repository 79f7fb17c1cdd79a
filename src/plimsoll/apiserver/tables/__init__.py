"""Tables, as printed by `kubectl get`.

`to_table` converts objects to a `meta.k8s.io` Table. `columns` defines the columns of each resource, `row`
reads objects leniently, and `pods`, `core` and `workloads` compute cells. Columns and cells are those of
Kubernetes 1.36, including those for `-o wide` (priority 1); any object of any shape makes a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from plimsoll.apiserver.registry.resource import Resource
from plimsoll.apiserver.tables.columns import columns_of
from plimsoll.apiserver.tables.row import TableRow, Tree
from plimsoll.errors import ApiError

__all__ = ["to_table"]


def to_table(
    resource: Resource,
    trees: Iterable[Any],
    *,
    now: datetime,
    include_object: str = "Metadata",
    version: str = "v1",
    list_metadata: Mapping[str, Any] | None = None,
) -> Tree:
    """Return a Table of these objects, or of a single object if `list_metadata` is None.

    `include_object` is what each row carries of its object: Metadata, Object or None; ApiError 400 otherwise.
    """
    if include_object not in ("", "Metadata", "Object", "None"):
        raise ApiError(
            400,
            "BadRequest",
            "Unable to convert to Table as requested: includeObject: Invalid value: "
            f"\"{include_object}\": must be 'Metadata', 'Object', 'None', or empty",
        )
    api_version = f"meta.k8s.io/{version or 'v1'}"
    columns, complete = columns_of(resource)
    rows: list[Tree] = []
    metadata = dict(list_metadata or {})
    for tree in trees:
        row = TableRow(tree, now)
        entry: Tree = {"cells": [column.cell(row) for column in columns]}
        conditions = complete(row) if complete else None
        if conditions:
            entry["conditions"] = conditions
        entry["object"] = _object(row.tree, include_object, api_version)
        rows.append(entry)
        if not list_metadata:
            metadata = {"resourceVersion": row.text(("metadata", "resourceVersion"))}
    return {
        "kind": "Table",
        "apiVersion": api_version,
        "metadata": metadata,
        "columnDefinitions": [column.definition() for column in columns],
        "rows": rows,
    }


def _object(tree: Tree, include: str, api_version: str) -> Any:
    if include == "None":
        return None
    if include == "Object":
        return tree
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": api_version,
        "metadata": tree.get("metadata") or {},
    }
