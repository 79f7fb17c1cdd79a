"""Preferred node affinity and PreferNoSchedule taints."""

from __future__ import annotations

from typing import Any

from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.scores.node_affinity import NodeAffinityScorer
from plimsoll.scheduler.scores.scorer import Scorer
from plimsoll.scheduler.scores.taint_toleration import TaintTolerationScorer
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from tests.build import node, pod
from tests.unit.scheduler.snapshots import pod_info_of, snapshot_of


def scores(kind: type[Scorer], wanting: Any, snapshot: Snapshot, *without: str) -> dict[str, int] | None:
    scorer = kind.pre_score(pod_info_of(wanting, snapshot), snapshot, SchedulerProfile.default())
    if scorer is None:
        return None
    feasible = snapshot.alive.copy()
    for name in without:
        feasible[snapshot.row_of(name)] = False
    found = scorer.scores(feasible)
    rows = [row for row in snapshot.rows() if feasible[row]]
    return {snapshot.node(row).metadata.name: int(found[row]) for row in rows}


def prefers(*terms: tuple[int, dict[str, Any]]) -> dict[str, Any]:
    preferred = [{"weight": weight, "preference": preference} for weight, preference in terms]
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}


def zone(operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": "zone", "operator": operator, "values": list(values)}]}


ZONES = [node("a", labels={"zone": "a"}), node("b", labels={"zone": "b"}), node("none")]


def test_preferred_terms_are_normalized_by_the_best() -> None:
    snapshot = snapshot_of(*ZONES)
    wanting = pod("w", affinity=prefers((3, zone("In", "a")), (1, zone("Exists")), (2, {})))
    assert scores(NodeAffinityScorer, wanting, snapshot) == {"a": 100, "b": 25, "none": 0}
    assert scores(NodeAffinityScorer, wanting, snapshot, "a") == {"b": 100, "none": 0}
    assert scores(NodeAffinityScorer, wanting, snapshot, "a", "b") == {"none": 0}


def test_pods_without_preferences_are_not_scored_by_them() -> None:
    snapshot = snapshot_of(*ZONES)
    empty: list[dict[str, Any] | None] = [
        None,
        {},
        {"nodeAffinity": {}},
        prefers((0, zone("Exists")), (-5, zone("Exists"))),
    ]
    for affinity in empty:
        assert scores(NodeAffinityScorer, pod("w", affinity=affinity), snapshot) is None


def test_invalid_preferred_terms_are_ignored() -> None:
    snapshot = snapshot_of(*ZONES)
    wanting = pod("w", affinity=prefers((3, zone("Near", "a")), (1, zone("In", "b"))))
    assert scores(NodeAffinityScorer, wanting, snapshot) == {"a": 0, "b": 100, "none": 0}


def test_soft_taints_cost_score() -> None:
    snapshot = snapshot_of(
        node("none"),
        node("one", taints=["x=1:PreferNoSchedule", "z:NoSchedule"]),
        node("two", taints=["x=1:PreferNoSchedule", "y:PreferNoSchedule"]),
    )
    assert scores(TaintTolerationScorer, pod("w"), snapshot) == {"none": 100, "one": 50, "two": 0}
    assert scores(TaintTolerationScorer, pod("w"), snapshot, "two") == {"none": 100, "one": 0}
    x = [{"key": "x", "operator": "Exists"}]
    assert scores(TaintTolerationScorer, pod("w", tolerations=x), snapshot) == {
        "none": 100,
        "one": 100,
        "two": 0,
    }
    hard = [{"operator": "Exists", "effect": "NoSchedule"}]
    assert scores(TaintTolerationScorer, pod("w", tolerations=hard), snapshot) == {
        "none": 100,
        "one": 50,
        "two": 0,
    }


def test_without_soft_taints_no_pod_is_scored_by_them() -> None:
    snapshot = snapshot_of(node("n", taints=["x:NoSchedule"]))
    assert scores(TaintTolerationScorer, pod("w"), snapshot) is None
    snapshot.set(node("n", taints=["x:PreferNoSchedule"]))
    assert scores(TaintTolerationScorer, pod("w"), snapshot) == {"n": 0}
    snapshot.remove(node("n"))
    assert scores(TaintTolerationScorer, pod("w"), snapshot) is None
