"""Match counts by node and by domain; caches are bounded."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given, settings

from plimsoll.api.label_selection import CompiledLabelRequirement, CompiledLabelSelector
from plimsoll.scheduler.filters.inter_pod_affinity import InterPodAffinityFilter
from plimsoll.scheduler.snapshot.index import SnapshotIndex
from plimsoll.scheduler.topology import match_counts as tallies
from plimsoll.scheduler.topology.affinity_index import AffinityTermIndex
from plimsoll.scheduler.topology.affinity_terms import PodSelector
from plimsoll.scheduler.topology.counts import NO_DOMAIN, DomainColumn, NodeCounts
from plimsoll.scheduler.topology.domains import TopologyDomains
from plimsoll.scheduler.topology.match_counts import MatchCounts, PodMatcher
from tests.build import node, pod
from tests.sizes import examples
from tests.unit.scheduler.snapshots import pod_info_of, snapshot_of
from tests.unit.scheduler.topology.clusters import seeds
from tests.unit.scheduler.topology.rules import HOSTNAME, affinity, term


@settings(max_examples=examples(50))
@given(seeds)
def test_counts_and_sums(random: Random) -> None:
    """Counts and sums agree with a dictionary while nodes move between domains."""
    size = random.choice([5, 100])
    zones = {row: random.choice(["a", "b", None]) for row in range(size)}

    def labelled(row: int) -> dict[str, str]:
        zone = zones[row]
        return {} if zone is None else {"zone": zone}

    column = DomainColumn("zone", size, {p: node(f"n{p}", labels=labelled(p)) for p in zones})
    counts, expected = NodeCounts(), dict.fromkeys(range(size), 0)
    for _ in range(200):
        row, amount = random.randrange(size), random.randint(-3, 5)
        counts.add(row, amount)
        expected[row] += amount
        if random.random() < 0.1:
            zones[row] = random.choice(["a", "b", "c", None])
            column.set_node(row, node(f"n{row}", labels=labelled(row)))
        if random.random() < 0.2:
            sums = counts.sums(column)
            for each in range(size):
                same = [p for p in expected if zones[p] == zones[each]] if zones[each] is not None else []
                assert counts.sum_at(column, each) == sums[column.ids[each]] == sum(expected[p] for p in same)
            assert sums[NO_DOMAIN] == 0
            assert (sums == counts.sums_among(column, np.ones(size, dtype=np.bool_))).all()
    assert counts.as_dict() == {row: amount for row, amount in expected.items() if amount}
    assert counts.as_column(size).tolist() == [*expected.values()]


def test_values_of_removed_nodes_are_dropped() -> None:
    snapshot = snapshot_of(node("stays", labels={HOSTNAME: "stays"}))
    domains = snapshot.index(TopologyDomains)
    domains.column(HOSTNAME)
    for number in range(1000):
        gone = node("comes", labels={HOSTNAME: f"value-{number}"})
        snapshot.set(gone)
        snapshot.remove(gone)
        assert len(domains.column(HOSTNAME)) < 300


def test_columns_grow_with_the_cluster() -> None:
    snapshot = snapshot_of(node("n", labels={"zone": "a"}), pod("p", node="n", labels={"app": "a"}))
    counts = snapshot.index(MatchCounts).count(matcher("a"))
    column = snapshot.index(TopologyDomains).column("zone")
    assert counts.sums(column).tolist() == [1, 0]
    for number in range(200):
        snapshot.set(node(f"n{number}", labels={"zone": "b"}))
        snapshot.set(pod(f"p{number}", node=f"n{number}", labels={"app": "a"}))
    assert len(column.ids) == len(column.known) == snapshot.size
    assert counts.sums(column).tolist() == [1, 200, 0]


def matcher(app: str) -> PodMatcher:
    return PodMatcher(
        (
            PodSelector(
                frozenset(["default"]),
                CompiledLabelSelector((CompiledLabelRequirement("app", "In", (app,)),)),
            ),
        )
    )


def test_unused_counts_are_dropped() -> None:
    snapshot = snapshot_of(node("n"), pod("p", node="n", labels={"app": "a"}))
    index = snapshot.index(MatchCounts)
    for number in range(2 * tallies.MAX_COUNTS):
        assert index.count(matcher("a")).as_dict() == {0: 1}
        index.count(matcher(f"b{number}"))
    assert len(index.kept()) == tallies.MAX_COUNTS
    assert matcher("a") in index.kept()
    snapshot.set(pod("q", node="n", labels={"app": "a"}))
    snapshot.set(pod("r", node="n", labels={"app": "b0"}))
    assert index.count(matcher("a")).as_dict() == {0: 2}
    assert index.count(matcher("b0")).as_dict() == {0: 1}


def test_deleted_pods_leave_no_counts() -> None:
    rule = affinity(term(), apart=(term(),), likes=((5, term()),), dislikes=((5, term()),))
    there = pod("p", node="n", labels={"app": "a", "tier": "x"}, affinity=rule)
    snapshot = snapshot_of(node("n"), there)
    index, holders = snapshot.index(MatchCounts), snapshot.index(AffinityTermIndex)
    assert index.count(matcher("a")).as_dict() == {0: 1}
    snapshot.remove(there)
    assert index.count(matcher("a")).as_dict() == {}
    assert not index.groups
    assert not index.groups_by_label
    for terms in (holders.affinity, holders.anti_affinity, holders.preferred):
        assert terms.as_dict() == {}
        assert not terms.anchored


def test_pods_without_affinity_have_no_counts() -> None:
    """Without topology rules the counts are not even started."""
    snapshot = snapshot_of(node("n"), pod("p", node="n", labels={"app": "a"}))
    assert InterPodAffinityFilter.pre_filter(pod_info_of(pod("new"), snapshot), snapshot) is None
    kinds: dict[type[SnapshotIndex], SnapshotIndex] = snapshot.indexes
    assert AffinityTermIndex in kinds
    assert MatchCounts not in kinds
