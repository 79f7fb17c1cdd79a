"""Set operations on field sets, checked against sets of paths."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import reduce
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.apiserver.patch.field_set import (
    FieldSet,
    difference,
    from_paths,
    has_path,
    intersection,
    iter_paths,
    union,
    union_all,
    without,
)
from plimsoll.apiserver.patch.managed_fields import sort_set
from plimsoll.apiserver.patch.merge import reconcile_with_schema
from plimsoll.apiserver.patch.path_elements import format_path, item_element, parse_field_set, sort_key
from plimsoll.apiserver.patch.reset_fields import excluding, including
from plimsoll.errors import PatchError
from tests.unit.apiserver.patch.sample_schemas import ITEM, POD, STRING, THING, list_type

Path = tuple[str, ...]

ELEMENTS = st.sampled_from(["f:a", "f:b", 'k:{"name":"x"}', 'v:"y"', "i:0"])
PATHS = st.lists(ELEMENTS, min_size=1, max_size=3).map(tuple)
SETS = st.frozensets(PATHS, max_size=8)


def paths(fields: FieldSet) -> set[Path]:
    return set(iter_paths(fields, sort_key))


@given(SETS)
def test_a_set_holds_its_paths(wanted: frozenset[Path]) -> None:
    fields = from_paths(sorted(wanted))
    assert paths(fields) == wanted
    assert all(has_path(fields, path) for path in wanted)
    assert bool(fields) == bool(wanted)


@given(SETS, SETS)
@pytest.mark.parametrize(
    ("fast", "naive"),
    [
        (union, lambda a, b: a | b),
        (intersection, lambda a, b: a & b),
        (difference, lambda a, b: a - b),
        (without, lambda a, b: {p for p in a if not any(p[: n + 1] in b for n in range(len(p)))}),
    ],
    ids=["union", "intersection", "difference", "without"],
)
def test_operations_agree_with_sets_of_paths(
    fast: Callable[[FieldSet, FieldSet], FieldSet],
    naive: Callable[[frozenset[Path], frozenset[Path]], set[Path]],
    a: frozenset[Path],
    b: frozenset[Path],
) -> None:
    left, right = from_paths(sorted(a)), from_paths(sorted(b))
    before = json.dumps([left, right])
    result = fast(left, right)
    assert paths(result) == naive(a, b)
    assert result == from_paths(sorted(naive(a, b)))  # one form for one set
    assert json.dumps([left, right]) == before
    if fast is not intersection and paths(result) == a:
        assert result is left or not left


@given(SETS)
def test_a_field_set_survives_a_round_trip(wanted: frozenset[Path]) -> None:
    fields = from_paths(sorted(wanted))
    assert parse_field_set(json.loads(json.dumps(fields))) == fields
    assert sort_set(fields) == fields


def test_parsing_normalizes_elements() -> None:
    assert parse_field_set({'k:{"b": 1, "a":"x"}': {}, "v: 1 ": {".": {}}, "i:+3": {}, "x:new": {}}) == {
        'k:{"a":"x","b":1}': {},
        "v:1": {},
        "i:3": {},
    }
    assert parse_field_set({"f:a": {"x:unknown": {}}, ".": {}}) == {"f:a": {}}
    assert parse_field_set(None) == {}


@pytest.mark.parametrize(
    "raw", [[], "x", {"f": {}}, {"fa": {}}, {"f:a": 1}, {"k:[]": {}}, {"k:{": {}}, {"v:": {}}, {"i:x": {}}]
)
def test_malformed_field_sets_are_refused(raw: Any) -> None:
    with pytest.raises(PatchError):
        parse_field_set(raw)


def test_order_of_elements() -> None:
    mixed: FieldSet = {
        "i:1": {},
        'v:"a"': {},
        "v:true": {},
        "v:10": {},
        "v:9": {},
        'k:{"n":10}': {},
        'k:{"n":9}': {},
    }
    mixed |= {"f:b": {}, "f:a": {"f:z": {}, ".": {}}}
    assert list(sort_set(mixed)) == [
        "f:a",
        "f:b",
        'k:{"n":9}',
        'k:{"n":10}',
        "v:9",
        "v:10",
        'v:"a"',
        "v:true",
        "i:1",
    ]
    assert list(sort_set(mixed)["f:a"]) == [".", "f:z"]


def test_path_format() -> None:
    path = ("f:spec", "f:ports", 'k:{"port":80,"protocol":"T\\"P"}', "f:name", "v:1", "i:2")
    assert format_path(path) == '.spec.ports[port=80,protocol="T\\"P"].name[=1][2]'


def test_elements_of_items() -> None:
    assert POD is not None
    containers = POD.fields["spec"].type.fields["containers"].type
    assert containers.item is not None
    ports = containers.item.fields["ports"].type
    assert item_element({"name": "a<b"}, containers) == 'k:{"name":"a\\u003cb"}'
    assert item_element({"containerPort": 80}, ports) == 'k:{"containerPort":80,"protocol":"TCP"}'
    assert item_element({"protocol": "UDP"}, ports) == 'k:{"containerPort":0,"protocol":"UDP"}'
    assert item_element(True, list_type(STRING, list_type="set")) == "v:true"
    bad: list[tuple[Any, Any]] = [(None, ports), ("x", ports), ({}, list_type(STRING, list_type="set"))]
    for item, schema in bad:
        with pytest.raises(PatchError):
            item_element(item, schema)
    with pytest.raises(PatchError, match=r"omits all key fields \[\"tags\"\]"):
        item_element({}, list_type(ITEM, list_type="map", keys=("tags",)))


def test_filters() -> None:
    fields = from_paths([("f:spec", "f:a"), ("f:status",), ("f:status", "f:b"), ("f:metadata", "f:c")])
    assert paths(excluding("status", "metadata.c")(fields)) == {("f:spec", "f:a")}
    resize = including("spec.containers.*.resources")
    here = ("f:spec", "f:containers", 'k:{"name":"x"}')
    limits = (*here, "f:resources", "f:limits")
    fields = from_paths(
        [here, limits, (*here, "f:image"), ("f:spec", "f:nodeName"), ("f:metadata", "f:labels")]
    )
    assert paths(resize(fields)) == {here, limits}


def test_a_type_that_became_atomic_is_owned_as_a_unit() -> None:
    fields = from_paths([("f:whole", "f:a"), ("f:inner", "f:a"), ("f:order", "i:0"), ("f:unknown", "f:a")])
    assert paths(reconcile_with_schema(fields, THING)) == {
        ("f:whole",),
        ("f:inner", "f:a"),
        ("f:order",),
        ("f:unknown", "f:a"),
    }
    assert reconcile_with_schema(fields, None) is fields


@given(st.lists(st.frozensets(PATHS, max_size=5), max_size=9))
def test_the_union_of_many_sets_is_that_of_one_after_the_other(many: list[frozenset[Path]]) -> None:
    sets = [from_paths(sorted(paths)) for paths in many]
    nothing: FieldSet = {}
    assert union_all(sets) == reduce(union, sets, nothing)
