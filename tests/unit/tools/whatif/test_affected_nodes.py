"""Amounts and devices of affected nodes only, compared with those computed for all nodes."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.tools.cluster_state import ClusterObjects, ClusterState
from plimsoll.tools.whatif import Whatif
from plimsoll.tools.whatif.affected_nodes import keep_unaffected
from plimsoll.tools.whatif.fragmentation import read_node_fragments
from plimsoll.tools.whatif.totals import free_by_node
from tests.sizes import examples
from tests.unit.tools.whatif.random_operations import STEPS, TEMPLATE, cluster, do, pod_tree


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(STEPS, max_size=5))
def test_unaffected_nodes_are_unchanged(steps: list[tuple[Any, ...]]) -> None:
    whatif = Whatif(ClusterState(ClusterObjects(cluster())))
    snapshot = whatif.cluster_state.snapshot
    free_before = free_by_node(snapshot)
    nodes_before = read_node_fragments(snapshot, free_before)
    with whatif.branch() as branch:
        for number, step in enumerate(steps):
            do(branch, number, step)
        affected = branch.affected_nodes()
        naive = free_by_node(snapshot)
        free = free_by_node(snapshot, keep_unaffected(free_before, affected))
        assert free == naive
        known = keep_unaffected(nodes_before, affected)
        assert read_node_fragments(snapshot, free, known) == read_node_fragments(snapshot, naive)


def test_a_pod_with_a_claim_affects_its_node_only() -> None:
    whatif = Whatif(ClusterState(ClusterObjects(cluster())))
    with whatif.branch() as branch:
        branch.remove("Pod/wait")
        branch.add(TEMPLATE, pod_tree("new", "1", 1, 0))
        (placed,) = branch.schedule().placed
        assert placed.devices
        assert branch.affected_nodes() == {placed.node}
        branch.taint_devices("device=d0:broken=yes:NoSchedule")
        assert branch.affected_nodes() is None
