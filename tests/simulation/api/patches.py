"""Patches: JSON, merge, strategic merge, and server-side apply. The patched tree is not modified."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from plimsoll.apiserver.patch import (
    apply_json_patch,
    apply_merge_patch,
    apply_strategic_patch,
    conflict_causes,
    conflict_message,
    server_side_apply,
    track_update,
)
from plimsoll.apiserver.patch.schema_queries import child
from plimsoll.apiserver.patch.strategic_merge import clean_new_value
from plimsoll.apiserver.registry.schema import schema_for
from plimsoll.apiserver.registry.schema_types import SchemaType
from plimsoll.apiserver.status import bad_request, unprocessable
from plimsoll.errors import ApiError, PatchError
from tests.simulation.api.kinds import Kind

Tree = dict[str, Any]

APPLY = "apply"
PATCH_TYPES = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
    "application/apply-patch+yaml": APPLY,
}


def apply_patch(kind: Kind, type: str, tree: Tree, body: Any, raw: bytes) -> Any:
    """Return the patched tree, which may share parts with both; ApiError 400 or 422. `raw` is the body."""
    try:
        if type == "json":
            return apply_json_patch(tree, body)
        if type == "merge":
            return apply_merge_patch(tree, body)
        if isinstance(body, dict) and b'"$' not in raw:
            merged = _merge_map(tree, body, _schema(kind), clean_new_value if b"null" in raw else _same)
        else:
            merged = apply_strategic_patch(tree, body, _schema(kind))
        return {**merged, "apiVersion": tree["apiVersion"], "kind": tree["kind"]}
    except PatchError as error:
        raise _patch_error(error) from None


def _same(value: Any) -> Any:
    return value


def _merge_map(live: Tree, patch: Tree, schema: SchemaType | None, clean: Callable[[Any], Any]) -> Tree:
    """Return a map after a strategic merge without directives, which is what components mostly send.

    `clean` removes the nulls of new values.
    """
    merged = dict(live)
    for name, value in patch.items():
        known, of_value = merged.get(name), child(schema, name)
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, dict) and isinstance(known, dict):
            merged[name] = _merge_map(known, value, of_value, clean)
        elif isinstance(value, list) and known and of_value is not None and "merge" in of_value.strategies:
            merged[name] = _merge_list(known, value, of_value, clean)
        else:
            merged[name] = clean(value)
    return merged


def _merge_list(
    live: list[Any], patch: list[Any], schema: SchemaType, clean: Callable[[Any], Any]
) -> list[Any]:
    """Return a list whose items are merged by key: in the order of the patch, the others where they were."""
    key = schema.merge_key

    def key_of(item: Any) -> Any:
        return item[key] if key else item

    known = {key_of(item): index for index, item in enumerate(live)}
    patched: dict[Any, Any] = {}
    for item in patch:
        earlier = patched.get(key_of(item))
        patched[key_of(item)] = {**earlier, **item} if key and earlier else item
    others = [index for index, item in enumerate(live) if key_of(item) not in patched]
    woven: list[Any] = []
    waiting = 0
    for name, item in patched.items():
        index = known.get(name, -1)
        while waiting < len(others) and others[waiting] < index:
            woven.append(live[others[waiting]])
            waiting += 1
        is_merged = index >= 0 and bool(key)
        woven.append(_merge_map(live[index], item, schema.item, clean) if is_merged else clean(item))
    return woven + [live[index] for index in others[waiting:]]


def apply_configuration(
    kind: Kind, live: Tree | None, applied: Tree, *, manager: str, subresource: str, force: bool, now: str
) -> Tree:
    """Return the object after a server-side apply; ApiError 400, or 409 with the conflicts."""
    try:
        result = server_side_apply(
            live,
            applied,
            schema=_schema(kind),
            manager=manager,
            api_version=kind.api_version,
            subresource=subresource,
            force=force,
            now=now,
        )
    except PatchError as error:
        raise _patch_error(error) from None
    if result.conflicts:
        causes = {"causes": conflict_causes(result.conflicts)}
        raise ApiError(409, "Conflict", conflict_message(result.conflicts), causes)
    return result.tree


def keep_owners(kind: Kind, tree: Tree, old: Tree, *, manager: str, subresource: str, now: str) -> Tree:
    """Return a tree with the owners of applied fields, without those that the write changed."""
    owners = old["metadata"].get("managedFields")
    if not owners:
        return tree
    tree["metadata"]["managedFields"] = owners
    if all(tree.get(part) is old.get(part) for part in ("spec", "status")) or not _changes_applied(
        tree, old, owners
    ):
        return tree
    return track_update(
        old,
        tree,
        schema=_schema(kind),
        manager=manager,
        api_version=kind.api_version,
        subresource=subresource,
        now=now,
    )


def _changes_applied(tree: Tree, old: Tree, owners: list[Tree]) -> bool:
    """Return whether a field at the second level changed that an apply set."""
    for owner in owners:
        if owner["operation"] != "Apply":
            continue
        for part, below in owner["fieldsV1"].items():
            now, before = tree.get(part[2:]) or {}, old.get(part[2:]) or {}
            if now is not before and any(now.get(name[2:]) != before.get(name[2:]) for name in below):
                return True
    return False


@lru_cache(maxsize=128)
def _schema(kind: Kind) -> SchemaType | None:
    return schema_for(kind.group, kind.version, kind.name)


def _patch_error(error: PatchError) -> ApiError:
    return bad_request(str(error)) if error.code == 400 else unprocessable(str(error))
