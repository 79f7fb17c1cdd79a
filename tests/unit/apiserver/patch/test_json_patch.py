"""JSON patch: RFC 6902 as the Kubernetes API implements it."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.apiserver.patch import apply_json_patch
from plimsoll.apiserver.patch.json_patch import MAX_COPY_BYTES, MAX_OPERATIONS, equal
from plimsoll.errors import PatchError

POD: dict[str, Any] = {
    "metadata": {"labels": {"app": "web", "a/b": "1", "t~": "2"}},
    "spec": {"containers": [{"name": "web", "image": "nginx"}, {"name": "log"}]},
}


def patch(*operations: dict[str, Any], tree: Any = POD) -> Any:
    return apply_json_patch(tree, list(operations))


def test_each_operation() -> None:
    assert patch({"op": "add", "path": "/spec/nodeName", "value": "n1"})["spec"]["nodeName"] == "n1"
    assert "labels" not in patch({"op": "remove", "path": "/metadata/labels"})["metadata"]
    replaced = patch({"op": "replace", "path": "/spec/containers/0/image", "value": "caddy"})
    assert replaced["spec"]["containers"][0]["image"] == "caddy"
    moved = patch({"op": "move", "from": "/metadata/labels/app", "path": "/metadata/labels/role"})
    assert moved["metadata"]["labels"] == {"role": "web", "a/b": "1", "t~": "2"}
    copied = patch({"op": "copy", "from": "/spec/containers/1", "path": "/spec/containers/0"})
    assert [c["name"] for c in copied["spec"]["containers"]] == ["log", "web", "log"]
    assert patch({"op": "test", "path": "/spec/containers/1", "value": {"name": "log"}}) == POD


def test_pointers_are_unescaped() -> None:
    labels = patch(
        {"op": "remove", "path": "/metadata/labels/a~1b"}, {"op": "remove", "path": "/metadata/labels/t~0"}
    )
    assert labels["metadata"]["labels"] == {"app": "web"}


def test_positions_in_lists() -> None:
    def names(path: str) -> list[str]:
        patched = patch({"op": "add", "path": path, "value": {"name": "new"}})
        return [c["name"] for c in patched["spec"]["containers"]]

    assert names("/spec/containers/-") == ["web", "log", "new"]
    assert names("/spec/containers/2") == ["web", "log", "new"]
    assert names("/spec/containers/0") == ["new", "web", "log"]
    assert names("/spec/containers/-1") == ["web", "log", "new"]


def test_lenient_operations() -> None:
    assert patch({"op": "replace", "path": "/new", "value": 1}, tree={}) == {"new": 1}
    assert patch({"op": "test", "path": "/absent", "value": None}, tree={}) == {}
    assert patch({"op": "copy", "from": "/absent", "path": "/b"}, tree={}) == {"b": None}
    assert patch({"op": "replace", "path": "", "value": {"b": 1}}, tree={"a": 1}) == {"b": 1}
    assert apply_json_patch(POD, None) is POD


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        (
            {"op": "test", "path": "/metadata/labels/app", "value": "db"},
            "testing value /metadata/labels/app failed",
        ),
        ({"op": "test", "path": "/spec/containers/1/name", "value": 1}, "test failed"),
        ({"op": "remove", "path": "/spec/absent"}, "Unable to remove nonexistent key: absent"),
        ({"op": "add", "path": "/absent/x", "value": 1}, 'doc is missing path: "/absent/x"'),
        ({"op": "add", "path": "", "value": 1}, 'doc is missing path: ""'),
        ({"op": "add", "path": "/spec/containers/7", "value": 1}, "invalid index referenced"),
        ({"op": "add", "path": "/spec/containers/x", "value": 1}, "not a proper array index"),
        ({"op": "remove", "path": "/spec/containers/2"}, "invalid index referenced"),
        ({"op": "replace", "path": "/spec/containers/2", "value": 1}, "doc is missing key"),
        ({"op": "move", "from": "/spec", "path": "/spec/inner"}, "doc is missing destination path"),
        ({"op": "copy", "from": "/x/y", "path": "/a"}, "doc is missing from path: /x/y"),
        ({"op": "merge", "path": "/a"}, "Unexpected kind: merge"),
        ({"op": "add", "value": 1}, "failed to decode path: missing value"),
        ({"op": "replace", "path": "", "value": 1}, "must be object or array"),
    ],
)
def test_a_patch_that_does_not_fit(operation: dict[str, Any], message: str) -> None:
    with pytest.raises(PatchError, match=message.replace("(", r"\(")) as caught:
        patch(operation)
    assert (caught.value.code, caught.value.malformed) == (422, False)


@pytest.mark.parametrize("operations", [{}, "x", 1, [1], [[]], [{"op": 1}], [{"op": "add", "path": {}}]])
def test_a_malformed_patch(operations: Any) -> None:
    with pytest.raises(PatchError) as caught:
        apply_json_patch({}, operations)
    assert (caught.value.code, caught.value.malformed) == (400, True)


def test_work_is_bounded() -> None:
    with pytest.raises(PatchError, match="got 10001") as caught:
        patch(*[{"op": "test", "path": "/a"}] * (MAX_OPERATIONS + 1))
    assert caught.value.code == 413
    doubling = [{"op": "copy", "from": "/a", "path": "/a/-"}] * 64
    with pytest.raises(PatchError, match=f"exceeding the limit {MAX_COPY_BYTES}"):
        patch(*doubling, tree={"a": ["x" * 1000]})


def test_depth_is_bounded() -> None:
    wrap: list[dict[str, Any]] = [
        {"op": "add", "path": "/b", "value": {}},
        {"op": "move", "from": "/a", "path": "/b/a"},
        {"op": "move", "from": "/b", "path": "/a"},
    ]
    assert patch(*wrap * 100, tree={"a": {}})
    with pytest.raises(PatchError, match="nested too deeply"):
        patch(*wrap * 3000, tree={"a": {}})


def naive(tree: Any, operations: list[dict[str, Any]]) -> Any:
    """Apply each operation to a full copy, for operations that succeed."""
    for operation in operations:
        root = {"": copy.deepcopy(tree)}

        def place(path: str, root: Any = root) -> tuple[Any, Any]:
            here: Any = root
            steps: list[Any] = path.split("/")
            for step in steps[:-1]:
                here = here[int(step)] if isinstance(here, list) else here[step]
            return here, int(steps[-1]) if isinstance(here, list) and steps[-1] != "-" else steps[-1]

        kind, value = operation["op"], copy.deepcopy(operation.get("value"))
        if kind in ("move", "copy"):
            here, key = place(operation["from"])
            value = copy.deepcopy(here[key])
            if kind == "move":
                del here[key]
        here, key = place(operation["path"])
        if kind == "remove":
            del here[key]
        elif kind == "replace" or (isinstance(here, dict) and kind != "test"):
            here[key] = value
        elif kind == "test":
            assert json.dumps(here[key], sort_keys=True) == json.dumps(value, sort_keys=True)
        elif key == "-":
            here.append(value)
        else:
            here.insert(key, value)
        tree = root[""]
    return tree


DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from("xyz"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


def pointers(tree: Any, path: str = "") -> list[str]:
    found = [path]
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in inner:
        found += pointers(value, f"{path}/{key}")
    return found


@given(st.dictionaries(st.sampled_from("abc"), DOCUMENTS, max_size=3), st.data())
def test_agrees_with_full_copies(tree: Any, data: st.DataObject) -> None:
    operations: list[dict[str, Any]] = []
    now = tree
    for _ in range(data.draw(st.integers(0, 5))):
        kind = data.draw(st.sampled_from(["add", "remove", "replace", "move", "copy", "test"]))
        paths = [path for path in pointers(now) if path]
        if kind == "add":
            paths += [path + "/-" for path in pointers(now) if _at(now, path).__class__ is list]
            paths += [path + "/d" for path in pointers(now) if _at(now, path).__class__ is dict]
        if not paths:
            continue
        operation: dict[str, Any] = {"op": kind, "path": data.draw(st.sampled_from(paths))}
        if kind in ("add", "replace"):
            operation["value"] = data.draw(DOCUMENTS)
        if kind == "test":
            operation["value"] = _at(now, operation["path"])
        if kind in ("move", "copy"):
            operation["from"] = data.draw(st.sampled_from([path for path in pointers(now) if path]))
        try:
            now = apply_json_patch(now, [operation])
        except PatchError:
            continue
        operations.append(operation)
    before = json.dumps([tree, operations])
    assert equal(apply_json_patch(tree, operations), naive(tree, operations))
    assert json.dumps([tree, operations]) == before


def _at(tree: Any, path: str) -> Any:
    for step in path.split("/")[1:]:
        tree = tree[int(step)] if isinstance(tree, list) else tree[step]
    return tree
