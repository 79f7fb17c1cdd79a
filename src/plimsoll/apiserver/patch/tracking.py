"""Field ownership on create, update and patch.

A manager that changes a field becomes its only owner; a removed field is removed from all sets. The time of
an owner changes only when it changed something. At most ten update managers are kept; the oldest are merged
under one name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from plimsoll.api import codec
from plimsoll.apiserver.patch.compare import FieldChanges, compare
from plimsoll.apiserver.patch.field_set import FieldSet, difference, from_paths, union, union_all
from plimsoll.apiserver.patch.managed_fields import (
    UPDATE,
    FieldOwner,
    ManagerIdentity,
    Owners,
    identify,
    make_entry,
    managed_fields,
    read_owners,
    requests_reset,
    sort_oldest_first,
    sort_set,
    with_managed_fields,
    write_owners,
)
from plimsoll.apiserver.patch.merge import reconcile_with_schema
from plimsoll.apiserver.patch.recursion_guard import guard_recursion
from plimsoll.apiserver.patch.reset_fields import Filter, reset_filter
from plimsoll.apiserver.registry.schema_types import SchemaType
from plimsoll.errors import PatchError

#: Returns an object and its type in another API version; None if that version is not served.
Convert = Callable[[dict[str, Any], str], "tuple[dict[str, Any], SchemaType | None] | None"]

MAX_UPDATE_MANAGERS = 10
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
#: Metadata of which the values are not compared.
_MAPS = frozenset(("annotations", "labels"))
#: Field sets of new objects by schema, subresource and shape; the number and length of shapes are limited.
_known_fields: dict[tuple[SchemaType | None, str, bytes], FieldSet] = {}
_MAX_SHAPES, _MAX_SHAPE_BYTES = 512, 4096
#: Fields that are never owned.
UNOWNED = from_paths(
    [("f:apiVersion",), ("f:kind",), ("f:metadata",)]
    + [("f:metadata", "f:" + name) for name in sorted(_UNTRACKED)]
)


class TrackingRequest(NamedTuple):
    """Parameters of a write other than its objects: schema, version, subresource, time.

    `ignored` removes fields that this request cannot change from a set. `convert` converts objects to other
    versions; without it all versions of a kind are treated as identical.
    """

    schema: SchemaType | None
    version: str
    subresource: str
    now: str
    ignored: Filter | None = None
    convert: Convert | None = None

    def convert_to(
        self, tree: dict[str, Any], version: str
    ) -> tuple[dict[str, Any], SchemaType | None] | None:
        """Convert an object of the request's version to another one; returns it with its type."""
        if version == self.version or self.convert is None:
            return tree, self.schema
        return self.convert(tree, version)


class TrackedChange:
    """Change of an object from an old to a new state, compared once per version."""

    def __init__(
        self, old: dict[str, Any], new: dict[str, Any], request: TrackingRequest, *, nulls: bool = False
    ) -> None:
        self._old = old
        self._new = new
        self._request = request
        self._nulls = nulls
        self._seen: dict[str, FieldChanges | None] = {}

    def changes(self, version: str) -> FieldChanges | None:
        """Return the changes as seen in a version; None if it is not served."""
        if self._request.convert is None:
            version = self._request.version
        if version not in self._seen:
            self._seen[version] = self._compare_in(version)
        return self._seen[version]

    def _compare_in(self, version: str) -> FieldChanges | None:
        old, new = self._request.convert_to(self._old, version), self._request.convert_to(self._new, version)
        if old is None or new is None:
            return None
        changes = compare(_without_untracked(old[0]), _without_untracked(new[0]), new[1], nulls=self._nulls)
        ignored = self._request.ignored
        if ignored is None:
            return changes
        return FieldChanges(ignored(changes.changed), ignored(changes.removed))

    def release_fields(self, owners: Owners, keep: ManagerIdentity | None = None) -> Owners:
        """Remove changed and removed fields from every owner except `keep`; owners without fields are
        dropped.
        """
        left: Owners = {}
        for identity, owner in owners.items():
            if identity == keep:
                left[identity] = owner
                continue
            changes = self.changes(owner.version)
            if changes is None:
                continue
            fields = difference(difference(owner.fields, changes.changed), changes.removed)
            if fields is owner.fields:
                left[identity] = owner
            elif fields:
                left[identity] = FieldOwner(fields, owner.version, owner.time)
        return left


def _without_untracked(tree: dict[str, Any]) -> dict[str, Any]:
    """Return the object without fields that are never owned."""
    seen = {name: value for name, value in tree.items() if name not in ("apiVersion", "kind")}
    metadata = seen.get("metadata")
    if isinstance(metadata, dict):
        seen["metadata"] = {name: value for name, value in metadata.items() if name not in _UNTRACKED}
    return seen


@guard_recursion
def track_update(
    old: dict[str, Any] | None,
    new: dict[str, Any],
    *,
    schema: SchemaType | None,
    manager: str,
    api_version: str,
    subresource: str,
    now: str,
    ignored: Filter | None = None,
    convert: Convert | None = None,
) -> dict[str, Any]:
    """Return the new object with updated managedFields.

    `old` is the stored object, None on create. The result is a new object down to its metadata and shares the
    rest with `new`. Fields that the kind does not let this request change are not owned, unless `ignored`
    overrides that. An object whose list items have ambiguous keys loses its managedFields, as upstream.
    """
    if not isinstance(new, dict) or not isinstance(old, dict | None):
        raise PatchError("is not an object", malformed=True)
    request = TrackingRequest(
        schema, api_version, subresource, now, ignored or reset_filter(schema, subresource), convert
    )
    before = _current_owners(old, new, request)
    if old is not None and not before:
        return with_managed_fields(new, [])  # tracking starts with creation or the first apply
    identity = identify(manager, UPDATE, request)
    try:
        if not before:
            fields = find_new_fields(new, request) if ignored is None else _new_fields(new, request)
            owner = FieldOwner(fields, request.version, request.now)
            return with_managed_fields(new, [make_entry(identity, owner, fields)] if fields else [])
        owners = update_owners(old or {}, new, before, identity, request)
    except PatchError:
        return with_managed_fields(new, [])
    return with_managed_fields(new, rewrite_owners(old, before, owners))


def find_new_fields(new: dict[str, Any], request: TrackingRequest) -> FieldSet:
    """Return the fields of a new object in upstream's order. Objects of one template have the same, which are
    kept; the time and version of the request do not matter.
    """
    shape = _describe_shape(new) if request.convert is None else b""
    if not shape or len(shape) > _MAX_SHAPE_BYTES:
        return _new_fields(new, request)
    key = request.schema, request.subresource, shape
    found = _known_fields.get(key)
    if found is None:
        found = _new_fields(new, request)
        if len(_known_fields) >= _MAX_SHAPES:
            _known_fields.clear()
        _known_fields[key] = found
    return found


def _new_fields(new: dict[str, Any], request: TrackingRequest) -> FieldSet:
    """Return the fields of a new object as `update_owners` does, in upstream's order."""
    changes = TrackedChange({}, new, request).changes(request.version) or FieldChanges({}, {})
    return sort_set(difference(changes.changed, UNOWNED))


def _describe_shape(tree: dict[str, Any]) -> bytes:
    """Return a text that is equal for objects with the same fields; nothing for an unusual object.

    Of labels and annotations only the names matter, of the rest of the metadata only what is tracked.
    """
    metadata = tree.get("metadata")
    if not isinstance(metadata, dict):
        return b""
    tracked: dict[str, Any] = {}
    for name, value in metadata.items():
        if name in _MAPS and isinstance(value, dict):
            if not all(each.__class__ is str for each in value.values()):
                return b""
            tracked[name] = list(value)
        elif name not in _UNTRACKED:
            tracked[name] = value
    return codec.encode({**tree, "metadata": tracked})


def _current_owners(old: dict[str, Any] | None, new: dict[str, Any], request: TrackingRequest) -> Owners:
    """Return the owners before this write: from the request, or else as stored."""
    stored = managed_fields(old)
    if not request.subresource:
        given = managed_fields(new)
        if requests_reset(given):
            return {}
        if given is not None and given != stored:
            try:
                owners = read_owners(given)
            except PatchError:
                owners = {}
            if owners:
                return {
                    identity: owner._replace(fields=reconcile_with_schema(owner.fields, request.schema))
                    for identity, owner in owners.items()
                }
    try:
        return read_owners(stored, trusted=True)
    except PatchError:
        return {}


def update_owners(
    old: dict[str, Any],
    new: dict[str, Any],
    owners: Owners,
    identity: ManagerIdentity,
    request: TrackingRequest,
) -> Owners:
    """Return the owners after a manager changed an object from one state to another."""
    change = TrackedChange(old, new, request)
    owners = change.release_fields(owners, identity)
    changes = change.changes(request.version) or FieldChanges({}, {})
    mine = difference(changes.changed, UNOWNED)
    earlier = owners.pop(identity, None)
    if earlier is None:
        if mine:
            owners[identity] = FieldOwner(mine, request.version, request.now)
    else:
        fields = union(difference(earlier.fields, changes.removed), mine)
        entry = earlier.entry if fields is earlier.fields else None
        if fields:
            owners[identity] = FieldOwner(
                fields, request.version, request.now if mine else earlier.time, entry
            )
    return cap_update_managers(owners)


def rewrite_owners(tree: dict[str, Any] | None, before: Owners, after: Owners) -> list[dict[str, Any]]:
    """Return the entries of the owners; the stored list itself if they did not change."""
    stored = managed_fields(tree)
    if (
        isinstance(stored, list)
        and len(before) == len(after) == len(stored)
        and all(
            owner.entry is not None and owner == before.get(identity) for identity, owner in after.items()
        )
    ):
        return stored
    return write_owners(after)


def cap_update_managers(owners: Owners) -> Owners:
    """Merge the oldest update managers, version by version, until at most ten remain."""
    updaters = [pair for pair in owners.items() if pair[0].operation == UPDATE]
    count = len(updaters)
    if count <= MAX_UPDATE_MANAGERS:
        return owners
    first: dict[str, ManagerIdentity] = {}
    gathered: dict[ManagerIdentity, list[FieldSet]] = {}
    for identity, owner in sort_oldest_first(updaters):
        if count <= MAX_UPDATE_MANAGERS:
            break
        if owner.version not in first:
            first[owner.version] = identity
            continue
        bucket = ManagerIdentity(ANCIENT, UPDATE, owner.version, "")
        # DIFF: merging never drops the bucket itself (test_merged_managers_keep_their_fields).
        source = identity if identity != bucket else first[owner.version]
        parts = gathered.setdefault(bucket, [])
        parts.append(owners.pop(source).fields)
        parts.append(owners[bucket].fields if bucket in owners else owners.pop(first[owner.version]).fields)
        owners[bucket] = FieldOwner({}, owner.version, owner.time)  # its fields are joined at the end
        count -= 1
    for bucket, parts in gathered.items():
        owners[bucket] = FieldOwner(union_all(parts), owners[bucket].version, owners[bucket].time)
    return owners


def keep_times_if_unchanged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return the new object with its owners' old times if nothing else changed, so that nothing is
    written.
    """
    before, after = managed_fields(old), managed_fields(new)
    if not isinstance(before, list) or not isinstance(after, list) or len(before) != len(after):
        return new
    if before == after or [_without_time(entry) for entry in before] != [
        _without_time(entry) for entry in after
    ]:
        return new
    kept = with_managed_fields(new, before)
    return kept if kept == old else new


def _without_time(entry: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name != "time"}
