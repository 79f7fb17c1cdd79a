"""Nearest fixes on the clusters of `../shared/cases`."""

from __future__ import annotations

from plimsoll.tools.fixes.harm import least_harmful_pods
from tests.cases.cases import case_state


def test_the_pod_that_loses_least_is_removed_from_an_overcommitted_node() -> None:
    """Of pods that hold enough CPUs, one of a ReplicaSet, not one of a Job with GPUs."""
    state = case_state("real/messy-cluster.json.gz")
    ledger = state.snapshot.ledger(state.snapshot.row_of("h100-05"))
    (pod,) = least_harmful_pods(state, "h100-05", {"cpu": -ledger.headroom()["cpu"]})
    assert pod.metadata.owner_references[0].kind == "ReplicaSet"
    assert pod.spec.node_name == "h100-05"
