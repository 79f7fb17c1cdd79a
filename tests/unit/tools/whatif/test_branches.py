"""Branches are undone exactly, and their ledgers equal those rebuilt from the objects."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.api.core import Pod
from plimsoll.errors import InputError
from plimsoll.scheduler.snapshot.verify import verify
from plimsoll.tools.cluster_state import ClusterObjects, ClusterState
from plimsoll.tools.whatif import Whatif, WhatifOutcome
from plimsoll.tools.whatif.whatif import WhatifOperations
from tests.sizes import examples
from tests.unit.tools.whatif.random_operations import STEPS, TEMPLATE, cluster, do, pod_tree


def everything(moves: WhatifOperations) -> dict[str, str]:
    """Return all objects, independent of their order."""
    return {f"{type(each).__name__}/{each.metadata.namespace}/{each.metadata.name}": repr(each)
            for each in moves.cluster_state.objects}  # fmt: skip


def amounts_by_node(moves: WhatifOperations) -> dict[str, Any]:
    """Return the amounts of every node ledger."""
    snapshot = moves.cluster_state.snapshot
    return {
        snapshot.node(place).metadata.name: (
            {name: units for name, units in snapshot.ledger(place).requested.items() if units},
            sorted(snapshot.ledger(place).entries),
            snapshot.ledger(place).headroom(),
        )
        for place in snapshot.rows()
    }


def rebuilt(moves: WhatifOperations) -> Whatif:
    """Return a new snapshot of the same objects (naive reference)."""
    return Whatif(
        ClusterState(moves.cluster_state.objects, moves.cluster_state.gates, moves.cluster_state.profile)
    )


def summary(outcome: WhatifOutcome) -> tuple[Any, ...]:
    return outcome.placed, outcome.pending, outcome.evicted


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(STEPS, max_size=8))
def test_a_branch_is_undone_exactly(steps: list[tuple[Any, ...]]) -> None:
    whatif = Whatif(ClusterState(ClusterObjects(cluster())))
    objects, amounts = everything(whatif), amounts_by_node(whatif)
    with whatif.branch() as first:
        fresh = summary(first.schedule())
    with whatif.branch() as branch:
        for number, step in enumerate(steps):
            do(branch, number, step)
            assert verify(branch.cluster_state.snapshot) == []
        assert amounts_by_node(rebuilt(branch)) == amounts_by_node(branch)
    assert everything(whatif) == objects
    assert amounts_by_node(whatif) == amounts
    assert verify(whatif.cluster_state.snapshot) == []
    with whatif.branch() as last:
        assert summary(last.schedule()) == fresh


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(STEPS, max_size=6))
def test_scheduling_resumes_as_from_scratch(steps: list[tuple[Any, ...]]) -> None:
    """A changed snapshot schedules pods as a new one does."""
    whatif = Whatif(ClusterState(ClusterObjects(cluster())))
    for number, step in enumerate(steps):
        do(whatif, number, step)
    naive = rebuilt(whatif)
    naive.cluster.arrivals = dict(whatif.cluster.arrivals)
    ours, theirs = whatif.schedule(), naive.schedule()
    assert {each.pod for each in ours.placed} == {each.pod for each in theirs.placed}


def test_a_branch_can_be_kept() -> None:
    whatif = Whatif(ClusterState(ClusterObjects(cluster())))
    with whatif.branch() as outer:
        with outer.branch() as inner:
            inner.remove("Pod/low")
            inner.keep()
        assert outer.cluster_state.objects.find(Pod, "default", "low") is None
    assert whatif.cluster_state.objects.find(Pod, "default", "low") is not None


def test_a_branch_that_fails_is_undone_though_it_was_kept() -> None:
    whatif = Whatif(ClusterState(ClusterObjects(cluster())))

    def fail() -> None:
        with whatif.branch() as branch:
            branch.keep()
            branch.remove("Pod/low")
            branch.drain("nowhere")

    with pytest.raises(InputError, match="Node not found"):
        fail()
    assert whatif.cluster_state.objects.find(Pod, "default", "low") is not None


def test_the_original_cluster_state_is_unchanged() -> None:
    cluster_state = ClusterState(ClusterObjects(cluster()))
    before = len(cluster_state.objects)
    whatif = Whatif(cluster_state)
    whatif.add(TEMPLATE, pod_tree("p", "1", 1, 0))
    whatif.schedule()
    assert len(cluster_state.objects) == before
    assert verify(cluster_state.snapshot) == []
