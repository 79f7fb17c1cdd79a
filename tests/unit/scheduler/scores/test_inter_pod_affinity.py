"""Preferred affinity between pods, case by case; `topology/test_agreement.py` has random ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from plimsoll.api.core import Node, Pod
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.scores.inter_pod_affinity import InterPodAffinityScorer
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from tests.build import node, pod
from tests.unit.scheduler.snapshots import pod_info_of, snapshot_of
from tests.unit.scheduler.topology.rules import HOSTNAME, affinity, term

A = {"app": "a"}
NODES = [node(f"n{number}", labels={"zone": f"z{number}", HOSTNAME: f"n{number}"}) for number in range(3)]


def scores(snapshot: Snapshot, new: Pod, *feasible: int) -> list[int] | None:
    scorer = InterPodAffinityScorer.pre_score(
        pod_info_of(new, snapshot), snapshot, SchedulerProfile.default()
    )
    if scorer is None:
        return None
    mask = snapshot.alive.copy()
    if feasible:
        mask = np.zeros_like(mask)
        mask[list(feasible)] = True
    return [int(scorer.scores(mask)[row]) for row in np.flatnonzero(mask)]


def raw(snapshot: Snapshot, new: Pod) -> list[int]:
    scorer = InterPodAffinityScorer.pre_score(
        pod_info_of(new, snapshot), snapshot, SchedulerProfile.default()
    )
    assert scorer is not None
    return [int(scorer.sums()[row]) for row in snapshot.rows()]


def test_preferred_terms_of_the_pod() -> None:
    objects = [pod("p", node="n0", labels=A), pod("q", node="n0", labels=A), pod("r", node="n1", labels=A)]
    snapshot = snapshot_of(*NODES, *objects)
    liking = pod("new", affinity=affinity(likes=((10, term()),)))
    assert raw(snapshot, liking) == [20, 10, 0]
    assert scores(snapshot, liking) == [100, 50, 0]
    shy = pod("new", affinity=affinity(dislikes=((10, term()),)))
    assert raw(snapshot, shy) == [-20, -10, 0]
    assert scores(snapshot, shy) == [0, 50, 100]


def test_preferred_terms_of_existing_pods() -> None:
    snapshot = snapshot_of(
        *NODES,
        pod("p", node="n0", affinity=affinity(likes=((30, term()),))),
        pod("q", node="n1", affinity=affinity(dislikes=((70, term()),))),
    )
    assert raw(snapshot, pod("new", labels=A)) == [30, -70, 0]
    assert scores(snapshot, pod("new", labels=A)) == [100, 0, 70]
    assert scores(snapshot, pod("new", labels={"app": "b"})) is None


def test_required_terms_of_existing_pods_count_with_hard_weight() -> None:
    snapshot = snapshot_of(*NODES, pod("p", node="n1", affinity=affinity(term())))
    assert raw(snapshot, pod("new", labels=A)) == [0, 1, 0]


def test_only_feasible_nodes_are_compared() -> None:
    objects = [pod(f"p{n}", node="n0", labels=A) for n in range(4)] + [pod("q", node="n1", labels=A)]
    new = pod("new", affinity=affinity(likes=((1, term()),)))
    assert scores(snapshot_of(*NODES, *objects), new) == [100, 25, 0]
    assert scores(snapshot_of(*NODES, *objects), new, 1, 2) == [100, 0]
    assert scores(snapshot_of(*NODES, *objects), new, 1) == [0]


def test_equal_scores_are_zero() -> None:
    new = pod("new", affinity=affinity(likes=((1, term()),)))
    assert scores(snapshot_of(*NODES), new) == [0, 0, 0]
    assert scores(snapshot_of(*NODES), pod("new")) is None


@pytest.mark.parametrize("part", range(1, 100))
def test_scores_are_exact(part: int) -> None:
    """Integer percentages; a floating-point result is one less for some."""
    likes: Any = ((100, term("a")), (part, term("b")))
    snapshot = snapshot_of(*NODES, pod("p", node="n0", labels=A), pod("q", node="n1", labels={"app": "b"}))
    assert scores(snapshot, pod("new", affinity=affinity(likes=likes))) == [100, part, 0]


def test_a_node_without_the_label_scores_zero() -> None:
    bare: Node = node("bare")
    new = pod("new", affinity=affinity(likes=((1, term()),)))
    assert raw(snapshot_of(bare, pod("p", node="bare", labels=A)), new) == [0]
