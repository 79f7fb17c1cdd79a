"""Server-side apply.

Owns `apply_owned` and the texts of conflicts. An applier owns exactly the fields of its configuration. What
it no longer names goes away unless somebody else owns it; what others own and it would change is a conflict,
unless it is forced. Refused configurations raise PatchError; conflicts are values.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from plimsoll.cluster.kinds.shape import Type
from plimsoll.cluster.patch.compare import Changes
from plimsoll.cluster.patch.elements import order, show_path
from plimsoll.cluster.patch.fields import FieldSet, difference, intersection, iterate, union
from plimsoll.cluster.patch.gojson import quote
from plimsoll.cluster.patch.guard import guarded
from plimsoll.cluster.patch.json_patch import equal
from plimsoll.cluster.patch.merge import applied_fields, merge, name_objects, remove, settle
from plimsoll.cluster.patch.owners import (
    APPLY,
    UPDATE,
    Identity,
    Owner,
    Owners,
    identify,
    managed_fields,
    read_owners,
    with_owners,
)
from plimsoll.cluster.patch.tracking import (
    UNOWNED,
    Convert,
    Filter,
    changes_in,
    compare_tracked,
    rewrite_owners,
    update_owners,
    yield_fields,
)
from plimsoll.cluster.patch.typed import check_typed
from plimsoll.errors import PatchError

BEFORE_FIRST_APPLY = "before-first-apply"


class Conflict(NamedTuple):
    """A field that somebody else owns and that the configuration would change."""

    manager: str
    field: str
    operation: str
    api_version: str
    subresource: str

    @property
    def owner(self) -> str:
        """The owner, for people: `"kubectl-edit" with subresource "status" using v1`."""
        text = quote(self.manager)
        if self.subresource:
            text += f" with subresource {quote(self.subresource)}"
        return f"{text} using {self.api_version}" if self.operation == UPDATE else text


class Applied(NamedTuple):
    """The object after an apply; as it was if there are conflicts."""

    tree: dict[str, Any]
    conflicts: tuple[Conflict, ...] = ()


def conflict_message(conflicts: tuple[Conflict, ...]) -> str:
    """What the API says about conflicts."""
    if len(conflicts) == 1:
        return f"Apply failed with 1 conflict: conflict with {conflicts[0].owner}: {conflicts[0].field}"
    lines: list[str] = []
    last = None
    for conflict in conflicts:
        who = conflict._replace(field="")
        if who != last:
            lines.append(f"conflicts with {conflict.owner}:")
            last = who
        lines.append(f"- {conflict.field}")
    return f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)


def conflict_causes(conflicts: tuple[Conflict, ...]) -> list[dict[str, str]]:
    """The same as causes of a Status."""
    return [
        {
            "reason": "FieldManagerConflict",
            "message": f"conflict with {conflict.owner}",
            "field": conflict.field,
        }
        for conflict in conflicts
    ]


class _Request(NamedTuple):
    """One apply: who, in which version, and how."""

    who: Identity
    schema: Type | None
    version: str
    subresource: str
    now: str
    ignored: Filter | None
    convert: Convert | None


@guarded
def apply_owned(
    live: dict[str, Any] | None,
    applied: dict[str, Any],
    *,
    schema: Type | None,
    manager: str,
    api_version: str,
    subresource: str,
    force: bool,
    now: str,
    ignored: Filter | None = None,
    convert: Convert | None = None,
) -> Applied:
    """Apply a configuration to the stored object, or make an object of it if there is none (live None)."""
    check_configuration(applied, api_version)
    check_typed(applied, schema)
    request = _Request(
        identify(manager, APPLY, api_version, subresource),
        schema,
        api_version,
        subresource,
        now,
        ignored,
        convert,
    )
    base: dict[str, Any] = live if live is not None else {}
    stored = read_owners(managed_fields(base), trusted=True)
    owners = dict(stored)
    if live is not None and not owners:
        first = identify(BEFORE_FIRST_APPLY, UPDATE, api_version, subresource)
        owners = update_owners(
            {}, base, {}, first, schema=schema, version=api_version, now=now, ignored=ignored, convert=convert
        )
    tree, owners, conflicts = _apply(base, applied, owners, request, force)
    if conflicts:
        return Applied(base, conflicts)
    return Applied(with_owners(tree, rewrite_owners(live, stored, owners)))


def check_configuration(applied: Any, api_version: str) -> None:
    """Refuse what is no configuration for this version."""
    if not isinstance(applied, dict):
        raise PatchError("an apply configuration is an object", malformed=True)
    given = applied.get("apiVersion")
    if given != api_version:
        raise PatchError(
            "Incorrect version specified in apply patch. "
            f"Specified patch version: {given}, expected: {api_version}",
            malformed=True,
        )
    metadata = applied.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        raise PatchError("metadata is no object", malformed=True)
    if managed_fields(applied) is not None:
        raise PatchError("metadata.managedFields must be nil", malformed=True)


def _apply(
    live: dict[str, Any], applied: dict[str, Any], owners: Owners, request: _Request, force: bool
) -> tuple[dict[str, Any], Owners, tuple[Conflict, ...]]:
    who = request.who
    merged = merge(live, applied, request.schema)
    last = owners.get(who)
    fields = applied_fields(applied, request.schema)
    if request.ignored is not None:
        fields = request.ignored(fields)
    owners = {**owners, who: Owner(fields, request.version, last.time if last else None)}
    new = _prune(merged, owners, last, request)
    if not force:
        conflicts = _conflicts(live, new, owners, request)
        if conflicts:
            return live, owners, conflicts
    owners, _ = yield_fields(
        live,
        new,
        owners,
        who,
        schema=request.schema,
        version=request.version,
        ignored=request.ignored,
        convert=request.convert,
    )
    mine = difference(fields, UNOWNED)
    changed = not equal(live, new)
    time = request.now if changed else last.time if last else None
    if not mine:
        del owners[who]
    elif last is not None and last.version == request.version and equal(last.fields, mine):
        owners[who] = last._replace(time=time)
    else:
        owners[who] = Owner(mine, request.version, time)
    return settle(new, request.schema) if changed else live, owners, ()


def _prune(merged: dict[str, Any], owners: Owners, last: Owner | None, request: _Request) -> dict[str, Any]:
    """Take out what the applier named last time, not this time, and nobody else owns."""
    if last is None or not last.fields:
        return merged
    schema = request.schema
    before = name_objects(applied_fields(merged, schema), schema)
    pruned = remove(merged, name_objects(last.fields, schema), schema) or {}
    owned: FieldSet = {}
    for owner in owners.values():
        owned = union(owned, owner.fields)
    after = name_objects(applied_fields(pruned, schema), schema)
    pruned = remove(merged, difference(before, union(after, name_objects(owned, schema))), schema) or {}
    after = name_objects(applied_fields(pruned, schema), schema)
    gone = intersection(difference(before, after), name_objects(last.fields, schema))
    left: dict[str, Any] = remove(merged, gone, schema) or {}
    return left


def _conflicts(
    live: dict[str, Any], new: dict[str, Any], owners: Owners, request: _Request
) -> tuple[Conflict, ...]:
    seen: dict[str, Changes | None] = {
        request.version: compare_tracked(live, new, request.schema, request.ignored)
    }
    found = []
    for identity, owner in sorted(owners.items(), key=lambda pair: pair[0].text):
        if identity == request.who:
            continue
        changes = changes_in(
            seen, owner.version, live, new, request.version, request.ignored, request.convert
        )
        if changes is None:
            continue
        for path in iterate(intersection(owner.fields, changes.changed), order):
            found.append(
                Conflict(
                    identity.manager, show_path(path), identity.operation, owner.version, identity.subresource
                )
            )
    return tuple(found)
