"""Preferred topology spread, case by case; `topology/test_agreement.py` has random ones."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.core import Node, Pod
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.scores.pod_topology_spread import PodTopologySpreadScorer, logarithm
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from tests.build import node, pod
from tests.unit.scheduler.snapshots import pod_info_of, snapshot_of
from tests.unit.scheduler.topology.rules import HOSTNAME, spread

A = {"app": "a"}


def host(name: str, zone: str | None = None) -> Node:
    return node(name, labels={HOSTNAME: name, **({} if zone is None else {"zone": zone})})


def pods_at(**counts: int) -> list[Pod]:
    return [pod(f"{name}-{n}", node=name, labels=A) for name, count in counts.items() for n in range(count)]


def scores(snapshot: Snapshot, *constraints: Any, among: tuple[int, ...] = ()) -> list[int]:
    new = pod("new", labels=A, topology_spread_constraints=list(constraints))
    scorer = PodTopologySpreadScorer.pre_score(
        pod_info_of(new, snapshot), snapshot, SchedulerProfile.default()
    )
    assert scorer is not None
    mask = snapshot.alive.copy()
    if among:
        mask = np.zeros_like(mask)
        mask[list(among)] = True
    return [int(scorer.scores(mask)[row]) for row in np.flatnonzero(mask)]


def test_emptier_domains_score_higher() -> None:
    snapshot = snapshot_of(host("n0", "z0"), host("n1", "z1"), host("n2", "z2"), *pods_at(n0=4, n1=2))
    # 4 and 2 pods of weight ln(3 + 2): 6.4 and 3.2, so 6, 3 and 0
    assert scores(snapshot, spread(must=False)) == [0, 50, 100]


def test_a_larger_max_skew_reduces_differences() -> None:
    snapshot = snapshot_of(host("n0", "z0"), host("n1", "z1"), *pods_at(n0=2))
    # 2 pods of weight ln(2 + 2) are 3; with a skew of 5, 7 and 4
    assert scores(snapshot, spread(must=False)) == [0, 100]
    assert scores(snapshot, spread(must=False, skew=5)) == [100 * 4 // 7, 100]


def test_anti_affinity_without_matching_pods() -> None:
    snapshot = snapshot_of(host("n0", "z0"), host("n1", "z1"))
    assert scores(snapshot, spread(must=False)) == [100, 100]


def test_nodes_without_the_labels_are_last() -> None:
    snapshot = snapshot_of(host("n0", "z0"), host("n1"), *pods_at(n0=3))
    assert scores(snapshot, spread(must=False)) == [100, 0]
    assert scores(snapshot, spread(must=False), among=(1,)) == [0]


def test_pods_on_nodes_that_are_not_feasible_count() -> None:
    snapshot = snapshot_of(host("n0", "z0"), host("n1", "z0"), host("n2", "z1"), *pods_at(n0=4))
    assert scores(snapshot, spread(must=False), among=(1, 2)) == [0, 100]


def test_a_host_counts_its_own_pods_whatever_the_policies_say() -> None:
    tainted = node("n0", labels={HOSTNAME: "n0"}, taints=["no:NoSchedule"])
    snapshot = snapshot_of(tainted, host("n1"), *pods_at(n0=4))
    assert scores(snapshot, spread(HOSTNAME, must=False, nodeTaintsPolicy="Honor")) == [0, 100]


def test_hosts_and_zones_together() -> None:
    snapshot = snapshot_of(
        host("n0", "z0"), host("n1", "z0"), host("n2", "z1"), *pods_at(n0=2, n2=1)
    )  # fmt: skip
    # zones: 2, 2, 1 times ln(2 + 2); hosts: 2, 0, 1 times ln(3 + 2); so 6, 3, 3
    assert scores(snapshot, spread(must=False), spread(HOSTNAME, must=False)) == [50, 100, 100]


def test_no_constraints_no_scores() -> None:
    snapshot = snapshot_of(host("n0", "z0"), host("n1", "z1"), *pods_at(n0=3))
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "a", "uid": "u", "controller": True}
    for new in (
        pod("new", labels=A, metadata={"ownerReferences": [owner]}),
        pod("new", labels=A, topology_spread_constraints=[spread(must=True)]),
    ):
        assert (
            PodTopologySpreadScorer.pre_score(
                pod_info_of(new, snapshot), snapshot, SchedulerProfile.default()
            )
            is None
        )


def test_a_huge_max_skew() -> None:
    snapshot = snapshot_of(host("n0", "z0"), host("n1", "z1"), *pods_at(n0=3))
    assert scores(snapshot, spread(must=False, skew=2**63 - 1)) == [99, 100]


@given(st.integers(1, 10**9))
def test_logarithms(number: int) -> None:
    assert abs(logarithm(number) - math.log(number) * 2**36) < 1
