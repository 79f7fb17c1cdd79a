"""Comparison of two states, checked against flat tables of paths."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given

from plimsoll.apiserver.patch.compare import compare, to_field_set
from plimsoll.apiserver.patch.field_set import FieldSet, iter_paths
from plimsoll.apiserver.patch.merge import (
    applied_fields,
    drop_nulls,
    ensure_named_fields_are_members,
    merge,
    remove_items,
)
from plimsoll.apiserver.patch.path_elements import item_element, sort_key
from plimsoll.apiserver.patch.schema_queries import child, merge_form
from plimsoll.apiserver.registry.schema_types import SchemaType
from tests.unit.apiserver.patch.sample_schemas import CLAIM, NODE, POD, THING, things

Path = tuple[str, ...]


def paths(fields: FieldSet) -> set[Path]:
    return set(iter_paths(fields, sort_key))


def table(value: Any, schema: SchemaType | None, path: Path = ()) -> dict[Path, Any]:
    """Return every path of a value with its value, including merged containers."""
    found = {path: value}
    how = merge_form(schema)
    if how == "list" and schema is not None and isinstance(value, list):
        for item in value:
            found |= table(item, schema.item, (*path, item_element(item, schema)))
    elif how in ("map", "free") and isinstance(value, dict):
        for name, inner in value.items():
            found |= table(inner, child(schema, name), (*path, "f:" + name))
    return found


def parents(paths_of: Any) -> set[Path]:
    return {path[:length] for path in paths_of for length in range(len(path))}


def naive(old: Any, new: Any, schema: SchemaType | None) -> tuple[set[Path], set[Path]]:
    before, after = table(old, schema), table(new, schema)
    inner = parents(before) | parents(after)
    changed = {
        path
        for path, value in after.items()
        if path and (path not in before or (path not in inner and json_of(before[path]) != json_of(value)))
    }
    return changed, {path for path in before if path not in after}


def json_of(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


@given(things(), things())
def test_comparison_equals_the_naive_comparison(old: Any, new: Any) -> None:
    old.setdefault("metadata", {})
    for tree in (old, new):  # what upstream always writes has a test of its own
        for item in tree.get("items", []):
            item.setdefault("size", 0)
    changes = compare(old, new, THING)
    assert (paths(changes.changed), paths(changes.removed)) == naive(old, new, THING)
    changes = compare(old, new, None)
    assert (paths(changes.changed), paths(changes.removed)) == naive(old, new, None)


@given(things())
def test_all_fields_of_a_new_object_are_added(tree: Any) -> None:
    assert compare(tree, tree, THING) == ({}, {})
    node = to_field_set(tree, THING)
    assert paths(node) == {path for path in table(tree, THING) if path}


def test_embedded_objects_count_as_present() -> None:
    pod = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "resources": {}}]}}
    assert paths(compare({}, pod, POD).changed) == {
        ("f:metadata", "f:labels"),
        ("f:metadata", "f:labels", "f:a"),
        ("f:spec", "f:containers", 'k:{"name":"c"}'),
        ("f:spec", "f:containers", 'k:{"name":"c"}', "f:name"),
        ("f:spec", "f:containers", 'k:{"name":"c"}', "f:resources"),
    }
    assert compare({"status": {}}, {}, NODE) == ({}, {})
    assert compare({"status": {"nodeInfo": {"architecture": ""}}}, {}, NODE) == ({}, {})


def test_null_equals_absent_unless_applied() -> None:
    old: Any = {"inner": {"a": None}}
    assert compare(old, {"inner": {}}, THING) == ({}, {})
    assert compare({"inner": {}}, old, THING) == ({}, {})
    assert compare({"inner": {}}, old, THING, nulls=True).changed == {"f:inner": {"f:a": {}}}


def test_items_with_duplicate_keys_count_as_one() -> None:
    one, two = [{"name": "a", "size": 1}], [{"name": "a", "size": 1}, {"name": "a", "size": 2}]
    element = 'k:{"name":"a"}'
    grown = compare({"items": one}, {"items": two}, THING)
    assert grown.changed == {"f:items": {element: {}}}
    assert paths(grown.removed) == {("f:items", element, *rest) for rest in ((), ("f:name",), ("f:size",))}
    shrunk = compare({"items": two}, {"items": one}, THING)
    assert shrunk.removed == {"f:items": {element: {}}}
    assert paths(shrunk.changed) == paths(grown.removed)
    assert compare({"items": two}, {"items": two[::-1]}, THING).changed == {"f:items": {element: {}}}


def test_kinds_of_free_values_may_change() -> None:
    def changes(old: Any, new: Any) -> tuple[set[Path], set[Path]]:
        found = compare({"a": old}, {"a": new}, None)
        return paths(found.changed), paths(found.removed)

    a, b = ("f:a",), ("f:a", "f:b")
    assert changes({"b": 1}, 2) == ({a}, {b})
    assert changes(2, {"b": 1}) == ({a, b}, set())
    assert changes({"b": 1}, None) == (set(), {b})
    assert changes(None, {"b": 1}) == ({b}, set())
    assert changes(1, True) == ({a}, set())
    assert changes([1], [1]) == (set(), set())


@given(things(), things())
def test_merging_takes_the_applied_and_keeps_the_rest(live: Any, applied: Any) -> None:
    before = json.dumps([live, applied])
    merged = merge(live, applied, THING)
    assert json.dumps([live, applied]) == before
    result, mine, theirs = (table(tree, THING) for tree in (merged, applied, live))
    assert result.keys() == mine.keys() | theirs.keys()
    for path in result.keys() - parents(result):
        assert json_of(result[path]) == json_of(mine[path] if path in mine else theirs[path])
    names = [item["name"] for item in applied.get("items", [])]
    others = [item["name"] for item in live.get("items", []) if item["name"] not in names]
    order_of = [item["name"] for item in merged.get("items", [])]
    assert [name for name in order_of if name in names] == names
    assert [name for name in order_of if name in others] == others
    assert merge(merged, applied, THING) == merged


@given(things())
def test_applied_fields_are_the_leaves_and_the_items(tree: Any) -> None:
    fields = paths(applied_fields(tree, THING))
    everything = {path for path in table(tree, THING) if path}
    assert fields <= everything
    leaves = everything - parents(everything)
    empty_lists = {
        path for path in leaves if table(tree, THING)[path] == [] and path[-1] in ("f:items", "f:marks")
    }
    assert leaves - empty_lists <= fields
    assert {path for path in everything if path[-1][0] == "k"} <= fields


@given(things(), things())
def test_removed_fields_are_gone_and_the_others_stay(tree: Any, gone: Any) -> None:
    fields = applied_fields(gone, THING)
    left = remove_items(tree, fields, THING) or {}
    kept = paths(applied_fields(drop_nulls(left, THING), THING))
    assert not kept & paths(fields)
    values, removed = table(tree, THING), paths(fields)
    expected = {
        path
        for path in paths(applied_fields(tree, THING))
        if values[path] not in ({}, []) and not any(path[: n + 1] in removed for n in range(len(path)))
    }
    assert expected <= kept


def test_declared_fields_with_something_below_are_named() -> None:
    fields = applied_fields({"inner": {"a": 1}, "items": [{"name": "a", "tags": {"x": "1"}}]}, THING)
    item = 'k:{"name":"a"}'
    assert paths(ensure_named_fields_are_members(fields, THING)) - paths(fields) == {
        ("f:inner",),
        ("f:items",),
        ("f:items", item, "f:tags"),
    }
    assert ensure_named_fields_are_members(fields, None) is fields


def test_real_kinds_merge_by_their_keys() -> None:
    claim = {"status": {"devices": [{"driver": "d", "pool": "p", "device": "x", "data": {"a": 1}}]}}
    fields = applied_fields(claim, CLAIM)
    element = 'k:{"device":"x","driver":"d","pool":"p"}'
    assert fields["f:status"]["f:devices"][element]["f:data"] == {}
