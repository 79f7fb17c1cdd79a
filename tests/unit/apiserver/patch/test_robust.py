"""Any input: a result or a PatchError, never another exception, and never a modified argument."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.apiserver.patch import (
    apply_json_patch,
    apply_merge_patch,
    apply_strategic_patch,
    server_side_apply,
    track_update,
)
from plimsoll.errors import PatchError
from tests.unit.apiserver.patch.sample_schemas import POD, THING, json_values

HOW: Any = {"manager": "m", "api_version": "v1", "subresource": "", "now": "2026-01-01T00:00:00Z"}


def apply(live: Any, applied: Any, schema: Any = THING) -> Any:
    if isinstance(applied, dict):
        applied = {**applied, "apiVersion": "v1", "kind": "Thing"}
    return server_side_apply(live, applied, schema=schema, force=False, **HOW)


FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "json": apply_json_patch,
    "merge": apply_merge_patch,
    "strategic": lambda tree, patch: apply_strategic_patch(tree, patch, THING),
    "strategic pod": lambda tree, patch: apply_strategic_patch(tree, patch, POD),
    "apply": apply,
    "apply untyped": lambda live, applied: apply(live, applied, None),
    "track": lambda old, new: track_update(old, new, schema=THING, **HOW),
    "track pod": lambda old, new: track_update(old, new, schema=POD, **HOW),
    "track untyped": lambda old, new: track_update(old, new, schema=None, **HOW),
}


def operations() -> st.SearchStrategy[Any]:
    paths = st.sampled_from(["", "/", "/a", "/a/0", "/items/-", "/a/-1", "/~1", "/metadata/name", "x"])
    kinds = st.sampled_from(["add", "remove", "replace", "move", "copy", "test", "?"])
    operation = st.fixed_dictionaries(
        {}, optional={"op": kinds, "path": paths, "from": paths, "value": json_values()}
    )
    return st.lists(operation, max_size=4)


def objects() -> st.SearchStrategy[Any]:
    """Generate objects that resemble the small kind."""
    names = st.sampled_from(
        ["items", "marks", "inner", "count", "metadata", "kind", "spec", "status", "free"]
    )
    entry = st.fixed_dictionaries(
        {},
        optional={
            "manager": json_values(),
            "operation": st.sampled_from(["Apply", "Update"]) | json_values(),
            "apiVersion": st.just("v1") | json_values(),
            "fieldsType": st.just("FieldsV1") | json_values(),
            "fieldsV1": st.dictionaries(
                st.sampled_from(["f:items", "f:count", 'k:{"name":"a"}', "v:1", "i:0", "k:1", "."]),
                json_values(),
            ),
            "time": json_values(),
            "subresource": json_values(),
        },
    )
    metadata = st.fixed_dictionaries(
        {},
        optional={
            "managedFields": st.lists(entry, max_size=2),
            "annotations": json_values(),
            "name": json_values(),
        },
    )
    return st.tuples(st.dictionaries(names, json_values(), max_size=4), metadata).map(
        lambda pair: {"metadata": pair[1], **pair[0]}
    )


@pytest.mark.parametrize("name", FUNCTIONS)
@given(st.none() | json_values() | objects(), json_values() | operations() | objects())
def test_any_patch_is_applied_or_refused(name: str, tree: Any, patch: Any) -> None:
    before = copy.deepcopy([tree, patch])
    with suppress(PatchError):
        FUNCTIONS[name](tree, patch)
    assert repr([tree, patch]) == repr(before)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("kind", ["map", "list", "field"])
def test_depth_ends_in_an_error_or_a_result(name: str, kind: str) -> None:
    deep: Any = 1
    for _ in range(50_000):
        deep = {"map": {"a": deep}, "list": [deep], "field": {"inner": deep}}[kind]
    tree = {"apiVersion": "v1", "metadata": {"labels": {"a": "1"}}, "inner": deep, "free": deep, "spec": deep}
    for arguments in [(tree, {**tree, "count": 1}), ({}, tree), (tree, {})]:
        with suppress(PatchError):
            FUNCTIONS[name](*arguments)
