"""Random patches of all types for an existing object, valid and invalid."""

from __future__ import annotations

from typing import Any

from plimsoll.apiserver.registry.schema_types import SchemaType
from tests.fuzz.trees import TreeGenerator, child

OPERATIONS = ("add", "remove", "replace", "move", "copy", "test", "bad", "", None, 5)
DIRECTIVES = ("$patch", "$retainKeys", "$setElementOrder/containers", "$deleteFromPrimitiveList/finalizers")


def grow_patch(grower: TreeGenerator, kind: str, tree: Any, type: SchemaType | None) -> Any:
    """Return a random patch; its type is json, merge, strategic or apply."""
    if grower.dice.random() < 0.03:
        return grower.anything()
    if kind == "json":
        return [_operation(grower, tree, type) for _ in range(grower.dice.choice((0, 1, 1, 2, 3)))]
    if kind == "apply":
        patch = _part(grower, tree, type)
        patch.setdefault("apiVersion", tree.get("apiVersion"))
        patch.setdefault("kind", tree.get("kind"))
        metadata = patch.get("metadata")
        if isinstance(metadata, dict) and grower.dice.random() < 0.9:
            for name in ("managedFields", "resourceVersion", "uid", "creationTimestamp", "generation"):
                metadata.pop(name, None)
        return patch
    patch = _part(grower, tree, type)
    if kind == "strategic" and grower.dice.random() < 0.4:
        _direct(grower, patch)
    return patch


def _operation(grower: TreeGenerator, tree: Any, type: SchemaType | None) -> Any:
    dice = grower.dice
    path = grower.path(tree)
    operation: dict[str, Any] = {"op": dice.choice(OPERATIONS), "path": _pointer(grower, path)}
    shape = type
    for step in path:
        shape = child(shape, step)
    if dice.random() < 0.7:
        operation["value"] = grower.value(shape)
    if operation["op"] in ("move", "copy") or dice.random() < 0.05:
        operation["from"] = _pointer(grower, grower.path(tree))
    if dice.random() < 0.03:
        operation.pop(dice.choice(list(operation)))
    return operation


def _pointer(grower: TreeGenerator, path: list[Any]) -> Any:
    dice = grower.dice
    if dice.random() < 0.1:
        path = [*path, dice.choice(("-", "0", "01", "-1", "99999999999999999999", "", "~", "~2", "x"))]
    text = "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)
    return text if dice.random() < 0.98 else dice.choice((None, 5, "x", "//", text + "/"))


def _part(grower: TreeGenerator, tree: Any, type: SchemaType | None) -> dict[str, Any]:
    """Return a changed part of the object, as people send in merge patches."""
    dice = grower.dice
    if not isinstance(tree, dict):
        return {}
    patch: dict[str, Any] = {}
    for name in dice.sample(sorted(tree), min(len(tree), dice.choice((1, 1, 2, 3)))):
        value, shape = tree[name], child(type, name)
        if isinstance(value, dict) and dice.random() < 0.8:
            patch[name] = _part(grower, value, shape)
        elif dice.random() < 0.3:
            patch[name] = None
        elif dice.random() < 0.5:
            patch[name] = (
                grower.change(value, shape) if isinstance(value, list | dict) else grower.value(shape)
            )
        else:
            patch[name] = value
    if dice.random() < 0.2 and type is not None and type.fields:
        name = dice.choice(list(type.fields))
        patch[name] = grower.value(type.fields[name].type)
    return patch


def _direct(grower: TreeGenerator, patch: Any) -> None:
    """Add directives of strategic merge patches."""
    dice = grower.dice
    place = patch
    for step in grower.path(patch):
        if isinstance(place[step], dict | list):
            place = place[step]
    directive = dice.choice(DIRECTIVES)
    value: Any = dice.choice(("delete", "replace", "merge", "bad", ["name"], [{"name": "main"}], None, {}))
    if isinstance(place, dict):
        lists = [name for name, value in place.items() if isinstance(value, list)]
        if lists and dice.random() < 0.5:
            directive = f"{directive.partition('/')[0]}/{dice.choice(lists)}"
        place[directive] = value
    elif isinstance(place, list):
        place.append({directive: value, "name": dice.choice(("main", "x"))})
