"""Bulk and pointwise forms of every filter agree after any changes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.filters.node_affinity import NodeAffinityFilter, NodeAffinityIndex
from plimsoll.scheduler.filters.node_name import NodeNameFilter
from plimsoll.scheduler.filters.node_ports import NodePortsFilter, UsedPorts
from plimsoll.scheduler.filters.node_resources import NodeResourcesFilter
from plimsoll.scheduler.filters.node_unschedulable import NodeUnschedulableFilter
from plimsoll.scheduler.filters.taint_toleration import NoScheduleTaints, TaintTolerationFilter
from tests.build import node, pod
from tests.unit.scheduler.filters.agreement import check
from tests.unit.scheduler.samples import NODES, SEEDS, Draws
from tests.unit.scheduler.snapshots import pod_info_of, snapshot_of

RULES = (
    NodeUnschedulableFilter,
    NodeNameFilter,
    TaintTolerationFilter,
    NodeAffinityFilter,
    NodePortsFilter,
    NodeResourcesFilter,
)


@pytest.mark.parametrize("kind", RULES)
@given(seed=SEEDS)
def test_bulk_and_pointwise_agree(kind: type[Filter], seed: int) -> None:
    draws = Draws(seed)
    snapshot = draws.snapshot()
    named = kind is NodeNameFilter
    wanting = [draws.pod(f"w{number}", draws.one(*NODES) if named else "") for number in range(2)]
    for _ in range(4):
        for each in wanting:
            check(kind, each, snapshot)
        draws.happen(snapshot, draws.one(1, 1, 3))


def test_masks_grow_with_the_cluster() -> None:
    snapshot = snapshot_of(node("first", labels={"zone": "a"}, taints=["k:NoSchedule"]))
    wanting = pod("w", cpu="1", node_selector={"zone": "a"}, host_ports=[80])
    rules = (TaintTolerationFilter, NodeAffinityFilter, NodePortsFilter, NodeResourcesFilter)
    for kind in rules:
        check(kind, wanting, snapshot)
    before = snapshot.size
    for number in range(before):
        snapshot.set(node(f"n{number}", labels={"zone": "a" if number % 3 else "b"}))
    assert snapshot.size > before
    snapshot.set(pod("x", node="n5", host_ports=[80]))
    for kind in rules:
        check(kind, wanting, snapshot)


def test_the_number_of_kept_signatures_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NodeAffinityIndex, "kept", 3)
    monkeypatch.setattr(NoScheduleTaints, "kept", 3)
    monkeypatch.setattr(UsedPorts, "kept", 3)
    made = [node(f"n{n}", labels={"zone": str(n)}, taints=["k:NoSchedule"]) for n in range(9)]
    snapshot = snapshot_of(*made)
    for _ in range(2):
        for number in range(9):
            tolerates = {"key": "k", "operator": "Equal", "value": "" if number % 2 else str(number)}
            wanting = pod(
                "w", node_selector={"zone": str(number)}, tolerations=[tolerates], host_ports=[80 + number]
            )
            for kind in (NodeAffinityFilter, TaintTolerationFilter, NodePortsFilter):
                check(kind, wanting, snapshot)
    for index in (snapshot.index(NodeAffinityIndex), snapshot.index(NoScheduleTaints)):
        assert len(index.cached) == 3
    assert len(snapshot.index(UsedPorts).cached) == 3


def test_masks_are_read_only() -> None:
    snapshot = snapshot_of(node("a", labels={"zone": "a"}))
    pod_info = pod_info_of(pod("w", cpu="1", node_selector={"zone": "a"}), snapshot)
    for kind in (NodeAffinityFilter, NodeResourcesFilter):
        rule = kind.pre_filter(pod_info, snapshot)
        assert isinstance(rule, Filter)
        with pytest.raises(ValueError, match="read-only"):
            rule.filter()[0] = np.False_
