"""Every rule says the same in bulk and node by node, whatever has happened since it was last asked."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from plimsoll.api.core import Pod
from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.filters.node_affinity import AffinityFilter, NamedNodesFilter, WantedNodes
from plimsoll.scheduler.filters.node_name import NodeNameFilter
from plimsoll.scheduler.filters.node_ports import PortsFilter, UsedPorts
from plimsoll.scheduler.filters.node_resources import ResourcesFilter
from plimsoll.scheduler.filters.node_unschedulable import UnschedulableFilter
from plimsoll.scheduler.filters.taint_toleration import HardTaints, TaintsFilter
from plimsoll.scheduler.reasons import NodeReason, render
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from tests.unit.scheduler.build import node, pod, snapshot_of, task_of
from tests.unit.scheduler.samples import NODES, SEEDS, Draws

RULES = (
    NamedNodesFilter,
    UnschedulableFilter,
    NodeNameFilter,
    TaintsFilter,
    AffinityFilter,
    PortsFilter,
    ResourcesFilter,
)


def check(kind: type[Filter], wanting: Pod, snapshot: Snapshot) -> None:
    task = task_of(wanting, snapshot)
    rule = kind.read(task, snapshot)
    if isinstance(rule, NodeReason):
        return
    if rule is None:  # then it must not concern any node
        rule = kind(task, snapshot) if kind is not PortsFilter else PortsFilter(task, snapshot, ())
        assert not any(rule.why_not(place) for place in snapshot.places())
        return
    passed = rule.feasible()
    assert passed.shape == snapshot.alive.shape
    assert {place: bool(passed[place]) for place in snapshot.places()} == {
        place: not rule.why_not(place) for place in snapshot.places()
    }
    removed = snapshot.alive & ~passed
    assert told(rule.tally(removed)) == told(Filter.tally(rule, removed))
    assert rule.resolvable(removed).tolist() == Filter.resolvable(rule, removed).tolist()


def told(tally: object) -> dict[tuple[str, object], int]:
    assert isinstance(tally, list)
    return {(render(reason), reason.rule): count for reason, count in tally}


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


def test_answers_grow_with_the_cluster() -> None:
    snapshot = snapshot_of(node("first", labels={"zone": "a"}, taints=["k:NoSchedule"]))
    wanting = pod("w", cpu="1", node_selector={"zone": "a"}, host_ports=[80])
    rules = (TaintsFilter, AffinityFilter, PortsFilter, ResourcesFilter)
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
    monkeypatch.setattr(WantedNodes, "kept", 3)
    monkeypatch.setattr(HardTaints, "kept", 3)
    monkeypatch.setattr(UsedPorts, "kept", 3)
    made = [node(f"n{n}", labels={"zone": str(n)}, taints=["k:NoSchedule"]) for n in range(9)]
    snapshot = snapshot_of(*made)
    for _ in range(2):
        for number in range(9):
            tolerates = {"key": "k", "operator": "Equal", "value": "" if number % 2 else str(number)}
            wanting = pod(
                "w", node_selector={"zone": str(number)}, tolerations=[tolerates], host_ports=[80 + number]
            )
            for kind in (AffinityFilter, TaintsFilter, PortsFilter):
                check(kind, wanting, snapshot)
    for index in (snapshot.index(WantedNodes), snapshot.index(HardTaints)):
        assert len(index._known) == 3
    assert len(snapshot.index(UsedPorts)._free) == 3


def test_answers_cannot_be_written_to() -> None:
    snapshot = snapshot_of(node("a", labels={"zone": "a"}))
    task = task_of(pod("w", cpu="1", node_selector={"zone": "a"}), snapshot)
    for kind in (AffinityFilter, ResourcesFilter):
        rule = kind.read(task, snapshot)
        assert isinstance(rule, Filter)
        with pytest.raises(ValueError, match="read-only"):
            rule.feasible()[0] = np.False_
