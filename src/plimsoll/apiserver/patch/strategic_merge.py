"""Strategic merge patch: a merge patch that merges lists by key, according to the schema.

Supports the directives `$patch: replace|delete` in maps and list items, `$retainKeys`,
`$deleteFromPrimitiveList/NAME` and `$setElementOrder/NAME`. The order of merged lists is in `ordering`.
Neither tree is modified; values from the patch are stored without nulls and directives.

DIFF: patches that do not match the object are rejected (400, 422), where upstream returns 500
(test_mismatching_patches_are_rejected).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from plimsoll.api.go_text import encode_go
from plimsoll.apiserver.patch.ordering import ElementKey, check_order, interleave, key_of
from plimsoll.apiserver.patch.recursion_guard import guard_recursion
from plimsoll.apiserver.patch.schema_queries import child
from plimsoll.apiserver.registry.schema_types import SchemaType
from plimsoll.errors import PatchError

PATCH = "$patch"
RETAIN = "$retainKeys"
DELETE_FROM = "$deleteFromPrimitiveList"
SET_ORDER = "$setElementOrder"


@guard_recursion
def apply_strategic_patch(tree: Any, patch: Any, schema: SchemaType | None) -> Any:
    """Return the tree with the patch merged into it."""
    if schema is None:
        raise PatchError("strategic merge patch format is not supported", malformed=True)
    if not isinstance(patch, dict):
        raise PatchError("a strategic merge patch is an object", malformed=True)
    return _merge_map(tree if isinstance(tree, dict) else {}, patch, schema)


def _merge_map(live: dict[str, Any], patch: dict[str, Any], schema: SchemaType | None) -> dict[str, Any]:
    if PATCH in patch:
        return _has_directive(patch)
    merged = dict(live)
    rest = dict(patch)
    if RETAIN in rest:
        _retain(merged, rest)
    for key in [key for key in rest if key.startswith(SET_ORDER)]:
        _merge_in_order(merged, rest, key, schema)
    for key, value in rest.items():
        if not key.startswith(DELETE_FROM):
            _merge_value(merged, key, value, schema)
    for key, value in rest.items():
        if key.startswith(DELETE_FROM):
            name = _target(key, DELETE_FROM, "invalid patch format of primitive list")
            _merge_value(merged, name, value, schema, deletes=True)
    return merged


def _has_directive(patch: dict[str, Any]) -> dict[str, Any]:
    directive = patch[PATCH]
    if directive == "replace":
        return {
            key: drop_null_and_directive_keys(value) for key, value in patch.items() if _is_kept(key, value)
        }
    if directive == "delete":
        return {}
    raise PatchError(f"unknown patch type: {encode_go(directive)} in map: {encode_go(patch)}")


def _merge_value(
    merged: dict[str, Any], name: str, value: Any, schema: SchemaType | None, *, deletes: bool = False
) -> None:
    if value is None:
        merged.pop(name, None)
        return
    live = merged.get(name)
    if isinstance(live, dict) and isinstance(value, dict):
        inner = child(schema, name)
        if inner is not None and "replace" in inner.strategies:
            merged[name] = drop_null_and_directive_keys(value)
        else:
            merged[name] = _merge_map(live, value, inner)
    elif isinstance(live, list) and isinstance(value, list):
        merged[name] = _merge_list(live, value, _list_rule(schema, name), deletes=deletes).items
    elif deletes:
        return
    elif _is_directive(value):
        merged.pop(name, None)
    else:
        merged[name] = clean_new_value(value)


class _ListRule(NamedTuple):
    """Merge rule of a list: whether it is merged, its merge key (None: a set of scalars), and its item
    type.
    """

    merges: bool
    key: str
    item: SchemaType | None


def _list_rule(schema: SchemaType | None, name: str) -> _ListRule:
    inner = child(schema, name)
    if inner is None or inner.kind != "list":
        return _ListRule(False, "", None)
    return _ListRule("merge" in inner.strategies, inner.merge_key, inner.item)


class _Merged(NamedTuple):
    """A merged list, and the order of the live items."""

    items: list[Any]
    order: list[Any]


def _merge_list(live: list[Any], patch: list[Any], rule: _ListRule, *, deletes: bool = False) -> _Merged:
    if not rule.merges and not deletes:
        return _Merged([drop_null_and_directive_keys(item) for item in patch], live)
    if not live and not patch:
        return _Merged(live, live)
    if _element_kind(live, patch) is not dict:
        if deletes:
            gone = {key_of(item) for item in patch}
            return _Merged([item for item in live if key_of(item) not in gone], live)
        return _Merged(interleave(list({key_of(i): i for i in live + patch}.values()), patch, live, ""), live)
    if not rule.key:
        raise PatchError("cannot merge lists without merge key")
    return _merge_items(live, patch, rule)


def _merge_items(live: list[Any], patch: list[Any], rule: _ListRule) -> _Merged:
    """Merge lists of maps by their key, after applying the directives among the items."""
    plain = [item for item in patch if PATCH not in item]
    gone: set[Any] = set()
    replaces = False
    for item in patch:
        if PATCH not in item:
            continue
        directive = item[PATCH]
        if directive == "delete":
            gone.add(_key_value(item, rule.key))
        elif directive == "replace":
            replaces = True
        elif directive == "merge":
            raise PatchError("merging lists cannot yet be specified in the patch")
        else:
            raise PatchError(f"unknown patch type: {encode_go(directive)} in map: {encode_go(item)}")
    if replaces:
        for item in plain:
            _key_value(item, rule.key)
        return _Merged([drop_null_and_directive_keys(item) for item in plain], live)
    kept = [item for item in live if rule.key not in item or key_of(item[rule.key]) not in gone]
    merged = list(kept)
    where: dict[Any, int] = {}
    for number, item in enumerate(kept):
        if rule.key in item:
            where.setdefault(key_of(item[rule.key]), number)
    for item in plain:
        key = _key_value(item, rule.key)
        if key in where:
            merged[where[key]] = _merge_map(merged[where[key]], item, rule.item)
        else:
            where[key] = len(merged)
            merged.append(drop_null_and_directive_keys(item))
    # Upstream deletes and appends in place: items added in place of deleted ones count as live items for an
    # order set by the patch.
    order = kept + merged[len(kept) : len(live)]
    return _Merged(interleave(merged, plain, kept, rule.key), order)


def _merge_in_order(
    merged: dict[str, Any], rest: dict[str, Any], key: str, schema: SchemaType | None
) -> None:
    """Merge a list whose element order is set by the patch."""
    wanted = rest.pop(key)
    name = _target(key, SET_ORDER, "invalid patch format of setElementOrder list")
    live, patch = merged.get(name), rest.get(name)
    for given in (wanted, live if name in merged else [], patch if name in rest else []):
        if not isinstance(given, list):
            raise PatchError(f"{key}: both it and {name} have to be lists", malformed=True)
    rule = _list_rule(schema, name)
    check_order(patch or [], wanted, rule.key)
    if name not in merged and name not in rest:
        return
    order = live or []
    if name not in rest:
        items = list(order)
    elif name not in merged:
        items = [drop_null_and_directive_keys(item) for item in drop_directive_maps(patch)]
    else:
        items, order = _merge_list(order, patch or [], rule)
    _element_kind(live or [], patch or [], empty=False)
    merged[name] = interleave(items, wanted, order, rule.key)
    rest.pop(name, None)


def _retain(merged: dict[str, Any], rest: dict[str, Any]) -> None:
    """Drop every key that the patch does not list."""
    retained = rest.pop(RETAIN)
    if not isinstance(retained, list) or any(isinstance(key, dict | list) for key in retained):
        raise PatchError("invalid patch format of retainKeys", malformed=True)
    keys = {key for key in retained if isinstance(key, str)}
    for key, value in rest.items():
        if value is not None and not key.startswith((DELETE_FROM, SET_ORDER)) and key not in keys:
            raise PatchError("invalid patch format of retainKeys", malformed=True)
    for key in [key for key in merged if key not in keys]:
        del merged[key]


def _target(key: str, prefix: str, problem: str) -> str:
    """Return the field that a directive refers to: the part after the slash."""
    head, slash, name = key.partition("/")
    if not slash or head != prefix:
        raise PatchError(problem, malformed=True)
    return name or key


def _element_kind(*lists: list[Any], empty: bool = True) -> type | None:
    """Return the common type of all elements."""
    kinds = {item.__class__ for items in lists for item in items}
    if list in kinds:
        raise PatchError("lists of lists are not supported")
    if len(kinds) > 1 or type(None) in kinds:
        raise PatchError("list element types are not identical")
    if not kinds and not empty:
        raise PatchError("no elements in any of the given slices")
    return kinds.pop() if kinds else None


def _key_value(item: dict[str, Any], key: str) -> ElementKey:
    if key not in item:
        raise PatchError(f"map: {encode_go(item)} does not contain declared merge key: {key}")
    return key_of(item[key])


def _is_directive(value: Any) -> bool:
    return isinstance(value, dict) and PATCH in value


def drop_directive_maps(value: Any) -> Any:
    """Return the value without maps that carry a directive, as there is nothing to apply it to."""
    if isinstance(value, dict):
        return {key: drop_directive_maps(inner) for key, inner in value.items() if not _is_directive(inner)}
    if isinstance(value, list):
        return [drop_directive_maps(item) for item in value if not _is_directive(item)]
    return value


def drop_null_and_directive_keys(value: Any) -> Any:
    """Return the value as it is stored: maps without nulls and without directives."""
    if isinstance(value, dict):
        return {
            key: drop_null_and_directive_keys(inner) for key, inner in value.items() if _is_kept(key, inner)
        }
    if isinstance(value, list):
        return [drop_null_and_directive_keys(item) for item in value]
    return value


def clean_new_value(value: Any) -> Any:
    """Return `drop_null_and_directive_keys(drop_directive_maps(value))` in one pass."""
    if isinstance(value, dict):
        return {
            key: clean_new_value(inner) if inner.__class__ in _CONTAINERS else inner
            for key, inner in value.items()
            if _is_kept(key, inner) and not _is_directive(inner)
        }
    if isinstance(value, list):
        return [clean_new_value(item) for item in value if not _is_directive(item)]
    return value


def _is_kept(key: str, value: Any) -> bool:
    return value is not None and (key[:1] != "$" or not key.startswith(_DIRECTIVES))


_CONTAINERS = frozenset((dict, list))
_DIRECTIVES = (PATCH, RETAIN, DELETE_FROM, SET_ORDER)
