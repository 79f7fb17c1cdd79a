"""Field ownership after creates, updates and patches."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.apiserver.patch import keep_times_if_unchanged
from plimsoll.apiserver.patch.managed_fields import (
    UPDATE,
    check_entry,
    identify,
    is_well_formed,
    write_owners,
)
from plimsoll.apiserver.patch.reset_fields import reset_filter
from plimsoll.apiserver.patch.tracking import (
    ANCIENT,
    MAX_UPDATE_MANAGERS,
    TrackingRequest,
    find_new_fields,
    update_owners,
)
from plimsoll.errors import PatchError
from tests.unit.apiserver.patch.sample_schemas import CLAIM, DEPLOYMENT, POD, THING, things
from tests.unit.apiserver.patch.tracked import LATER, NOW, owned, thing, track

Path = tuple[str, ...]


def test_create() -> None:
    tree = track(None, thing(count=1, inner={"a": 1}))
    assert tree["metadata"]["managedFields"] == [
        {
            "manager": "m",
            "operation": "Update",
            "apiVersion": "test/v1",
            "time": NOW,
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:count": {}, "f:inner": {".": {}, "f:a": {}}},
        }
    ]
    assert owned(track(None, thing(count=1), manager="")) == {"unknown": {"count"}}


def test_untracked_metadata() -> None:
    metadata = {
        "name": "x",
        "namespace": "n",
        "uid": "u",
        "resourceVersion": "7",
        "generation": 1,
        "creationTimestamp": NOW,
        "selfLink": "/x",
        "labels": {"a": "1"},
    }
    tree = track(None, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}, schema=POD)
    assert owned(tree) == {"m": {"metadata/labels", "metadata/labels/a"}}
    tree = track(None, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}, schema=POD)
    assert "managedFields" not in tree["metadata"]


def test_changes_move_and_removals_drop() -> None:
    tree = track(None, thing(count=1, text="a", inner={"a": 1}), manager="one")
    tree = track(tree, {**tree, "count": 2, "on": True}, manager="two", now=LATER)
    assert owned(tree) == {"one": {"text", "inner", "inner/a"}, "two": {"count", "on"}}
    assert [entry["time"] for entry in tree["metadata"]["managedFields"]] == [NOW, LATER]
    tree = track(tree, thing(count=2, on=True), manager="three", now=LATER)
    assert owned(tree) == {"two": {"count", "on"}}  # who only removes comes to own nothing


def test_an_unchanged_update_keeps_managed_fields() -> None:
    tree = track(None, thing(count=1, items=[{"name": "a"}]))
    same = track(tree, copy.deepcopy(tree), manager="other", now=LATER)
    assert same == tree
    assert same["metadata"]["managedFields"] is tree["metadata"]["managedFields"]
    again = track(tree, {**tree, "count": 2}, now=LATER)
    before, after = tree["metadata"]["managedFields"][0], again["metadata"]["managedFields"][0]
    assert after == {**before, "time": LATER}
    assert after["fieldsV1"] is before["fieldsV1"]


def test_entries_by_version_and_subresource() -> None:
    tree = track(None, thing(count=1))
    tree = track(tree, {**tree, "text": "a"}, api_version="test/v2", now=LATER)
    tree = track(tree, {**tree, "on": True}, subresource="status", ignored=lambda fields: fields, now=LATER)
    entries = [
        (entry["apiVersion"], entry.get("subresource"), list(entry["fieldsV1"]))
        for entry in tree["metadata"]["managedFields"]
    ]
    assert entries == [
        ("test/v1", None, ["f:count"]),
        ("test/v1", "status", ["f:on"]),
        ("test/v2", None, ["f:text"]),
    ]


def test_fields_that_a_request_cannot_change_are_not_owned() -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {"nodeName": "n"}}
    pod["status"] = {"phase": "Pending"}
    tree = track(None, pod, schema=POD)
    assert owned(tree) == {"m": {"spec/nodeName"}}
    update = copy.deepcopy(tree)
    update["metadata"]["ownerReferences"] = [{"uid": "u"}]
    update["metadata"]["labels"] = {"a": "1"}
    update["spec"]["nodeName"] = "other"
    update["status"]["phase"] = "Running"
    tree = track(tree, update, schema=POD, manager="kubelet", subresource="status")
    assert owned(tree) == {
        "m": {"spec/nodeName"},
        "kubelet": {"status/phase", "metadata/labels", "metadata/labels/a"},
    }
    claim = {
        "metadata": {"name": "x", "labels": {"a": "1"}},
        "spec": {"devices": {}},
        "status": {"reservedFor": []},
    }
    assert owned(track(None, claim, schema=CLAIM, subresource="status")) == {"m": {"status/reservedFor"}}


def test_resize_owns_resources_only() -> None:
    pod: Any = {"metadata": {"name": "x"}, "spec": {"containers": [{"name": "c", "image": "a"}]}}
    tree = track(None, pod, schema=POD, manager="one")
    update = copy.deepcopy(tree)
    update["spec"]["containers"][0] |= {"image": "b", "resources": {"limits": {"cpu": "1"}}}
    tree = track(tree, update, schema=POD, manager="two", subresource="resize")
    limits = 'spec/containers/{"name":"c"}/resources/limits'
    assert owned(tree)["two"] == {limits, f"{limits}/cpu"}
    assert 'spec/containers/{"name":"c"}/image' in owned(tree)["one"]


def test_the_request_may_bring_its_own_entries() -> None:
    tree = track(None, thing(count=1, text="a"), manager="one")
    mine = copy.deepcopy(tree)
    mine["metadata"]["managedFields"][0]["manager"] = "renamed"
    mine["metadata"]["managedFields"][0]["fieldsV1"] = {"f:text": {}, 'k:{"z": 1, "a": 2}': {}}
    changed = track(tree, mine, manager="two")
    assert owned(changed) == {"renamed": {"text", '{"a":2,"z":1}'}}
    assert owned(track(tree, mine, manager="two", subresource="status")) == {"one": {"count", "text"}}
    mine["metadata"]["managedFields"][0]["operation"] = "Delete"
    assert owned(track(tree, mine, manager="two")) == {"one": {"count", "text"}}


@pytest.mark.parametrize("entries", [[], [{}]])
def test_owners_are_forgotten_on_request(entries: Any) -> None:
    tree = track(None, thing(count=1))
    reset = track(tree, {**tree, "metadata": {"name": "x", "managedFields": entries}, "count": 2})
    assert "managedFields" not in reset["metadata"]
    later = track(reset, {**reset, "count": 3}, manager="two")
    assert "managedFields" not in later["metadata"]  # until the first apply


@pytest.mark.parametrize(
    "entries", [None, "absent", {}, "x", [1], [{"manager": "x"}], [{"operation": "Update"}]]
)
def test_clients_that_know_no_entries_keep_them(entries: Any) -> None:
    tree = track(None, thing(count=1), manager="one")
    metadata = {"name": "x"} if entries == "absent" else {"name": "x", "managedFields": entries}
    assert owned(track(tree, {**tree, "metadata": metadata}, manager="two")) == {"one": {"count"}}


def test_at_most_ten_updaters() -> None:
    tree = track(None, thing(order=[0]), manager="m00")
    for number in range(1, MAX_UPDATE_MANAGERS + 5):
        change = {"labels": {f"l{n:02}": "1" for n in range(1, number + 1)}}
        new = {**tree, "metadata": {**tree["metadata"], **change}}
        tree = track(tree, new, manager=f"m{number:02}", now=f"2026-01-01T00:00:{number:02}Z")
        assert len(tree["metadata"]["managedFields"]) == min(number + 1, MAX_UPDATE_MANAGERS)
    gathered = tree["metadata"]["managedFields"][0]
    assert (gathered["manager"], gathered["time"]) == (ANCIENT, "2026-01-01T00:00:05Z")
    labels = {f"metadata/labels/l{n:02}" for n in range(1, 6)}
    assert owned(tree)[ANCIENT] == {"order", "metadata/labels", *labels}


def test_merged_managers_keep_their_fields() -> None:
    entries = [
        {
            "manager": ANCIENT if number == 3 else f"m{number:02}",
            "operation": "Update",
            "apiVersion": "test/v1",
            "time": f"2026-01-01T00:00:{number:02}Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:inner": {f"f:l{number:02}": {}}},
        }
        for number in range(1, MAX_UPDATE_MANAGERS + 3)
    ]
    tree = thing(text="a")
    tree["metadata"]["managedFields"] = entries
    tree = track(tree, {**tree, "text": "b"}, manager="last", now=LATER)
    assert owned(tree)[ANCIENT] == {f"inner/l{number:02}" for number in range(1, 5)}
    assert len(tree["metadata"]["managedFields"]) == MAX_UPDATE_MANAGERS


def test_ambiguous_list_keys_end_tracking() -> None:
    tree = track(None, thing(items=[{"name": "a"}]))
    assert "managedFields" not in track(tree, {**tree, "items": [None]})["metadata"]


def test_other_versions_see_the_change_in_their_own_way() -> None:
    def convert(tree: dict[str, Any], version: str) -> Any:
        if version == "test/v0":
            return None
        if version == tree["apiVersion"]:
            return tree, THING
        names = {"text": "note"} if version == "test/v2" else {"note": "text"}
        return {names.get(name, name): value for name, value in tree.items()} | {"apiVersion": version}, None

    tree = thing(text="a", count=1)
    entry = {"operation": "Update", "time": NOW, "fieldsType": "FieldsV1"}
    tree["metadata"]["managedFields"] = [
        {**entry, "manager": "two", "apiVersion": "test/v2", "fieldsV1": {"f:note": {}, "f:count": {}}},
        {**entry, "manager": "gone", "apiVersion": "test/v0", "fieldsV1": {"f:count": {}}},
    ]
    tree = track(tree, {**tree, "text": "b"}, manager="one", convert=convert)
    assert owned(tree) == {"one": {"text"}, "two": {"count"}}


def test_times_are_kept_if_nothing_else_changed() -> None:
    old = track(None, thing(count=1))
    new = copy.deepcopy(old)
    new["metadata"]["managedFields"][0]["time"] = LATER
    assert keep_times_if_unchanged(old, new) == old
    new["count"] = 2
    assert keep_times_if_unchanged(old, new) is new
    assert keep_times_if_unchanged(old, old) is old
    assert keep_times_if_unchanged({"metadata": {}}, new) is new


def test_templates_of_deployments() -> None:
    tree = track(
        None,
        {
            "metadata": {"name": "x"},
            "spec": {
                "selector": {"matchLabels": {"a": "1"}},
                "strategy": {"rollingUpdate": {"maxSurge": 1}},
                "template": {"metadata": {"labels": {"a": "1"}}, "spec": {"containers": [{"name": "c"}]}},
            },
        },
        schema=DEPLOYMENT,
    )
    template = "spec/template"
    assert owned(tree)["m"] == {
        "spec/selector",
        "spec/strategy/rollingUpdate",
        "spec/strategy/rollingUpdate/maxSurge",
        f"{template}/metadata/labels",
        f"{template}/metadata/labels/a",
        f'{template}/spec/containers/{{"name":"c"}}',
        f'{template}/spec/containers/{{"name":"c"}}/name',
    }


@given(st.lists(st.tuples(st.sampled_from(["one", "two", "three"]), things()), min_size=1, max_size=5))
def test_owned_fields_exist_and_have_one_updater(steps: Any) -> None:
    tree: Any = None
    for manager, state in steps:
        if tree is not None:
            state = {
                **state,
                "metadata": {**state["metadata"], "managedFields": tree["metadata"].get("managedFields")},
            }
            if tree["metadata"].get("managedFields") is None:
                break  # an object that started empty is not tracked
        tree = track(tree, state, manager=manager)
        everything = owned(track(None, {**state, "metadata": {**state["metadata"], "managedFields": None}}))
        sets = list(owned(tree).values())
        assert all(fields <= everything["m"] for fields in sets)
        assert sum(map(len, sets)) == len(set().union(*sets))


WORDS: st.SearchStrategy[Any] = st.sampled_from(["Apply", "Update", "FieldsV1", "v1", "", "x", None, 1, {}])
ENTRY_FIELDS = ("manager", "operation", "apiVersion", "time", "fieldsType", "subresource", "odd")


@given(st.dictionaries(st.sampled_from(ENTRY_FIELDS), WORDS))
def test_entries_accepted_by_the_fast_path_are_valid(changes: dict[str, Any]) -> None:
    usual = {"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1"}
    assert is_well_formed(usual)
    for entry in (changes, {**usual, **changes}):
        try:
            check_entry(entry, 0)
        except PatchError:
            assert not is_well_formed(entry)


TEXTS = st.sampled_from(["", "a", "b"])
MAPS = st.dictionaries(TEXTS, TEXTS | st.none(), max_size=2)
METADATA = st.fixed_dictionaries(
    {},
    optional={
        "name": TEXTS,
        "uid": TEXTS,
        "generateName": TEXTS,
        "labels": MAPS,
        "annotations": MAPS | st.none(),
        "finalizers": st.lists(TEXTS, unique=True, max_size=2),
        "ownerReferences": st.lists(st.fixed_dictionaries({"uid": TEXTS, "name": TEXTS}), max_size=1),
    },
)


@given(st.lists(st.tuples(things(), METADATA), min_size=2, max_size=6))
def test_the_fields_of_new_objects_of_equal_shape_are_those_of_each(
    objects: list[tuple[dict[str, Any], dict[str, Any]]],
) -> None:
    for fields, metadata in objects:
        for schema in (THING, None):
            new = {**fields, "metadata": metadata}
            request = TrackingRequest(schema, "test/v1", "", NOW, reset_filter(schema, ""))
            identity = identify("m", UPDATE, request)
            entries = write_owners(update_owners({}, new, {}, identity, request))
            expected = entries[0]["fieldsV1"] if entries else {}
            found = find_new_fields(new, request)
            assert found == expected
            assert list(found) == list(expected)


def test_objects_of_one_template_share_their_fields() -> None:
    def fields(name: str, value: str) -> Any:
        pod = {"metadata": {"name": name, "labels": {"a": value}}, "spec": {"nodeName": "n"}}
        return track(None, pod, schema=POD)["metadata"]["managedFields"][0]["fieldsV1"]

    assert fields("one", "1") is fields("two", "2")
