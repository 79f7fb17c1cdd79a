"""Bulk and pointwise forms of every scorer agree after any changes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from plimsoll.scheduler.plugin_args import ShapePoint
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.profile import SchedulerProfile, Strategy
from plimsoll.scheduler.scores import SCORERS, score_nodes
from plimsoll.scheduler.scores.node_affinity import NodeAffinityScorer, sum_weights
from plimsoll.scheduler.scores.node_resources import BalancedAllocationScorer, NodeResourcesFitScorer
from plimsoll.scheduler.scores.scorer import BEST, Scorer, normalize
from plimsoll.scheduler.scores.taint_toleration import TaintTolerationScorer, count_untolerated
from plimsoll.scheduler.snapshot.node_query_cache import NodeQueryCache
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from tests.build import node, pod
from tests.unit.scheduler.samples import AMOUNTS, RESOURCES, SEEDS, Draws
from tests.unit.scheduler.snapshots import pod_info_of, snapshot_of

#: Scorer -> whether its raw scores are compared with those of the other nodes, and which way round.
KINDS: dict[type[Scorer], bool | None] = {
    NodeResourcesFitScorer: None,
    BalancedAllocationScorer: None,
    NodeAffinityScorer: False,
    TaintTolerationScorer: True,
}


def drawn_settings(draws: Draws) -> SchedulerProfile:
    strategy = draws.one(*Strategy)
    return SchedulerProfile(
        strategy=strategy,
        shape=drawn_shape(draws) if strategy is Strategy.REQUESTED_TO_CAPACITY_RATIO else (),
        resources={
            name: draws.one(1, 1, 2, 7) for name in draws.random.sample(RESOURCES, draws.one(1, 2, 3))
        },
        balanced=tuple(draws.random.sample(RESOURCES, draws.one(0, 1, 2, 3))),
    )


def drawn_shape(draws: Draws) -> tuple[ShapePoint, ...]:
    used = sorted(draws.random.sample(range(101), draws.one(1, 2, 3, 5)))
    return tuple(ShapePoint(utilization=each, score=draws.random.randint(0, 10)) for each in used)


def score_node(scorer: Scorer, row: int) -> int:
    """Return the raw score of one node."""
    if isinstance(scorer, NodeAffinityScorer):
        return sum_weights(scorer.terms, scorer.snapshot.node(row))
    if isinstance(scorer, TaintTolerationScorer):
        return count_untolerated(scorer.pod_info.pod.spec.tolerations, scorer.snapshot.node(row))
    assert isinstance(scorer, NodeResourcesFitScorer | BalancedAllocationScorer)
    return scorer.formula.evaluate_row(scorer.snapshot.columns, row)


def normalize_one(raw: int, most: int, reverse: bool) -> int:
    """Scale one raw score, if `most` is the highest."""
    part = raw * BEST // most if most else 0
    return BEST - part if reverse else part


def check(
    kind: type[Scorer], pod_info: PodInfo, snapshot: Snapshot, settings: SchedulerProfile, draws: Draws
) -> None:
    scorer = kind.pre_score(pod_info, snapshot, settings)
    if scorer is None:
        return
    feasible = snapshot.alive & np.array([draws.one(True, True, False) for _ in range(snapshot.size)])
    rows = np.flatnonzero(feasible).tolist()
    raw = [score_node(scorer, row) for row in rows]
    reverse = KINDS[kind]
    wanted = raw if reverse is None else [normalize_one(each, max(raw), reverse) for each in raw]
    assert scorer.scores(feasible)[rows].tolist() == wanted
    assert all(0 <= each <= BEST for each in wanted)


@pytest.mark.parametrize("kind", KINDS)
@given(seed=SEEDS)
def test_bulk_and_pointwise_agree(kind: type[Scorer], seed: int) -> None:
    draws = Draws(seed)
    snapshot, settings = draws.snapshot(), drawn_settings(draws)
    wanting = [draws.pod(f"w{number}") for number in range(2)]
    for _ in range(4):
        for each in wanting:
            check(kind, pod_info_of(each, snapshot), snapshot, settings, draws)
        draws.happen(snapshot, draws.one(1, 1, 3, 40))


@given(seed=SEEDS)
def test_the_sum_is_weighted(seed: int) -> None:
    draws = Draws(seed)
    snapshot = draws.snapshot()
    weights = {kind.name: draws.one(0, 1, 2, 9) for kind in SCORERS}
    settings = SchedulerProfile(weights=weights)
    pod_info = pod_info_of(draws.pod("w"), snapshot)
    wanted = np.zeros(snapshot.size, dtype=np.int64)
    for kind in SCORERS:
        scorer = kind.pre_score(pod_info, snapshot, settings)
        if scorer is not None:
            wanted += weights[kind.name] * scorer.scores(snapshot.alive)
    total = score_nodes(pod_info, snapshot, settings, snapshot.alive)
    assert total.dtype == np.int64
    assert total[snapshot.alive].tolist() == wanted[snapshot.alive].tolist()


def test_every_scorer_has_a_weight() -> None:
    assert {kind.name for kind in SCORERS} < SchedulerProfile.default().weights.keys()


def test_scores_grow_with_the_cluster() -> None:
    snapshot = snapshot_of(node("first", taints=["k:PreferNoSchedule"]))
    wanting = pod("w", cpu="1", memory="1Gi")
    for number in range(200):
        for kind in KINDS:
            check(kind, pod_info_of(wanting, snapshot), snapshot, SchedulerProfile.default(), Draws(number))
        snapshot.set(node(f"n{number}", cpu=str(1 + number % 7)))


def test_the_number_of_cached_signatures_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NodeQueryCache, "kept", 3)
    snapshot = snapshot_of(node("a"), node("b", cpu="3"))
    for _ in range(2):
        for amount in AMOUNTS[1:]:
            pod_info = pod_info_of(pod("w", cpu=amount, memory="1"), snapshot)
            check(NodeResourcesFitScorer, pod_info, snapshot, SchedulerProfile.default(), Draws(0))
    assert len(snapshot.index(NodeQueryCache).cached) == 3


def test_more_changes_than_the_change_log_keeps() -> None:
    snapshot = snapshot_of(node("a"), node("b"))
    pod_info = pod_info_of(pod("w", cpu="1"), snapshot)
    check(NodeResourcesFitScorer, pod_info, snapshot, SchedulerProfile.default(), Draws(0))
    for number in range(10_000):
        snapshot.set(node("b", cpu=str(1 + number % 9)))
    check(NodeResourcesFitScorer, pod_info, snapshot, SchedulerProfile.default(), Draws(0))


def test_amounts_near_int64_max() -> None:
    """A node of exabytes next to a small one: nothing overflows, in either form."""
    snapshot = snapshot_of(node("vast", cpu="9E", memory="7E"), node("small", memory="1Ki"))
    for name in ("vast", "small"):
        snapshot.set(pod(f"on-{name}", cpu="5E", memory="6E", node=name))
    for strategy in Strategy:
        ratio = strategy is Strategy.REQUESTED_TO_CAPACITY_RATIO
        settings = SchedulerProfile(strategy=strategy, shape=drawn_shape(Draws(1)) if ratio else ())
        for wanting in (pod("w", cpu="1", memory="1"), pod("w", cpu="4E", memory="6E")):
            for kind in (NodeResourcesFitScorer, BalancedAllocationScorer):
                check(kind, pod_info_of(wanting, snapshot), snapshot, settings, Draws(1))


def test_normalising() -> None:
    raw, some = np.array([0, 3, 4, 99]), np.array([True, True, True, False])
    assert normalize(raw, some)[:3].tolist() == [0, 75, 100]
    assert normalize(raw, some, reverse=True)[:3].tolist() == [100, 25, 0]
    assert normalize(raw, np.array([True, False, False, False]))[:1].tolist() == [0]
    assert normalize(raw, np.array([True, False, False, False]), reverse=True)[:1].tolist() == [100]
