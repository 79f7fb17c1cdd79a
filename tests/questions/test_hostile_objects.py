"""Objects that no valid cluster has: every command reports on them or a one-line error.

Each case changes the sound cluster of `clusters.py`. `REFUSED` are those that must be refused, with what the
line must name; all others must be answered, for a real cluster may well hold them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from plimsoll.tools.cluster_state import ClusterState
from tests.dumps import big_cluster, make_cluster_state, write_dump
from tests.questions.asking import COMMANDS, FILE_COMMANDS, ask, steering
from tests.questions.clusters import NAMES, rich_cluster
from tests.sizes import part_of
from tests.unit.tools.dashboard.pages import visiting

Tree = dict[str, Any]
Change = Callable[[list[Tree]], None]
ESCAPES = "\x1b[2J\x1b]0;owned\x07\r\x08\x9b31m\u202e\u2066"
MARKUP = "<script>alert(1)</script>&amp;'\"]]>"


def of(trees: list[Tree], kind: str) -> list[Tree]:
    return [tree for tree in trees if tree["kind"] == kind]


def one(trees: list[Tree], name: str) -> Tree:
    return next(tree for tree in trees if tree["metadata"]["name"] == name)


def _renamed(new: str) -> Change:
    """Return objects with all names replaced; references stay valid."""

    def change(trees: list[Tree]) -> None:
        known = {name: f"{name}{new}" for name in NAMES}
        trees[:] = _with_names(trees, known)

    return change


def _with_names(tree: Any, known: dict[str, str]) -> Any:
    if isinstance(tree, dict):
        return {key: _with_names(value, known) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_with_names(value, known) for value in tree]
    return known.get(tree, tree) if isinstance(tree, str) else tree


def _messages(text: str) -> Change:
    def change(trees: list[Tree]) -> None:
        for tree in trees:
            for condition in tree.get("status", {}).get("conditions", ()):
                condition |= {"message": text, "reason": text}
        for tree in of(trees, "ResourceSlice"):
            for device in tree["spec"].get("devices", ()):
                device.setdefault("attributes", {})["note"] = {"string": text}

    return change


def _every_quantity(text: Any) -> Change:
    def change(trees: list[Tree]) -> None:
        for tree in of(trees, "Node"):
            tree["status"]["allocatable"] = dict.fromkeys(("cpu", "memory", "pods", "example.com/x"), text)

    return change


def _requests(text: Any) -> Change:
    def change(trees: list[Tree]) -> None:
        for tree in of(trees, "Pod"):
            for container in tree["spec"]["containers"]:
                container.setdefault("resources", {})["requests"] = {"cpu": text, "memory": text}

    return change


def _capacities(text: str) -> Change:
    def change(trees: list[Tree]) -> None:
        for tree in of(trees, "ResourceSlice"):
            for device in tree["spec"].get("devices", ()):
                for amount in device.get("capacity", {}).values():
                    amount["value"] = text
            for counters in tree["spec"].get("sharedCounters", ()):
                for amount in counters["counters"].values():
                    amount["value"] = text

    return change


def _charges(text: str) -> Change:
    def change(trees: list[Tree]) -> None:
        for tree in of(trees, "Pod"):
            for entry in tree["status"].get("nodeAllocatableResourceClaimStatuses", ()):
                entry["resources"] = {"cpu": text, "memory": text}

    return change


def _set(name: str, *path: Any) -> Change:
    """Set the value at a path."""
    *way, last, value = path

    def change(trees: list[Tree]) -> None:
        place: Any = one(trees, name)
        for key in way:
            place = place[key]
        place[last] = deepcopy(value)

    return change


def _without(kind: str) -> Change:
    def change(trees: list[Tree]) -> None:
        trees[:] = [tree for tree in trees if tree["kind"] != kind]

    return change


def _twice(trees: list[Tree]) -> None:
    trees += deepcopy(trees)
    for tree in trees[len(trees) // 2 :]:
        tree["metadata"]["labels"] = {"twice": "yes"}


def _same_uid(trees: list[Tree]) -> None:
    for tree in trees:
        tree["metadata"]["uid"] = "one-for-all"


def _unknown_nodes(trees: list[Tree]) -> None:
    for number, tree in enumerate(each for each in of(trees, "Pod") if each["spec"].get("nodeName")):
        tree["spec"]["nodeName"] = f"gone-{number}"


def _unknown_devices(trees: list[Tree]) -> None:
    for tree in of(trees, "ResourceClaim"):
        for result in tree["status"].get("allocation", {}).get("devices", {}).get("results", ()):
            result |= {"driver": "gone.example.com", "pool": "gone", "device": "gone"}


def _same_devices(trees: list[Tree]) -> None:
    for tree in of(trees, "ResourceClaim"):
        for result in tree["status"].get("allocation", {}).get("devices", {}).get("results", ()):
            result |= {"driver": "part.example.com", "pool": "node-0000", "device": "whole"}


def _cycles(trees: list[Tree]) -> None:
    for tree in trees:
        meta = tree["metadata"]
        meta["ownerReferences"] = [
            {
                "apiVersion": tree["apiVersion"],
                "kind": tree["kind"],
                "name": meta["name"],
                "uid": meta["uid"],
                "controller": True,
            }
        ] * 2


def _bare_nodes(trees: list[Tree]) -> None:
    for tree in of(trees, "Node"):
        tree.pop("status")
        tree.pop("spec")


def _nulls(trees: list[Tree]) -> None:
    for tree in trees:
        for field in ("spec", "status"):
            for key in list(tree.get(field) or ()):
                if isinstance(tree[field][key], list):
                    tree[field][key] = None
        tree["metadata"] |= dict.fromkeys(("labels", "annotations", "ownerReferences", "finalizers"))


def _countless(trees: list[Tree]) -> None:
    one(trees, "waiting-0001")  # the claim of this name comes first
    claim = next(tree for tree in of(trees, "ResourceClaim") if not tree["status"])
    claim["spec"]["devices"]["requests"][0] = {
        "name": "r",
        "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2**63 - 1},
    }


ODD: dict[str, Change] = {
    "escapes in names": _renamed(ESCAPES),
    "lines in names": _renamed("\nplimsoll: all is well\n"),
    "markup in names": _renamed(MARKUP),
    "long names": _renamed("é" * 3000),
    "wide names": _renamed("漢字👩‍👩‍👧‍👦"),
    "escapes in messages": _messages(ESCAPES),
    "markup in messages": _messages(MARKUP),
    "negative lines": _every_quantity("-5"),
    "no lines": _every_quantity("0"),
    "vast lines": _every_quantity("999999999Ei"),
    "tiny lines": _every_quantity("1n"),
    "negative requests": _requests("-3"),
    "vast requests": _requests("9e18"),
    "numbers for requests": _requests(2),
    "negative capacities": _capacities("-1"),
    "vast capacities": _capacities("1e40"),
    "negative charges": _charges("-7"),
    "vast charges": _charges("1e30"),
    "everything twice": _twice,
    "one UID for all": _same_uid,
    "pods of nodes that are gone": _unknown_nodes,
    "claims of devices that are gone": _unknown_devices,
    "one device for all": _same_devices,
    "owners of themselves": _cycles,
    "nodes without allocatable": _bare_nodes,
    "null for lists": _nulls,
    "a count past all bounds": _countless,
    "no nodes": _without("Node"),
    "no pods": _without("Pod"),
    "no slices": _without("ResourceSlice"),
    "no classes": _without("DeviceClass"),
    "no claims": _without("ResourceClaim"),
    "no namespaces": _without("Namespace"),
    "a selector that is no CEL": _set("part", "spec", "selectors", [{"cel": {"expression": "device.("}}]),
    "a selector that fails": _set(
        "part", "spec", "selectors", [{"cel": {"expression": "device.attributes['x'].y == 1"}}]
    ),
    "a generation past all bounds": _set("node-0000-part", "spec", "pool", "generation", 2**63 - 1),
    "no generation": _set("node-0000-part", "spec", "pool", {}),
    "slices that are missing": _set("node-0000-part", "spec", "pool", "resourceSliceCount", 10**9),
    "unknown operators": _set("picky", "spec", "tolerations", [{"operator": "Perhaps", "key": "x"}]),
    "spreading over nothing": _set(
        "picky", "spec", "topologySpreadConstraints", [{"maxSkew": -1, "topologyKey": ""}]
    ),
    "pods that reserve themselves": _set(
        "parted", "spec", "resourceClaims", [{"name": "any", "resourceClaimName": "parted"}] * 3
    ),
    "times that are none": _set("parted", "metadata", "deletionTimestamp", "2026-01-01T00:00:00Z"),
    "an unknown phase": _set("parted", "status", "phase", "Perhaps"),
}
REFUSED: dict[str, tuple[Change, str]] = {
    "a text for a number": (_set("picky", "spec", "priority", "high"), "spec.priority"),
    "a number for a text": (_set("picky", "spec", "nodeName", 7), "spec.nodeName"),
    "a list for a map": (_set("picky", "spec", "nodeSelector", []), "spec.nodeSelector"),
    "a map for a list": (_set("picky", "spec", "containers", {}), "spec.containers"),
    "a text for an object": (_set("picky", "spec", "nope"), "spec"),
    "absurd quantities": (_requests("1e1001"), "requests"),
    "no quantities": (_requests("a lot"), "requests"),
    "lists for quantities": (_requests(["1"]), "requests"),
    "a count past 64 bits": (_set("node-0000-part", "spec", "pool", "generation", 2**70), "generation"),
}


@pytest.mark.sized
@pytest.mark.parametrize("name", ODD)
def test_odd_objects_never_crash_a_command(name: str, tmp_path: Path) -> None:
    trees, number = rich_cluster(), list(ODD).index(name)
    ODD[name](trees)
    path = write_dump(trees, tmp_path / "dump.json", "json")
    for words in part_of(COMMANDS.values(), number, 8):
        answer = ask(*words, "-f", path).check()
        assert answer.code in (0, 1), answer
    for words in part_of(FILE_COMMANDS.values(), number):
        ask(*words, "-f", path).check()
    for tree in part_of((tree for tree in trees if tree["kind"] in ("Pod", "ResourceClaim")), number, 8):
        meta = tree["metadata"]
        subject = f"{tree['kind'].lower().removeprefix('resource')}/{meta['namespace']}/{meta['name']}"
        ask("explain", subject, "-f", path).check()


@pytest.mark.sized
@pytest.mark.parametrize("name", REFUSED)
def test_a_non_object_is_reported(name: str, tmp_path: Path) -> None:
    (change, wanted), number = REFUSED[name], list(REFUSED).index(name)
    trees = rich_cluster()
    change(trees)
    for form in ("json", "yaml"):
        path = write_dump(trees, tmp_path / f"dump.{form}", form)
        for words in part_of(COMMANDS.values(), number, 8):
            answer = ask(*words, "-f", path).check()
            assert answer.code == 2, answer
            assert str(path) in answer.err
            assert wanted in answer.err, answer.err


def test_colors_are_the_only_control_sequences(tmp_path: Path) -> None:
    """Colors produce our own codes only, and none from names."""
    trees = rich_cluster()
    _renamed(ESCAPES)(trees)
    _messages(ESCAPES)(trees)
    path = write_dump(trees, tmp_path / "dump.json", "json")
    for words in COMMANDS.values():
        if "-o" not in words or "wide" in words:
            answer = ask(*words, "-f", path, "--color", "always")
            output = answer.out + answer.err
            for code in ("\x1b[0m", "\x1b[1m", "\x1b[2m", *(f"\x1b[3{digit}m" for digit in "1234")):
                output = output.replace(code, "")
            assert not steering(output), words


PATHS = (
    "api/overview",
    "api/nodes",
    "api/devices",
    "api/pools",
    "api/claims",
    "api/pods",
    "api/pods?state=pending",
    "api/namespaces",
    "api/audit",
    "metrics",
)
POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: new}\nspec: {containers: [{name: c, image: x}]}\n"


async def visit(cluster_state: ClusterState, number: int) -> None:
    """Request the pages of a dashboard; errors are allowed, crashes are not."""
    async with visiting(cluster_state, query_timeout=60.0) as visitor:
        for path in part_of(PATHS, number, 3):
            status, text = await visitor.ask(path)
            assert status == 200, (path, status, text)
        for node in cluster_state.nodes[:2]:
            if len(node.metadata.name) < 300:  # longer ones have no address
                status, text = await visitor.ask(f"api/nodes/{quote(node.metadata.name, safe='')}")
                assert status in (200, 404), (status, text)
        for pod in part_of([POD], number):
            status, text = await visitor.ask(
                "api/whatif", "POST", json={"add": pod}, headers={"Content-Type": "application/json"}
            )
            assert status in (200, 400), (status, text)


@pytest.mark.sized
@pytest.mark.parametrize("name", ODD)
def test_odd_objects_never_break_the_dashboard(name: str) -> None:
    trees, number = rich_cluster(), list(ODD).index(name)
    ODD[name](trees)
    asyncio.run(visit(make_cluster_state(trees), number))


def test_the_unchanged_cluster_has_no_errors(tmp_path: Path) -> None:
    path = write_dump(rich_cluster(), tmp_path / "dump.json", "json")
    assert ask("check", "-f", path).out.endswith(" valid, 0 invalid; 1 of kinds that are not validated\n")
    audit = ask("audit", "-f", path)
    assert audit.code == 0, audit.out
    assert {tree["metadata"]["name"] for tree in rich_cluster()} | {"work"} >= NAMES
    assert big_cluster(1)
