"""Server-side apply."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.apiserver.patch import (
    ApplyResult,
    conflict_causes,
    conflict_message,
    server_side_apply,
    track_update,
)
from plimsoll.apiserver.patch.field_set import iter_paths
from plimsoll.apiserver.patch.path_elements import sort_key
from plimsoll.errors import PatchError
from tests.unit.apiserver.patch.sample_schemas import DEPLOYMENT, POD, THING, things
from tests.unit.apiserver.patch.tracked import LATER, NOW, owned, thing, track


def attempt(live: Any, applied: Any, manager: str = "m", **how: Any) -> ApplyResult:
    how = {"schema": THING, "api_version": "test/v1", "subresource": "", "force": False, "now": NOW, **how}
    before = json.dumps([live, applied])
    result = server_side_apply(live, applied, manager=manager, **how)
    assert json.dumps([live, applied]) == before
    return result


def apply(live: Any, applied: Any, manager: str = "m", **how: Any) -> dict[str, Any]:
    result = attempt(live, applied, manager, **how)
    assert not result.conflicts, conflict_message(result.conflicts)
    return result.tree


def fields(tree: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in tree.items() if name not in ("apiVersion", "kind", "metadata")}


def test_create_by_apply() -> None:
    tree = apply(None, thing(count=1, inner={"a": 1}, items=[{"name": "a", "tags": {"x": "1"}}]))
    assert fields(tree) == {"count": 1, "inner": {"a": 1}, "items": [{"name": "a", "tags": {"x": "1"}}]}
    assert tree["metadata"]["managedFields"] == [
        {
            "manager": "m",
            "operation": "Apply",
            "apiVersion": "test/v1",
            "time": NOW,
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:count": {},
                "f:inner": {"f:a": {}},
                "f:items": {'k:{"name":"a"}': {".": {}, "f:name": {}, "f:tags": {"f:x": {}}}},
            },
        }
    ]


def test_fields_no_longer_applied_are_removed() -> None:
    tree = apply(
        None, thing(count=1, text="a", items=[{"name": "a", "size": 1}, {"name": "b"}], marks=["x", "y"])
    )
    tree = track(tree, {**tree, "on": True}, manager="other")
    tree = apply(tree, thing(count=1, items=[{"name": "a"}], marks=["y"]), now=LATER)
    assert fields(tree) == {"count": 1, "on": True, "items": [{"name": "a"}], "marks": ["y"]}
    assert owned(tree)["other"] == {"on"}


def test_fields_of_other_managers_are_kept() -> None:
    tree = apply(None, thing(count=1, inner={"a": 1}))
    tree = apply(tree, thing(count=1), manager="two")
    tree = apply(tree, thing(inner={"b": "x"}), now=LATER)
    assert fields(tree) == {"count": 1, "inner": {"b": "x"}}
    assert owned(tree) == {"m": {"inner/b"}, "two": {"count"}}


def test_an_item_is_removed_with_its_last_owner() -> None:
    tree = apply(None, thing(items=[{"name": "a", "size": 1}]))
    update = copy.deepcopy(tree)
    update["items"][0]["tags"] = {"x": "1"}
    tree = track(tree, update, manager="other")  # owns something in the item, but not the item
    assert fields(apply(tree, thing(text="z"))) == {"text": "z"}
    tree = apply(tree, thing(items=[{"name": "a"}]), manager="two")
    assert fields(apply(tree, thing(text="z"))) == {"text": "z", "items": [{"name": "a", "tags": {"x": "1"}}]}


def test_applying_twice_changes_nothing() -> None:
    tree = apply(None, thing(count=1, items=[{"name": "a"}]))
    again = apply(tree, thing(count=1, items=[{"name": "a"}]), now=LATER)
    assert again == tree
    assert again["metadata"]["managedFields"] is tree["metadata"]["managedFields"]


def test_conflicts() -> None:
    live = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}, "spec": {"replicas": 1}}
    how: Any = {"schema": DEPLOYMENT, "api_version": "apps/v1"}
    live = track(None, live, manager="kubectl-client-side-apply", **how)
    applied = {**live, "metadata": {"name": "x"}, "spec": {"replicas": 2}}
    result = attempt(live, applied, **how)
    assert result.tree == live
    assert conflict_message(result.conflicts) == (
        "Apply failed with 1 conflict: "
        'conflict with "kubectl-client-side-apply" using apps/v1: .spec.replicas'
    )
    assert conflict_causes(result.conflicts) == [
        {
            "reason": "FieldManagerConflict",
            "message": 'conflict with "kubectl-client-side-apply" using apps/v1',
            "field": ".spec.replicas",
        }
    ]
    forced = apply(live, applied, force=True, **how)
    assert forced["spec"] == {"replicas": 2}
    assert owned(forced) == {"m": {"spec/replicas"}}


def test_several_conflicts_are_listed_by_owner() -> None:
    tree = apply(None, thing(count=1, items=[{"name": "a", "size": 1}]), manager="two")
    tree = track(
        tree, {**tree, "text": "x"}, manager="one", subresource="status", ignored=lambda found: found
    )
    result = attempt(tree, thing(count=2, text="y", items=[{"name": "a", "size": 2}]))
    assert conflict_message(result.conflicts) == (
        "Apply failed with 3 conflicts: "
        'conflicts with "one" with subresource "status" using test/v1:\n- .text\n'
        'conflicts with "two":\n- .count\n- .items[name="a"].size'
    )


def test_the_same_value_is_shared_and_removal_is_no_conflict() -> None:
    tree = apply(None, thing(count=1, text="a"))
    tree = apply(tree, thing(count=1), manager="two")
    assert owned(tree) == {"m": {"count", "text"}, "two": {"count"}}
    assert fields(apply(tree, thing(text="a"))) == {"count": 1, "text": "a"}
    assert fields(apply(apply(tree, thing(text="a")), thing(), manager="two")) == {"text": "a"}


def test_atomic_values_have_one_owner() -> None:
    tree = apply(None, thing(order=[1, 2], whole={"a": "1"}))
    result = attempt(tree, thing(order=[1], whole={"b": "1"}), manager="two")
    assert [conflict.field for conflict in result.conflicts] == [".order", ".whole"]
    tree = apply(tree, thing(order=[1], whole={"b": "1"}), manager="two", force=True)
    assert fields(tree) == {"order": [1], "whole": {"b": "1"}}
    assert owned(tree) == {"two": {"order", "whole"}}


def test_without_a_schema_maps_are_granular_and_lists_atomic() -> None:
    tree = apply(None, thing(a={"b": {"c": 1}}, l=[{"name": "x"}]), schema=None)
    tree = apply(tree, thing(a={"b": {"d": 2}}), manager="two", schema=None)
    assert fields(tree) == {"a": {"b": {"c": 1, "d": 2}}, "l": [{"name": "x"}]}
    assert attempt(tree, thing(l=[{"name": "y"}]), manager="two", schema=None).conflicts[0].field == ".l"


def test_null_is_applied() -> None:
    tree = track(None, thing(count=1, inner={"a": 1}), manager="other")
    assert attempt(tree, thing(count=None)).conflicts[0].field == ".count"
    tree = apply(tree, thing(count=None), force=True)
    assert fields(tree) == {"inner": {"a": 1}}
    assert owned(tree) == {"m": {"count"}, "other": {"inner", "inner/a"}}
    assert apply(None, thing(metadata={"name": "x", "labels": {"a": None}}))["metadata"]["labels"] == {
        "a": ""
    }


def test_untracked_objects_are_owned_by_before_first_apply() -> None:
    tree = apply(thing(count=1, text="a"), thing(count=1))
    assert owned(tree) == {"m": {"count"}, "before-first-apply": {"count", "text"}}
    assert conflict_message(attempt(thing(count=1), thing(count=2)).conflicts).endswith(
        'conflict with "before-first-apply" using test/v1: .count'
    )


def test_subresources_have_owners_of_their_own() -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}
    how: Any = {"schema": POD, "api_version": "v1"}
    tree = apply(None, {**pod, "spec": {"containers": [{"name": "c"}]}, "status": {"phase": "Failed"}}, **how)
    assert owned(tree)["m"] == {'spec/containers/{"name":"c"}', 'spec/containers/{"name":"c"}/name'}
    tree = apply(tree, {**pod, "spec": {}, "status": {"message": "a"}}, subresource="status", **how)
    entries = [(entry.get("subresource"), entry["fieldsV1"]) for entry in tree["metadata"]["managedFields"]]
    assert ("status", {"f:status": {"f:message": {}}}) in entries
    assert len(entries) == 2


def test_port_keys_have_defaults() -> None:
    def pod(*ports: Any) -> Any:
        spec = {"containers": [{"name": "c", "ports": list(ports)}]}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": spec}

    how: Any = {"schema": POD, "api_version": "v1"}
    live = track(None, pod({"containerPort": 80, "protocol": "TCP"}), manager="other", **how)
    udp = {"containerPort": 80, "protocol": "UDP"}
    tree = apply(live, pod({"containerPort": 80, "name": "http"}, udp), **how)
    assert tree["spec"]["containers"][0]["ports"] == [
        {"containerPort": 80, "protocol": "TCP", "name": "http"},
        udp,
    ]


@pytest.mark.parametrize(
    ("applied", "message"),
    [
        ([], "is an object"),
        ({"kind": "Thing"}, "invalid object type: /, Kind=Thing"),
        ({**thing(), "kind": "Pod"}, "invalid object type: test/v1, Kind=Pod"),
        (thing(metadata={"managedFields": []}), "metadata.managedFields must be nil"),
        (thing(metadata=[]), "metadata is not an object"),
        (
            thing(bogus=1),
            "failed to create typed patch object (/x; test/v1, Kind=Thing): .bogus: field not declared",
        ),
        (
            thing(inner={"c": 1, "a": "x"}),
            "errors:\n  .inner.c: field not declared in schema\n  .inner.a: expected num",
        ),
        (thing(items=[{"name": "a"}, {"name": "a"}]), '.items: duplicate entries for key [name="a"]'),
        (
            thing(items=[{"name": "a", "size": "x"}]),
            '.items[name="a"].size: expected numeric (int or float), got "x"',
        ),
        (thing(items=[None]), ".items: element 0: associative list with keys may not have non-map elements"),
        (thing(items={}), ".items: expected list, got {}"),
        (thing(inner=[]), ".inner: expected map, got []"),
        (thing(order=[1, "x"]), ".order[1]: expected numeric"),
        (thing(on="yes"), '.on: expected boolean, got "yes"'),
        (thing(text=True), ".text: expected string, got true"),
        (
            thing(marks=[{}]),
            ".marks: element 0: associative list without keys has an element that is no scalar",
        ),
    ],
)
def test_mismatching_configurations_are_rejected(applied: Any, message: str) -> None:
    with pytest.raises(PatchError) as caught:
        server_side_apply(
            None,
            applied,
            schema=THING,
            manager="m",
            api_version="test/v1",
            subresource="",
            force=True,
            now=NOW,
        )
    assert message in str(caught.value)
    assert caught.value.malformed


ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"


def client_side(count: int, text: str) -> dict[str, Any]:
    """Return an object as client-side apply leaves it."""
    configuration = thing(count=count, text=text)
    tree = {
        **configuration,
        "metadata": {"name": "x", "annotations": {ANNOTATION: json.dumps(configuration)}},
    }
    return track_update(
        None,
        tree,
        schema=None,
        manager="kubectl-client-side-apply",
        api_version="test/v1",
        subresource="",
        now=NOW,
    )


def test_kubectl_takes_over_from_its_client_side_apply() -> None:
    live = client_side(1, "a")
    tree = apply(live, thing(count=2, text="a"), manager="kubectl", schema=None)
    assert fields(tree) == {"count": 2, "text": "a"}
    assert json.loads(tree["metadata"]["annotations"][ANNOTATION]) == thing(count=2, text="a")
    assert tree["metadata"]["annotations"][ANNOTATION].endswith("}\n")
    assert attempt(live, thing(count=2), manager="other", schema=None).conflicts


def test_kubectl_meets_conflicts_where_others_changed_what_it_applied() -> None:
    live = client_side(1, "a")
    live = track(live, {**live, "count": 7}, manager="other", schema=None)
    result = attempt(live, thing(count=2, text="b"), manager="kubectl", schema=None)
    assert [(conflict.manager, conflict.field) for conflict in result.conflicts] == [("other", ".count")]
    broken = copy.deepcopy(live)
    broken["metadata"]["annotations"][ANNOTATION] = "{"
    assert len(attempt(broken, thing(count=2, text="b"), manager="kubectl", schema=None).conflicts) == 2


def test_the_annotation_is_dropped_where_it_would_be_too_long() -> None:
    live = client_side(1, "a")
    big = thing(text="x" * 300_000)
    tree = apply(live, big, manager="kubectl", schema=None, force=True)
    assert ANNOTATION not in tree["metadata"]["annotations"]


def test_appliers_of_another_version() -> None:
    def convert(tree: dict[str, Any], version: str) -> Any:
        names = {"text": "note"} if version == "test/v2" else {"note": "text"}
        return {names.get(name, name): value for name, value in tree.items()} | {"apiVersion": version}, None

    how: Any = {"schema": None, "convert": convert}
    tree = apply(None, thing(text="a", count=1), **how)
    tree = {**tree, "apiVersion": "test/v2", "note": tree.pop("text")}
    newer = {"apiVersion": "test/v2", "kind": "Thing", "metadata": {"name": "x"}, "note": "a"}
    tree = apply(tree, newer, api_version="test/v2", **how)
    assert fields(tree) == {"note": "a"}
    assert [entry["apiVersion"] for entry in tree["metadata"]["managedFields"]] == ["test/v2"]


def solid(tree: Any) -> Any:
    """Return a tree without empty maps and lists."""
    if isinstance(tree, dict):
        return {name: solid(value) for name, value in tree.items() if value not in ({}, [])}
    return [solid(item) for item in tree] if isinstance(tree, list) else tree


MANAGERS = st.sampled_from(["one", "two"])


def paths_of(tree: dict[str, Any], manager: str) -> set[tuple[str, ...]]:
    for entry in tree["metadata"].get("managedFields", []):
        if entry["manager"] == manager:
            return set(iter_paths(entry["fieldsV1"], sort_key))
    return set()


@given(st.lists(st.tuples(MANAGERS, things()), min_size=1, max_size=4))
def test_random_applies_and_updates(steps: Any) -> None:
    tree: Any = None
    for manager, applied in steps:
        before = tree
        tree = apply(tree, applied, manager, force=True)
        if "managedFields" not in tree["metadata"]:
            return  # no field has a manager: the next apply would be the first
        # Applying the same again changes nothing but what was emptied and is applied empty.
        again = apply(tree, applied, manager, force=True)
        assert solid(fields(again)) == solid(fields(tree))
        assert apply(again, applied, manager, now=LATER) == again
        # What was applied is there.
        for name, value in fields(applied).items():
            if name not in ("items", "marks", "inner") and value not in ({}, []):
                assert tree[name] == value
        for item in applied.get("items", []):
            found = [other for other in tree["items"] if other["name"] == item["name"]]
            assert len(found) == 1
            assert found[0].get("size") == item.get("size") or "size" not in item
        # What only the applier owned and did not apply again is gone, what others own is there.
        if before is not None:
            other = {"one": "two", "two": "one"}[manager]
            for name in ("count", "on", "text", "whole", "order"):
                path = ("f:" + name,)
                if path in paths_of(before, manager) and name not in applied:
                    assert (name in tree) == (path in paths_of(before, other))
                if path in paths_of(before, other) and name not in applied:
                    assert tree[name] == before[name]


@given(things(), things())
def test_unowned_fields_never_change(live: Any, applied: Any) -> None:
    live["metadata"]["managedFields"] = [
        {
            "manager": "m",
            "operation": "Apply",
            "apiVersion": "test/v1",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:count": {}},
        }
    ]
    tree = apply(live, applied)
    for name, value in fields(live).items():
        if name not in applied and name != "count":
            assert tree[name] == value
    assert ("count" in tree) == ("count" in applied)
