"""The shape of every kind that the API serves.

Owns: `schema_for`, from group, version and kind to a `SchemaType`. Promises: reading one kind costs a few
milliseconds once and nothing afterwards; kinds that are not in the data have no schema (None), which is not
an error: their objects are stored as they come.

The types themselves are in `shape`, how they are written down in `notation`, how objects are held against
them in `check`.
"""

from __future__ import annotations

from functools import lru_cache

from plimsoll.apiserver.registry.descriptions import data_files
from plimsoll.apiserver.registry.schema_check import FieldReport, check_fields, check_json
from plimsoll.apiserver.registry.schema_files import is_top_level_kind, list_of, read_type
from plimsoll.apiserver.registry.schema_types import SchemaField, SchemaType

__all__ = [
    "FieldReport",
    "SchemaField",
    "SchemaType",
    "check_fields",
    "check_json",
    "package_of",
    "schema_for",
]

#: Kinds that every group and version has.
_EVERYWHERE = ("DeleteOptions", "Status")


def package_of(group: str, version: str) -> str:
    """Where the data of a group and version is: `core.v1`, `resource.v1beta2`."""
    return f"{group.partition('.')[0] or 'core'}.{version}"


@lru_cache(maxsize=512)
def schema_for(group: str, version: str, kind: str) -> SchemaType | None:
    """The type of a kind, or of a list of a kind; None if it is not known."""
    if kind in _EVERYWHERE:
        return read_type("meta.v1", kind)
    place = package_of(group, version)
    if f"{place}.txt" not in data_files():  # not even looked for, as clients make up all sorts of versions
        return None
    if is_top_level_kind(place, kind):
        return read_type(place, kind)
    item = kind.removesuffix("List")
    if item != kind and is_top_level_kind(place, item):
        found = read_type(place, item)
        return list_of(found) if found else None
    return None
