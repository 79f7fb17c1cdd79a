"""Ownership of fields under plain writes: create, update, patch.

Owns `track_update`. Whoever changes a field becomes its owner and nobody else stays one; a field that goes
away leaves every set. An owner's time moves only when its set does. At most ten owners by update are kept;
the oldest are gathered under one name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plimsoll.cluster.kinds.shape import Type
from plimsoll.cluster.patch.compare import Changes, compare
from plimsoll.cluster.patch.fields import FieldSet, difference, from_paths, union
from plimsoll.cluster.patch.guard import guarded
from plimsoll.cluster.patch.owners import (
    UPDATE,
    Identity,
    Owner,
    Owners,
    asks_for_reset,
    identify,
    managed_fields,
    older_first,
    read_owners,
    with_owners,
    write_owners,
)
from plimsoll.errors import PatchError

#: Leaves out of a set what a request cannot change, whatever it says.
Filter = Callable[[FieldSet], FieldSet]
#: An object and its type in another version of the API; None if there is no such version (any more).
Convert = Callable[[dict[str, Any], str], "tuple[dict[str, Any], Type | None] | None"]

MAX_UPDATERS = 10
ANCIENT = "ancient-changes"

_UNTRACKED = frozenset(
    (
        "clusterName",
        "creationTimestamp",
        "generation",
        "managedFields",
        "name",
        "namespace",
        "resourceVersion",
        "selfLink",
        "uid",
    )
)
#: Nobody owns these.
UNOWNED = from_paths(
    [("f:apiVersion",), ("f:kind",), ("f:metadata",)]
    + [("f:metadata", "f:" + name) for name in sorted(_UNTRACKED)]
)


@guarded
def track_update(
    old: dict[str, Any] | None,
    new: dict[str, Any],
    *,
    schema: Type | None,
    manager: str,
    api_version: str,
    subresource: str,
    now: str,
    ignored: Filter | None = None,
    convert: Convert | None = None,
) -> dict[str, Any]:
    """The new object with its managedFields brought up to date.

    `old` is the stored object, None on create. The result is fresh down to its metadata and shares the rest
    with `new`. An object whose lists cannot be told apart by their keys loses its managedFields, as upstream.
    """
    try:
        owners = _current_owners(old, new, subresource)
        if old is not None and not owners:
            return with_owners(new, [])  # tracking starts with the creation or the first apply
        before = owners
        owners = update_owners(
            old or {},
            new,
            owners,
            identify(manager, UPDATE, api_version, subresource),
            schema=schema,
            version=api_version,
            now=now,
            ignored=ignored,
            convert=convert,
        )
    except PatchError:
        return with_owners(new, [])
    return with_owners(new, rewrite_owners(old, before, owners))


def rewrite_owners(tree: dict[str, Any] | None, before: Owners, after: Owners) -> list[dict[str, Any]]:
    """The entries of the owners; the very list that is stored, if they did not change."""
    stored = managed_fields(tree)
    if (
        isinstance(stored, list)
        and len(before) == len(after) == len(stored)
        and all(owner.entry is not None and owner is before.get(who) for who, owner in after.items())
    ):
        return stored
    return write_owners(after)


def _current_owners(old: dict[str, Any] | None, new: dict[str, Any], subresource: str) -> Owners:
    """The owners before this write: as the request has them, or else as stored."""
    stored = managed_fields(old)
    if not subresource:
        given = managed_fields(new)
        if asks_for_reset(given):
            return {}
        if given is not None and given != stored:
            try:
                owners = read_owners(given)
            except PatchError:
                owners = {}
            if owners:
                return owners
    try:
        return read_owners(stored, trusted=True)
    except PatchError:
        return {}


def update_owners(
    old: dict[str, Any],
    new: dict[str, Any],
    owners: Owners,
    who: Identity,
    *,
    schema: Type | None,
    version: str,
    now: str,
    ignored: Filter | None = None,
    convert: Convert | None = None,
) -> Owners:
    """The owners after somebody changed an object from one state to another."""
    owners, changes = yield_fields(
        old, new, owners, None, schema=schema, version=version, ignored=ignored, convert=convert
    )
    mine = difference(changes.changed, UNOWNED)
    if mine:
        earlier = owners.get(who)
        if earlier is None:
            owners[who] = Owner(mine, version, now)
        else:
            fields = union(earlier.fields, mine)
            owners[who] = Owner(fields, version, now, earlier.entry if fields is earlier.fields else None)
    return cap_updaters(owners)


def yield_fields(
    old: dict[str, Any],
    new: dict[str, Any],
    owners: Owners,
    spare: Identity | None,
    *,
    schema: Type | None,
    version: str,
    ignored: Filter | None,
    convert: Convert | None,
) -> tuple[Owners, Changes]:
    """Take what changed and what is gone from every owner but one; those left with nothing are dropped."""
    seen: dict[str, Changes | None] = {version: _filtered(_changes(old, new, schema), ignored)}
    left: Owners = {}
    for identity, owner in owners.items():
        if identity == spare:
            left[identity] = owner
            continue
        changes = changes_in(seen, owner.version, old, new, version, ignored, convert)
        if changes is None:
            continue  # the version is no longer served
        fields = difference(difference(owner.fields, changes.changed), changes.removed)
        if fields is owner.fields:
            left[identity] = owner
        elif fields:
            left[identity] = Owner(fields, owner.version, owner.time)
    mine = seen[version]
    assert mine is not None
    return left, mine


def changes_in(
    seen: dict[str, Changes | None],
    wanted: str,
    old: dict[str, Any],
    new: dict[str, Any],
    version: str,
    ignored: Filter | None,
    convert: Convert | None,
) -> Changes | None:
    """The changes as seen in another version; None if that is not served. Worked out once per version."""
    if convert is None:
        return seen[version]
    if wanted not in seen:
        before, after = convert(old, wanted), convert(new, wanted)
        if before is None or after is None:
            seen[wanted] = None
        else:
            seen[wanted] = _filtered(_changes(before[0], after[0], after[1]), ignored)
    return seen[wanted]


def _changes(old: dict[str, Any], new: dict[str, Any], schema: Type | None) -> Changes:
    return compare(_tracked(old), _tracked(new), schema)


def _tracked(tree: dict[str, Any]) -> dict[str, Any]:
    """The object without what nobody owns."""
    seen = {name: value for name, value in tree.items() if name not in ("apiVersion", "kind")}
    metadata = seen.get("metadata")
    if isinstance(metadata, dict):
        seen["metadata"] = {name: value for name, value in metadata.items() if name not in _UNTRACKED}
    return seen


def compare_tracked(
    old: dict[str, Any], new: dict[str, Any], schema: Type | None, ignored: Filter | None
) -> Changes:
    """The changes of what can be owned and is not ignored."""
    return _filtered(_changes(old, new, schema), ignored)


def _filtered(changes: Changes, ignored: Filter | None) -> Changes:
    if ignored is None:
        return changes
    return Changes(ignored(changes.changed), ignored(changes.removed))


def cap_updaters(owners: Owners) -> Owners:
    """Gather the oldest owners by update, version by version, until there are at most ten."""
    updaters = [pair for pair in owners.items() if pair[0].operation == UPDATE]
    count = len(updaters)
    if count <= MAX_UPDATERS:
        return owners
    first: dict[str, Identity] = {}
    for identity, owner in older_first(updaters):
        if count <= MAX_UPDATERS:
            break
        if owner.version not in first:
            first[owner.version] = identity
            continue
        bucket = Identity(ANCIENT, UPDATE, owner.version, "")
        # DIFF: gathering never forgets the bucket itself (test_gathering_keeps_what_was_gathered).
        source = identity if identity != bucket else first[owner.version]
        gathered = owners.pop(source).fields
        if bucket in owners:
            gathered = union(gathered, owners[bucket].fields)
        else:
            gathered = union(gathered, owners.pop(first[owner.version]).fields)
        owners[bucket] = Owner(gathered, owner.version, owner.time)
        count -= 1
    return owners
