"""Bulk, pointwise and naive forms of inter-pod affinity and topology spread agree."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
from hypothesis import given, settings

from plimsoll.api.core import Node, Pod
from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.filters.inter_pod_affinity import InterPodAffinityFilter
from plimsoll.scheduler.filters.pod_topology_spread import PodTopologySpreadFilter
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.reasons import NodeReason, render
from plimsoll.scheduler.scores.inter_pod_affinity import InterPodAffinityScorer
from plimsoll.scheduler.scores.pod_topology_spread import PodTopologySpreadScorer
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.scheduler.topology.affinity_index import AffinityTermIndex
from plimsoll.scheduler.topology.match_counts import MatchCounts
from tests.sizes import examples
from tests.unit.scheduler.snapshots import pod_info_of, snapshot_of
from tests.unit.scheduler.topology import clusters, naive

DEFAULT = SchedulerProfile.default()


def agree(snapshot: Snapshot, pod: Pod, rule: type[Filter], why: Any) -> None:
    found = rule.pre_filter(pod_info_of(pod, snapshot), snapshot)
    assert not isinstance(found, NodeReason)
    expected = {row: why(pod, snapshot, row) for row in snapshot.rows()}
    if found is None:
        assert not any(expected.values())
        return
    actual = {row: "".join(map(render, found.filter_node(row))) for row in snapshot.rows()}
    assert actual == expected
    feasible = found.filter()
    assert {row: bool(feasible[row]) for row in snapshot.rows()} == {
        row: not text for row, text in expected.items()
    }
    removed = snapshot.alive & ~feasible
    assert sorted((render(r), n) for r, n in found.count_reasons(removed)) == sorted(
        (render(r), n) for r, n in Filter.count_reasons(found, removed)
    )
    assert (found.resolvable_nodes(removed) == Filter.resolvable_nodes(found, removed)).all()


def all_agree(snapshot: Snapshot, pod: Pod) -> None:
    agree(snapshot, pod, InterPodAffinityFilter, naive.why_apart)
    agree(snapshot, pod, PodTopologySpreadFilter, naive.why_skewed)


def scores_agree(snapshot: Snapshot, pod: Pod, among: list[int]) -> None:
    feasible = np.zeros(snapshot.size, dtype=np.bool_)
    feasible[among] = True
    raw = {row: naive.affinity_score(pod, snapshot, row) for row in snapshot.rows()}
    liking = InterPodAffinityScorer.pre_score(pod_info_of(pod, snapshot), snapshot, DEFAULT)
    if liking is None:
        assert not any(raw.values())
    else:
        assert {row: int(liking.sums()[row]) for row in raw} == raw
        scores = liking.scores(feasible)
        best, worst = max(raw[row] for row in among), min(raw[row] for row in among)
        for row in among:
            share = 100 * (raw[row] - worst) // (best - worst) if best > worst else 0
            assert scores[row] == share
    spread = PodTopologySpreadScorer.pre_score(pod_info_of(pod, snapshot), snapshot, DEFAULT)
    if spread is None:
        assert not naive.constraints_of(pod, "ScheduleAnyway")
    else:
        scores = spread.scores(feasible)
        assert {row: int(scores[row]) for row in among} == naive.spread_scores(pod, snapshot, among)


@settings(max_examples=examples(300))
@given(clusters.seeds)
def test_filters(random: Random) -> None:
    all_agree(snapshot_of(*clusters.cluster(random)), clusters.pod(random, "new"))


@settings(max_examples=examples(200))
@given(clusters.seeds)
def test_scores(random: Random) -> None:
    snapshot = snapshot_of(*clusters.cluster(random))
    rows = list(snapshot.rows())
    scores_agree(snapshot, clusters.pod(random, "new"), random.sample(rows, random.randint(1, len(rows))))


@settings(max_examples=examples(100))
@given(clusters.seeds)
def test_agreement_after_changes(random: Random) -> None:
    """Indexes stay correct after nodes, namespaces and pods are added, changed and deleted."""
    objects, newcomers = clusters.cluster(random), [clusters.pod(random, f"new{each}") for each in range(2)]
    snapshot = snapshot_of(*objects)
    known = {(type(each), each.metadata.name): each for each in objects}
    for _ in range(6):
        for pod in newcomers:
            all_agree(snapshot, pod)
        if known and random.random() < 0.4:
            snapshot.remove(known.pop(random.choice([*known])))
            continue
        number = random.randint(0, 7)
        new: Any = random.choice(
            [
                clusters.pod(random, f"p{number}", clusters.NODES),
                clusters.node(random, f"n{number}"),
                clusters.namespace(random, random.choice(clusters.NAMESPACES)),
            ]
        )
        old = known.get((type(new), new.metadata.name))
        if old is not None and old.metadata.namespace != new.metadata.namespace:
            snapshot.remove(old)
        known[type(new), new.metadata.name] = new
        snapshot.set(new)
    fresh = snapshot_of(*known.values())
    for pod in newcomers:
        all_agree(snapshot, pod)
        for rule in (InterPodAffinityFilter, PodTopologySpreadFilter):
            assert answers(snapshot, pod, rule) == answers(fresh, pod, rule)
    assert_alike(snapshot, fresh)


def assert_alike(snapshot: Snapshot, fresh: Snapshot) -> None:
    """Check that updated indexes equal new ones."""
    names = {row: snapshot.node(row).metadata.name for row in snapshot.rows()}
    others = {row: fresh.node(row).metadata.name for row in fresh.rows()}
    kept, anew = snapshot.index(MatchCounts), fresh.index(MatchCounts)
    assert kept.namespaces == anew.namespaces
    for matcher in [*kept.kept()]:
        counts, again = kept.count(matcher).as_dict(), anew.count(matcher).as_dict()
        assert {names[row]: count for row, count in counts.items()} == {
            others[row]: count for row, count in again.items()
        }
    for index in ("affinity", "anti_affinity", "preferred"):
        held = getattr(snapshot.index(AffinityTermIndex), index).as_dict()
        made = getattr(fresh.index(AffinityTermIndex), index).as_dict()
        assert {term: {names[row]: n for row, n in counts.items()} for term, counts in held.items()} == {
            term: {others[row]: n for row, n in counts.items()} for term, counts in made.items()
        }


def answers(snapshot: Snapshot, pod: Pod, rule: type[Filter]) -> dict[str, bool]:
    found = rule.pre_filter(pod_info_of(pod, snapshot), snapshot)
    assert not isinstance(found, NodeReason)
    nodes: list[Node] = [snapshot.node(row) for row in snapshot.rows()]
    mask = snapshot.alive if found is None else found.filter()
    return {node.metadata.name: bool(mask[snapshot.row_of(node.metadata.name)]) for node in nodes}
