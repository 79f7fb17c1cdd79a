"""Differences of two states of a cluster."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.tools.diff import DiffReport, StateChanges, compare_clusters
from plimsoll.tools.report import as_text
from plimsoll.tools.top import node_rows
from tests.dumps import big_cluster, make_cluster_state
from tests.questions.clusters import rich_cluster
from tests.unit.tools.top.gpus import claim, device, slices

NOW = 1_790_000_000.0
Tree = dict[str, Any]


def compare(old: list[Tree], new: list[Tree], namespace: str = "") -> StateChanges:
    return compare_clusters(make_cluster_state(old), make_cluster_state(new), now=NOW, namespace=namespace)


def find(trees: list[Tree], kind: str, name: str) -> Tree:
    return next(each for each in trees if each["kind"] == kind and each["metadata"]["name"] == name)


def test_equal_states_do_not_differ() -> None:
    trees = rich_cluster()
    changes = compare(trees, list(reversed(trees)))
    assert not changes
    assert changes == StateChanges()
    assert as_text(DiffReport(changes, "a", "b")) == "No differences found."


def test_every_kind_of_change_is_listed() -> None:
    old = big_cluster(2)
    new = copy.deepcopy(old)
    find(new, "Node", "node-0000")["status"]["allocatable"]["cpu"] = "1"
    find(new, "Node", "node-0001")["spec"] = {
        "unschedulable": True,
        "taints": [{"key": "broken", "value": "yes", "effect": "NoSchedule"}],
    }
    new.append({**copy.deepcopy(find(old, "Node", "node-0001"))})
    new[-1]["metadata"] = {**new[-1]["metadata"], "name": "node-0002", "uid": "three"}
    find(new, "ResourceSlice", "node-0000-gpu")["spec"]["devices"].pop()
    gone = find(new, "Pod", "gpu-0000-2")
    new.remove(gone)
    find(new, "ResourceClaim", "gpu-0000-2")["status"] = {}
    find(new, "Pod", "plain-0001-0")["spec"]["nodeName"] = "node-0000"
    changes = compare(old, new)
    assert [(each.name, each.change) for each in changes.nodes] == [
        ("node-0000", "changed"), ("node-0001", "changed"), ("node-0002", "added"),
    ]  # fmt: skip
    assert [(each.field, each.before, each.after) for each in changes.nodes[1].fields] == [
        ("status", "Ready", "Ready,SchedulingDisabled"), ("taints", "", "broken=yes:NoSchedule"),
    ]  # fmt: skip
    devices = {each.name: each for each in changes.devices}
    assert devices["gpu.example.com/node-0000/gpu-7"].change == "removed"
    freed = devices["gpu.example.com/node-0000/gpu-0"]
    assert [(each.field, each.before, each.after) for each in freed.fields] == [
        ("state", "taken", "free"), ("held by", "work/gpu-0000-2", ""),
    ]  # fmt: skip
    assert [(each.name, each.change) for each in changes.claims] == [("work/gpu-0000-2", "changed")]
    assert [(each.name, each.change) for each in changes.pods] == [
        ("work/gpu-0000-2", "removed"), ("work/plain-0001-0", "changed"),
    ]  # fmt: skip
    assert ("PLM001", "Node/node-0000") in {(each.id, each.subject) for each in changes.new_findings}
    text = as_text(DiffReport(changes, "old", "new"))
    assert "~ work/plain-0001-0  node node-0001 -> node-0000" in text


def test_findings_that_are_gone_are_resolved() -> None:
    old = big_cluster(1)
    find(old, "Node", "node-0000")["status"]["allocatable"]["cpu"] = "1"
    changes = compare(old, big_cluster(1))
    assert "PLM001" in {each.id for each in changes.resolved_findings}
    assert changes.new_findings == ()


def test_a_namespace_limits_pods_claims_and_findings() -> None:
    old, new = big_cluster(1), big_cluster(1, pending=0)
    assert compare(old, new).pods
    assert compare(old, new, namespace="elsewhere").pods == ()
    assert compare(old, new, namespace="elsewhere").claims == ()


@given(st.sets(st.integers(0, 40)), st.sets(st.integers(0, 40)))
def test_charges_add_up_and_the_reverse_is_the_opposite(left: set[int], right: set[int]) -> None:
    trees = big_cluster(2)
    sides = [[tree for n, tree in enumerate(trees) if n not in out] for out in (left, right)]
    sides = [side or trees for side in sides]
    there, back = compare(sides[0], sides[1]), compare(sides[1], sides[0])
    for one, other in ((there.pods, back.pods), (there.nodes, back.nodes), (there.claims, back.claims)):
        opposite = {"added": "removed", "removed": "added", "changed": "changed"}
        assert [(each.name, opposite[each.change]) for each in one] == [
            (each.name, each.change) for each in other
        ]
    used = [
        sum(row.used for node in node_rows(make_cluster_state(side)) for row in node.rows) for side in sides
    ]
    moved = sum(
        (each.after.used if each.after else 0) - (each.before.used if each.before else 0)
        for each in there.charges
    )
    assert moved == used[1] - used[0]


def test_blocked_partitions_are_one_line_of_their_device() -> None:
    parts = [device(f"gpu-0-1g-{n}", draws={"memory": 10}, profile="1g") for n in range(4)]
    whole = device("gpu-0", draws={"memory": 40})
    trees = slices(whole, *parts, counters={"memory": 40})
    for held, blocked in (("gpu-0", 4), ("gpu-0-1g-1", 1)):
        changes = compare(trees, [*trees, claim(held)])
        assert len(changes.devices) == 1 + blocked
        text = as_text(DiffReport(changes, "old", "new"))
        assert [line for line in text.splitlines() if held in line and "free -> taken" in line]
        (line,) = [line for line in text.splitlines() if line.endswith("blocked")]
        assert ("4 partitions of" in line) == (held == "gpu-0")
        freed = as_text(DiffReport(compare([*trees, claim(held)], trees), "old", "new"))
        assert freed.count("no longer blocked") == 1
        assert len(DiffReport(changes, "old", "new").as_json()["devices"]) == 1 + blocked
