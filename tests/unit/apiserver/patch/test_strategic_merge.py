"""Strategic merge patch."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.apiserver.patch import apply_strategic_patch
from plimsoll.apiserver.patch.ordering import interleave
from plimsoll.apiserver.patch.strategic_merge import (
    clean_new_value,
    drop_directive_maps,
    drop_null_and_directive_keys,
)
from plimsoll.errors import PatchError
from tests.unit.apiserver.patch.sample_schemas import DEPLOYMENT, NAMES, POD, THING, things


def patch(tree: Any, change: Any, schema: Any = THING) -> Any:
    before = json.dumps([tree, change])
    result = apply_strategic_patch(tree, change, schema)
    assert json.dumps([tree, change]) == before
    return result


def named(*names: str) -> list[dict[str, Any]]:
    return [{"name": name} for name in names]


def test_maps_merge_and_null_removes() -> None:
    tree = {"inner": {"a": 1, "b": "x"}, "count": 1, "whole": {"a": "1"}}
    assert patch(tree, {"inner": {"a": 2, "b": None}, "count": None, "text": None}) == {
        "inner": {"a": 2},
        "whole": {"a": "1"},
    }
    assert patch({}, {"inner": {"a": None, "b": "y"}}) == {"inner": {"b": "y"}}


def test_lists_merge_by_their_key() -> None:
    tree = {"items": [{"name": "a", "size": 1}, {"name": "b", "tags": {"x": "1"}}]}
    change = {"items": [{"name": "b", "tags": {"y": "2"}}, {"name": "c", "size": None}]}
    assert patch(tree, change) == {
        "items": [{"name": "a", "size": 1}, {"name": "b", "tags": {"x": "1", "y": "2"}}, {"name": "c"}]
    }


def test_other_lists_are_replaced() -> None:
    assert patch({"order": [1, 2]}, {"order": [3]}) == {"order": [3]}
    assert patch({"unknown": [{"name": "a"}]}, {"unknown": [{"name": "b"}]}) == {"unknown": [{"name": "b"}]}


def test_items_are_deleted_and_lists_replaced_by_directive() -> None:
    tree = {"items": named("a", "b", "c")}
    assert patch(tree, {"items": [{"name": "b", "$patch": "delete"}]}) == {"items": named("a", "c")}
    assert patch(tree, {"items": [{"$patch": "replace"}, {"name": "d"}]}) == {"items": named("d")}
    assert patch(tree, {"items": [{"$patch": "replace"}]}) == {"items": []}


def test_maps_are_replaced_and_emptied_by_directive() -> None:
    tree = {"inner": {"a": 1, "b": "x"}}
    assert patch(tree, {"inner": {"$patch": "replace", "a": 2}}) == {"inner": {"a": 2}}
    assert patch(tree, {"inner": {"$patch": "delete"}}) == {"inner": {}}
    assert patch({}, {"inner": {"$patch": "replace", "a": 2}}) == {}


def test_retained_keys() -> None:
    tree = {"inner": {"a": 1, "b": "x"}}
    assert patch(tree, {"inner": {"$retainKeys": ["a"], "a": 2}}) == {"inner": {"a": 2}}
    bad: list[Any] = [["b"], "a", [{}]]
    for keys in bad:
        with pytest.raises(PatchError, match="retainKeys") as caught:
            patch(tree, {"inner": {"$retainKeys": keys, "a": 2}})
        assert caught.value.malformed


def test_sets_of_scalars() -> None:
    tree = {"marks": ["a", "b", "c"]}
    assert patch(tree, {"marks": ["d", "b"]}) == {"marks": ["d", "a", "b", "c"]}
    assert patch(tree, {"$deleteFromPrimitiveList/marks": ["b", "x"]}) == {"marks": ["a", "c"]}
    assert patch({}, {"$deleteFromPrimitiveList/marks": ["b"]}) == {}
    with pytest.raises(PatchError, match="primitive list"):
        patch(tree, {"$deleteFromPrimitiveListmarks": ["b"]})


def test_order_is_set() -> None:
    tree = {"items": named("a", "b", "c"), "marks": ["a", "b", "c"]}
    assert patch(tree, {"$setElementOrder/items": named("c", "a")}) == {
        "items": named("b", "c", "a"),
        "marks": ["a", "b", "c"],
    }
    change: Any = {"$setElementOrder/items": named("d", "b", "a"), "items": [{"name": "d", "size": 1}]}
    assert patch(tree, change)["items"] == [{"name": "d", "size": 1}, *named("b", "a", "c")]
    change = {
        "$setElementOrder/marks": ["c", "d", "a"],
        "marks": ["d"],
        "$deleteFromPrimitiveList/marks": ["b"],
    }
    assert patch(tree, change)["marks"] == ["c", "d", "a"]


def test_an_item_replacing_another() -> None:
    tree = {"items": named("sidecar", "old")}
    change = {
        "$setElementOrder/items": named("new"),
        "items": [{"name": "new"}, {"name": "old", "$patch": "delete"}],
    }
    assert patch(tree, change) == {"items": named("sidecar", "new")}


@pytest.mark.parametrize(
    "change",
    [
        {"$setElementOrder/items": named("a"), "items": named("b")},
        {"$setElementOrder/items": named("b", "a"), "items": named("a", "b")},
        {"$setElementOrder/items": "a"},
        {"$setElementOrder/items": ["a"], "items": named("a")},
        {"$setElementOrder/items": named("a"), "items": "x"},
        {"$setElementOrderitems": named("a")},
        {"items": [{"size": 1}]},
        {"items": [{"name": {}}]},
        {"items": ["a"]},
        {"items": [None]},
        {"items": [{"$patch": "delete"}]},
        {"items": [{"$patch": "merge", "name": "a"}]},
        {"items": [{"$patch": "bogus", "name": "a"}]},
        {"inner": {"$patch": "merge"}},
        {"marks": [["a"]]},
        {"marks": [1]},
    ],
)
def test_mismatching_patches_are_rejected(change: Any) -> None:
    tree = {"items": named("a"), "inner": {"a": 1}, "marks": ["a"]}
    with pytest.raises(PatchError):
        patch(tree, change)


def test_malformed_patches_are_refused() -> None:
    changes: list[Any] = [None, [], "x"]
    for change in changes:
        with pytest.raises(PatchError) as caught:
            apply_strategic_patch({}, change, THING)
        assert caught.value.malformed
    with pytest.raises(PatchError, match="not supported"):
        apply_strategic_patch({}, {}, None)


def test_the_patches_kubectl_makes() -> None:
    pod = {"spec": {"containers": [{"name": "web", "image": "a", "env": [{"name": "A", "value": "1"}]}]}}
    change = {
        "spec": {
            "$setElementOrder/containers": [{"name": "web"}],
            "containers": [
                {
                    "name": "web",
                    "image": "b",
                    "$setElementOrder/env": [{"name": "B"}],
                    "env": [{"name": "B", "value": "2"}, {"name": "A", "$patch": "delete"}],
                }
            ],
        }
    }
    assert patch(pod, change, POD) == {
        "spec": {"containers": [{"name": "web", "image": "b", "env": [{"name": "B", "value": "2"}]}]}
    }
    deployment = {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}}
    change = {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate", "rollingUpdate": None}}}
    assert patch(deployment, change, DEPLOYMENT) == {"spec": {"strategy": {"type": "Recreate"}}}
    volumes = {"spec": {"volumes": [{"name": "data", "emptyDir": {}}]}}
    change = {
        "spec": {
            "volumes": [{"name": "data", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/d"}}]
        }
    }
    assert patch(volumes, change, POD)["spec"]["volumes"] == [{"name": "data", "hostPath": {"path": "/d"}}]


def naive_order(items: list[str], first: list[str], live: list[str]) -> list[str]:
    """Insert the other items one by one, each before the first named item that follows it in live."""
    woven = sorted((i for i in items if i in first), key=first.index)
    start = 0
    for other in sorted(
        (i for i in items if i not in first), key=lambda i: live.index(i) if i in live else len(live)
    ):
        place = len(woven)
        for number in range(start, len(woven)):
            if woven[number] in live and other in live and live.index(other) < live.index(woven[number]):
                place = number
                break
        woven.insert(place, other)
        start = place + 1
    return woven


LETTERS = st.lists(st.sampled_from("abcdef"), unique=True, max_size=6)


@given(LETTERS, LETTERS, st.lists(st.sampled_from("abcdef"), unique=True, max_size=6))
def test_order_agrees_with_insertion(items: list[str], first: list[str], live: list[str]) -> None:
    assert interleave(items, first, live, "") == naive_order(items, first, live)
    ordered = interleave([{"k": i} for i in items], [{"k": i} for i in first], [{"k": i} for i in live], "k")
    assert [item["k"] for item in ordered] == naive_order(items, first, live)


@given(things(), things())
def test_patching_twice_is_patching_once(tree: Any, change: Any) -> None:
    once = patch(tree, change)
    assert patch(once, change) == once
    for name, value in tree.items():
        if name not in change:
            assert once[name] == value


@given(things(), st.lists(NAMES, unique=True))
def test_deleted_items_are_gone_and_the_others_untouched(tree: Any, gone: list[str]) -> None:
    live = tree.get("items", [])
    if live:
        change = {"items": [{"name": name, "$patch": "delete"} for name in gone]}
        assert patch(tree, change)["items"] == [item for item in live if item["name"] not in gone]


@given(
    st.recursive(
        st.sampled_from([None, 1, "a", True]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["a", "", "$x", "$patch", "$retainKeys", "$setElementOrder/a"]),
                inner,
                max_size=3,
            )
        ),
        max_leaves=12,
    )
)
def test_removal_of_nulls_and_directives_in_one_pass(value: Any) -> None:
    assert clean_new_value(value) == drop_null_and_directive_keys(drop_directive_maps(value))
