"""Server-side apply and the texts of its conflicts.

An applier owns exactly the fields of its configuration. Fields that it no longer sets are removed unless
another manager owns them; changing fields of other managers is a conflict unless forced. Invalid
configurations raise PatchError; conflicts are returned as values.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from plimsoll.api.go_text import quote_json
from plimsoll.apiserver.patch.field_set import (
    FieldSet,
    difference,
    has_path,
    intersection,
    iter_paths,
    union,
    union_all,
)
from plimsoll.apiserver.patch.json_patch import equal
from plimsoll.apiserver.patch.last_applied import unchanged_last_applied_fields, update_last_applied
from plimsoll.apiserver.patch.managed_fields import (
    APPLY,
    UPDATE,
    FieldOwner,
    ManagerIdentity,
    Owners,
    identify,
    managed_fields,
    read_owners,
    with_managed_fields,
)
from plimsoll.apiserver.patch.merge import (
    applied_fields,
    drop_nulls,
    ensure_named_fields_are_members,
    merge,
    reconcile_with_schema,
    remove_items,
)
from plimsoll.apiserver.patch.path_elements import format_path, sort_key
from plimsoll.apiserver.patch.recursion_guard import guard_recursion
from plimsoll.apiserver.patch.reset_fields import Filter, reset_filter
from plimsoll.apiserver.patch.tracking import (
    UNOWNED,
    Convert,
    TrackedChange,
    TrackingRequest,
    rewrite_owners,
    update_owners,
)
from plimsoll.apiserver.patch.typed_check import check_typed
from plimsoll.apiserver.registry.schema_types import SchemaType
from plimsoll.errors import PatchError

BEFORE_FIRST_APPLY = "before-first-apply"
#: The manager that does not conflict with its own earlier client-side apply.
KUBECTL = "kubectl"


class ApplyConflict(NamedTuple):
    """A field that another manager owns and the configuration would change."""

    manager: str
    field: str
    operation: str
    api_version: str
    subresource: str

    @property
    def owner(self) -> str:
        """The owner in upstream's format: `"kubectl-edit" with subresource "status" using v1`."""
        text = quote_json(self.manager)
        if self.subresource:
            text += f" with subresource {quote_json(self.subresource)}"
        return f"{text} using {self.api_version}" if self.operation == UPDATE else text


class ApplyResult(NamedTuple):
    """The object after an apply; unchanged if there are conflicts."""

    tree: dict[str, Any]
    conflicts: tuple[ApplyConflict, ...] = ()


def conflict_message(conflicts: tuple[ApplyConflict, ...]) -> str:
    """Return the message of the API for conflicts."""
    if len(conflicts) == 1:
        return f"Apply failed with 1 conflict: conflict with {conflicts[0].owner}: {conflicts[0].field}"
    lines: list[str] = []
    last = None
    for conflict in conflicts:
        identity = conflict._replace(field="")
        if identity != last:
            lines.append(f"conflicts with {conflict.owner}:")
            last = identity
        lines.append(f"- {conflict.field}")
    return f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)


def conflict_causes(conflicts: tuple[ApplyConflict, ...]) -> list[dict[str, str]]:
    """Return the conflicts as causes of a Status."""
    return [
        {
            "reason": "FieldManagerConflict",
            "message": f"conflict with {conflict.owner}",
            "field": conflict.field,
        }
        for conflict in conflicts
    ]


@guard_recursion
def server_side_apply(
    live: dict[str, Any] | None,
    applied: dict[str, Any],
    *,
    schema: SchemaType | None,
    manager: str,
    api_version: str,
    subresource: str,
    force: bool,
    now: str,
    ignored: Filter | None = None,
    convert: Convert | None = None,
) -> ApplyResult:
    """Apply a configuration to the stored object, or create the object if there is none (live is None).

    The result is a new object down to its metadata and shares the rest with the arguments; it has no defaults
    yet.
    """
    if live is not None and not isinstance(live, dict):
        raise PatchError("the stored object is not an object")
    kind = schema.short_name if schema is not None else str((live or {}).get("kind") or "")
    check_configuration(applied, api_version, kind)
    check_typed(applied, schema)
    request = TrackingRequest(
        schema, api_version, subresource, now, ignored or reset_filter(schema, subresource), convert
    )
    base: dict[str, Any] = live if live is not None else {}
    stored = read_owners(managed_fields(base), trusted=True)
    owners = {identity: _reconciled(owner, schema) for identity, owner in stored.items()}
    if live is not None and not owners:
        first = identify(BEFORE_FIRST_APPLY, UPDATE, request)
        owners = update_owners({}, base, {}, first, request)
    attempt = _Attempt(base, applied, owners, identify(manager, APPLY, request), request)
    if not force:
        found = attempt.conflicts()
        if found and manager == KUBECTL:
            own = unchanged_last_applied_fields(base, request)
            found = [(owner, path) for owner, path in found if not has_path(own, path)]
        if found:
            return ApplyResult(
                base, tuple(_conflict(identity, owners[identity], path) for identity, path in found)
            )
    tree, owners = attempt.execute()
    if manager == KUBECTL:
        tree = update_last_applied(tree, applied)
    return ApplyResult(with_managed_fields(tree, rewrite_owners(live, stored, owners)))


def _reconciled(owner: FieldOwner, schema: SchemaType | None) -> FieldOwner:
    fields = reconcile_with_schema(owner.fields, schema)
    return owner if fields is owner.fields else FieldOwner(fields, owner.version, owner.time)


def _conflict(identity: ManagerIdentity, owner: FieldOwner, path: tuple[str, ...]) -> ApplyConflict:
    return ApplyConflict(
        identity.manager, format_path(path), identity.operation, owner.version, identity.subresource
    )


def check_configuration(applied: Any, api_version: str, wanted: str) -> None:
    """Reject what is not a configuration for this version and kind (any kind if empty)."""
    if not isinstance(applied, dict):
        raise PatchError("an apply configuration is an object", malformed=True)
    given, kind = applied.get("apiVersion"), applied.get("kind")
    if given != api_version or (wanted and kind != wanted):
        group, _, version = str(given or "").rpartition("/")
        raise PatchError(f"invalid object type: {group}/{version}, Kind={kind or ''}", malformed=True)
    metadata = applied.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        raise PatchError("metadata is not an object", malformed=True)
    if managed_fields(applied) is not None:
        raise PatchError("metadata.managedFields must be nil", malformed=True)


class _Attempt:
    """One apply: the new state, its owners, and the fields it would take from others."""

    def __init__(
        self,
        live: dict[str, Any],
        applied: dict[str, Any],
        owners: Owners,
        identity: ManagerIdentity,
        request: TrackingRequest,
    ) -> None:
        schema = request.schema
        self._live = live
        self._identity = identity
        self._request = request
        self._last = owners.get(identity)
        fields = applied_fields(applied, schema)
        self._fields = request.ignored(fields) if request.ignored is not None else fields
        self._owners = {**owners, identity: FieldOwner(self._fields, request.version, None)}
        self._new = self._prune(merge(live, applied, schema))
        self._step = TrackedChange(live, self._new, request, nulls=True)

    def conflicts(self) -> list[tuple[ManagerIdentity, tuple[str, ...]]]:
        """Return the fields of other owners that this apply would change."""
        found = []
        for identity, owner in sorted(self._owners.items(), key=lambda pair: pair[0].text):
            changes = self._step.changes(owner.version)
            if identity == self._identity or changes is None:
                continue
            found += [
                (identity, path) for path in iter_paths(intersection(owner.fields, changes.changed), sort_key)
            ]
        return found

    def execute(self) -> tuple[dict[str, Any], Owners]:
        """Return the new state and its owners. Times change only if the object changed."""
        request, last = self._request, self._last
        owners = self._step.release_fields(self._owners, self._identity)
        changed = not equal(self._live, self._new)
        time = request.now if changed else last.time if last else None
        mine = difference(self._fields, UNOWNED)
        if not mine:
            del owners[self._identity]
        elif last is not None and last.version == request.version and equal(last.fields, mine):
            owners[self._identity] = last if last.time == time else last._replace(time=time)
        else:
            owners[self._identity] = FieldOwner(mine, request.version, time)
        return drop_nulls(self._new, request.schema) if changed else self._live, owners

    def _prune(self, merged: dict[str, Any]) -> dict[str, Any]:
        """Remove fields that the applier set last time, does not set now, and no one else owns."""
        last, convert = self._last, self._convert
        if last is None or not last.fields:
            return merged
        owned = self._owned_by_version(last.version)
        if len(owned) == 1 and not difference(last.fields, owned[0][1]):
            return merged  # all previously applied fields are still owned: nothing to remove
        shown = convert(merged, last.version)
        if shown is None:
            return merged
        merged, schema = shown
        named = ensure_named_fields_are_members(last.fields, schema)
        pruned = remove_items(merged, named, schema) or {}
        for version, fields in owned:
            before, after = convert(merged, version), convert(pruned, version)
            if before is not None and after is not None:
                pruned = _restore_owned(before[0], after[0], fields, before[1])
        shown = convert(pruned, last.version)
        if shown is None:
            return merged
        gone = difference(_all_fields(merged, schema), _all_fields(shown[0], schema))
        left = convert(remove_items(merged, intersection(gone, named), schema) or {}, self._request.version)
        return left[0] if left is not None else merged

    def _convert(self, tree: dict[str, Any], version: str) -> tuple[dict[str, Any], SchemaType | None] | None:
        convert = self._request.convert
        return (tree, self._request.schema) if convert is None else convert(tree, version)

    def _owned_by_version(self, first: str) -> list[tuple[str, FieldSet]]:
        """Return all owned fields by version, one version before the others."""
        sets: dict[str, list[FieldSet]] = {}
        for owner in self._owners.values():
            version = owner.version if self._request.convert is not None else first
            sets.setdefault(version, []).append(owner.fields)
        owned = {version: union_all(parts) for version, parts in sets.items()}
        return sorted(owned.items(), key=lambda pair: pair[0] != first)


def _restore_owned(
    merged: dict[str, Any], pruned: dict[str, Any], owned: FieldSet, schema: SchemaType | None
) -> dict[str, Any]:
    """Return the pruned object with the fields that are owned by others restored."""
    kept = union(_all_fields(pruned, schema), ensure_named_fields_are_members(owned, schema))
    return remove_items(merged, difference(_all_fields(merged, schema), kept), schema) or {}


def _all_fields(tree: dict[str, Any], schema: SchemaType | None) -> FieldSet:
    return ensure_named_fields_are_members(applied_fields(tree, schema), schema)
