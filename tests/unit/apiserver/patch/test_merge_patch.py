"""JSON merge patch: RFC 7386."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from plimsoll.apiserver.patch import apply_merge_patch
from plimsoll.errors import PatchError
from tests.unit.apiserver.patch.sample_schemas import json_values


@pytest.mark.parametrize(
    ("tree", "patch", "merged"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"a": "text"}, {"a": {"b": {"c": None}}}, {"a": {"b": {}}}),
        ({}, {"a": [{"b": None, "c": 1}, None]}, {"a": [{"c": 1}, None]}),
        ({"a": {}}, {"a": [{"b": None}]}, {"a": [{"b": None}]}),
        ({"kept": None}, {"a": 1}, {"kept": None, "a": 1}),
    ],
)
def test_merging(tree: Any, patch: Any, merged: Any) -> None:
    before = json.dumps([tree, patch])
    assert apply_merge_patch(tree, patch) == merged
    assert json.dumps([tree, patch]) == before


@pytest.mark.parametrize("patch", [None, [], "x", 1])
def test_only_objects_are_patches(patch: Any) -> None:
    with pytest.raises(PatchError) as caught:
        apply_merge_patch({}, patch)
    assert caught.value.malformed


@given(json_values(), json_values())
def test_merging_twice_is_merging_once(tree: Any, patch: Any) -> None:
    if isinstance(patch, dict):
        once = apply_merge_patch(tree, patch)
        assert apply_merge_patch(once, patch) == once


def test_depth_ends_in_an_error() -> None:
    deep: Any = {}
    for _ in range(100_000):
        deep = {"a": deep}
    with pytest.raises(PatchError, match="nested too deeply"):
        apply_merge_patch({}, deep)
