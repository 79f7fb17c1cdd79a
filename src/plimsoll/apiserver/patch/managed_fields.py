"""Reading and writing of metadata.managedFields.

An owner is identified by its manager name, operation, subresource and, for updates, the API version.
Unchanged entries are written back as the same dict, so that an unchanged list costs nothing to encode.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

from plimsoll.api.go_text import quote_json
from plimsoll.api.timestamps import parse_time
from plimsoll.apiserver.patch.field_set import SELF, FieldSet
from plimsoll.apiserver.patch.path_elements import parse_field_set, sort_key
from plimsoll.errors import PatchError

APPLY = "Apply"
UPDATE = "Update"


class ManagerIdentity(NamedTuple):
    """Identity of an owner. The version is empty for appliers, which have a single entry."""

    manager: str
    operation: str
    version: str
    subresource: str

    @property
    def text(self) -> str:
        """The identity in upstream's format, which determines the order of owners."""
        pairs = zip(("manager", "operation", "apiVersion", "subresource"), self, strict=True)
        return "{" + ",".join(f'"{name}":{quote_json(value)}' for name, value in pairs if value) + "}"


class FieldOwner(NamedTuple):
    """The fields of one owner, their time, and the entry with exactly these fields (None if they changed)."""

    fields: FieldSet
    version: str
    time: str | None
    entry: dict[str, Any] | None = None


Owners = dict[ManagerIdentity, FieldOwner]


class _Place(Protocol):
    @property
    def version(self) -> str: ...
    @property
    def subresource(self) -> str: ...


def identify(manager: str, operation: str, request: _Place) -> ManagerIdentity:
    """Return the identity of the manager of a request."""
    version = "" if operation == APPLY else request.version
    return ManagerIdentity(manager or "unknown", operation, version, request.subresource)


def managed_fields(tree: Any) -> Any:
    """Return metadata.managedFields of an object, of any type."""
    metadata = tree.get("metadata") if isinstance(tree, dict) else None
    return metadata.get("managedFields") if isinstance(metadata, dict) else None


def requests_reset(entries: Any) -> bool:
    """Report whether a list of entries asks to remove all owners."""
    return isinstance(entries, list) and (not entries or entries == [{}])


def read_owners(entries: Any, *, trusted: bool = False) -> Owners:
    """Decode the entries; raises PatchError if they are invalid.

    Trusted entries were written by `write_owners`: their field sets are used as is.
    """
    owners: Owners = {}
    if entries is None:
        return owners
    if not isinstance(entries, list):
        raise PatchError("metadata.managedFields is no list", malformed=True)
    for number, entry in enumerate(entries):
        if not trusted or not is_well_formed(entry):
            check_entry(entry, number)
        fields = entry.get("fieldsV1")
        version, operation = entry["apiVersion"], entry["operation"]
        identity = ManagerIdentity(
            entry.get("manager") or "",
            operation,
            "" if operation == APPLY else version,
            entry.get("subresource") or "",
        )
        if trusted and isinstance(fields, dict):
            owners[identity] = FieldOwner(fields, version, entry.get("time"), entry)
        else:
            owners[identity] = FieldOwner(parse_field_set(fields), version, entry.get("time"))
    return owners


def is_well_formed(entry: Any) -> bool:
    """Report whether an entry has the form that we write and `check_entry` would accept it."""
    return (
        entry.__class__ is dict
        and entry.get("operation") in (APPLY, UPDATE)
        and entry.get("fieldsType") == "FieldsV1"
        and entry.get("apiVersion").__class__ is str
        and entry["apiVersion"] != ""
        and entry.get("manager", "").__class__ is str
        and entry.get("subresource", "").__class__ is str
        and entry.get("time", "").__class__ is str
    )


def check_entry(entry: Any, number: int) -> None:
    if not isinstance(entry, dict):
        raise PatchError(f"managed fields entry {number} is not an object", malformed=True)
    for name in ("manager", "operation", "apiVersion", "subresource", "fieldsType", "time"):
        if not isinstance(entry.get(name, ""), str | None):
            raise PatchError(f"managed fields entry {number}: {name} is no text", malformed=True)
    if entry.get("operation") not in (APPLY, UPDATE):
        raise PatchError("operation must be `Apply` or `Update`", malformed=True)
    if not entry.get("apiVersion"):
        raise PatchError("apiVersion must not be empty", malformed=True)
    if entry.get("fieldsType") != "FieldsV1":
        kind = entry.get("fieldsType")
        problem = f'invalid fieldsType "{kind}"' if kind else "missing fieldsType"
        raise PatchError(f"{problem} in managed fields entry {number}", malformed=True)


def write_owners(owners: Owners) -> list[dict[str, Any]]:
    """Encode the owners as entries: appliers first, then by time and name."""
    ranked = sorted(owners.items(), key=_rank)
    return [_write_entry(identity, owner) for identity, owner in ranked]


def _rank(pair: tuple[ManagerIdentity, FieldOwner]) -> tuple[Any, ...]:
    identity, owner = pair
    return (
        identity.operation,
        parse_entry_time(owner.time),
        identity.manager,
        owner.version,
        identity.subresource,
    )


def _write_entry(identity: ManagerIdentity, owner: FieldOwner) -> dict[str, Any]:
    if owner.entry is not None:
        return owner.entry if owner.entry.get("time") == owner.time else {**owner.entry, "time": owner.time}
    return make_entry(identity, owner, sort_set(owner.fields))


def make_entry(identity: ManagerIdentity, owner: FieldOwner, fields: FieldSet) -> dict[str, Any]:
    """Return the entry of an owner; `fields` are its fields in upstream's order."""
    entry: dict[str, Any] = {}
    if identity.manager:
        entry["manager"] = identity.manager
    entry["operation"] = identity.operation
    entry["apiVersion"] = owner.version
    if owner.time is not None:
        entry["time"] = owner.time
    entry["fieldsType"] = "FieldsV1"
    entry["fieldsV1"] = fields
    if identity.subresource:
        entry["subresource"] = identity.subresource
    return entry


def sort_set(fields: FieldSet) -> FieldSet:
    """Return the set with its elements in upstream's order."""
    if len(fields) < 2:
        return {element: sort_set(below) if below else below for element, below in fields.items()}
    names = sorted(fields)
    if names[-1][0] > "f":  # other elements than field names, which are already sorted
        names.sort(key=lambda name: (-1,) if name == SELF else sort_key(name))
    return {name: sort_set(fields[name]) if fields[name] else fields[name] for name in names}


@lru_cache(maxsize=1024)
def parse_entry_time(time: str | None) -> int:
    """Return the time of an entry in seconds since the epoch; 0 if it has none."""
    return int(parse_time(time) or 0)


def with_managed_fields(tree: dict[str, Any], entries: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a copy of the object, new down to its metadata, with these entries."""
    metadata = tree.get("metadata")
    metadata = dict(metadata) if isinstance(metadata, dict) else {}
    if entries:
        metadata["managedFields"] = entries
    else:
        metadata.pop("managedFields", None)
    return {**tree, "metadata": metadata}


def sort_oldest_first(
    owners: Iterable[tuple[ManagerIdentity, FieldOwner]],
) -> list[tuple[ManagerIdentity, FieldOwner]]:
    """Sort owners by time, then by identity."""
    return sorted(owners, key=lambda pair: (parse_entry_time(pair[1].time), pair[0].text))
