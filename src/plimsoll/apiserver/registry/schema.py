"""Schemas of all kinds that the API serves.

`schema_for` maps group, version and kind to a `SchemaType`. Reading a kind takes a few milliseconds once.
Kinds without data have no schema (None), which is not an error: their objects are stored without checks.

The types are in `schema_types`, the file format in `schema_files`, the checks in `schema_check`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from plimsoll.apiserver.registry.descriptions import data_files
from plimsoll.apiserver.registry.schema_check import FieldReport, check_fields, check_json
from plimsoll.apiserver.registry.schema_files import is_top_level_kind, list_of, read_type
from plimsoll.apiserver.registry.schema_match import matches_schema
from plimsoll.apiserver.registry.schema_types import SchemaField, SchemaType

__all__ = [
    "FieldReport",
    "SchemaField",
    "SchemaType",
    "check_fields",
    "check_json",
    "find_strict_errors",
    "package_of",
    "schema_for",
]

#: Kinds in every group and version.
_EVERYWHERE = ("DeleteOptions", "Status")


def package_of(group: str, version: str) -> str:
    """Return the data package of a group and version: `core.v1`, `resource.v1beta2`."""
    return f"{group.partition('.')[0] or 'core'}.{version}"


@lru_cache(maxsize=512)
def schema_for(group: str, version: str, kind: str) -> SchemaType | None:
    """Return the type of a kind, or of a list of a kind; None if it is unknown."""
    if kind in _EVERYWHERE:
        return read_type("meta.v1", kind)
    package = package_of(group, version)
    if f"{package}.txt" not in data_files():  # no lookup: clients may request any version
        return None
    if is_top_level_kind(package, kind):
        return read_type(package, kind)
    item = kind.removesuffix("List")
    if item != kind and is_top_level_kind(package, item):
        found = read_type(package, item)
        return list_of(found) if found else None
    return None


def find_strict_errors(tree: Mapping[str, Any]) -> list[str]:
    """Return what the server warns about when an object is written, and rejects under strict validation.

    These are unknown fields (`unknown field "spec.foo"`), which have no effect; none without a schema.
    """
    version, kind = tree.get("apiVersion"), tree.get("kind")
    if not isinstance(version, str) or not isinstance(kind, str):
        return []
    group, _, short = version.rpartition("/")
    schema = schema_for(group, short, kind)
    if schema is None or matches_schema(tree, schema):
        return []
    return check_fields(tree, schema).strict_errors
