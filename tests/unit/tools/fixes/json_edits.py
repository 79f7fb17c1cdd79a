"""Fixes applied to the JSON of objects as an administrator would, by nothing but what a fix prints."""

from __future__ import annotations

import copy
from typing import Any

Tree = dict[str, Any]


def apply_json(trees: list[Tree], fix: Tree) -> list[Tree]:
    """Return the objects after all edits of a fix, as `Fix.as_json` prints it."""
    trees = copy.deepcopy(trees)
    for step in fix["steps"]:
        for edit in step["edits"]:
            _apply(trees, edit)
    return trees


def find(trees: list[Tree], kind: str, name: str, namespace: str = "") -> Tree:
    (found,) = [
        tree
        for tree in trees
        if tree.get("kind") == kind
        and tree["metadata"]["name"] == name
        and tree["metadata"].get("namespace", "") == namespace
    ]
    return found


def _apply(trees: list[Tree], edit: Tree) -> None:
    what = edit["kind"], edit["name"], edit.get("namespace", "")
    if edit["edit"] == "create":
        trees += [edit["value"]] if "value" in edit else _copies(trees, edit)
        return
    thing: Any = find(trees, *what)
    if edit["edit"] == "delete":
        remove(trees, thing)
        return
    *path, last = edit["path"]
    for place in path:
        thing = thing[place] if isinstance(thing, list) else thing.setdefault(place, {})
    value = edit["value"]
    if edit["edit"] == "set" and value is None:
        del thing[last]
    elif edit["edit"] == "set":
        thing[last] = value
    elif edit["edit"] == "add":
        thing.setdefault(last, []).append(value)
    else:
        assert value in thing[last], f"{value} is not in {thing[last]}"
        thing[last] = [each for each in thing[last] if each != value]


def remove(trees: list[Tree], thing: Tree) -> None:
    """Delete an object; claims that only a deleted pod used are deallocated, as by their controller."""
    trees.remove(thing)
    for claim in [each for each in trees if each.get("kind") == "ResourceClaim" and each.get("status")]:
        users = claim["status"].get("reservedFor", [])
        kept = [each for each in users if each["uid"] != thing["metadata"]["uid"]]
        if users and not kept:
            claim["status"] = {}
        elif users:
            claim["status"]["reservedFor"] = kept


def _copies(trees: list[Tree], edit: Tree) -> list[Tree]:
    """Return another node like an existing one, with devices of its own; or another object like one."""
    old, new = edit["like"], edit["name"]
    made = copy.deepcopy(find(trees, edit["kind"], old, edit.get("namespace", "")))
    made["metadata"] |= {"name": new, "uid": f"uid-{new}"}
    made["metadata"].pop("ownerReferences", None)
    if edit["kind"] != "Node":
        made.pop("status", None)
        return [made]
    made["metadata"].setdefault("labels", {})["kubernetes.io/hostname"] = new
    made["spec"].pop("unschedulable", None)
    slices = [each for each in trees if each.get("kind") == "ResourceSlice"]
    slices = copy.deepcopy([each for each in slices if each["spec"].get("nodeName") == old])
    for each in slices:
        each["metadata"] |= {
            "name": f"{each['metadata']['name']}-{new}",
            "uid": f"{each['metadata']['uid']}-{new}",
        }
        each["spec"]["nodeName"] = new
        each["spec"]["pool"]["name"] += f"-{new}"
    return [made, *slices]
