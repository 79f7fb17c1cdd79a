"""Scheduling cycle: choice among nodes, cached results, and reasons."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from plimsoll.api.core import Pod
from plimsoll.api.gates import Gates
from plimsoll.api.meta import Condition
from plimsoll.ledger.columns import Column, Mask
from plimsoll.ledger.verdict import VerdictCode
from plimsoll.scheduler import cycle
from plimsoll.scheduler.cycle import schedule_one
from plimsoll.scheduler.devices import NodeFit
from plimsoll.scheduler.devices.scores import score_sizes
from plimsoll.scheduler.filters import FILTERS
from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.filters.node_resources import NodeResourcesMessage
from plimsoll.scheduler.observer import CycleObserver
from plimsoll.scheduler.pod_claims import read_pod_info
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.reasons import NodeReason, Rule, render
from plimsoll.scheduler.result import FitError, Placement
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.scheduler.snapshot.verify import verify
from tests.build import (
    DRIVER,
    charging_device,
    claim,
    device,
    device_class,
    exactly,
    first_available,
    node,
    pod,
    resource_slice,
)
from tests.sizes import examples
from tests.unit.scheduler.overdrafts import find_overdrafts
from tests.unit.scheduler.snapshots import snapshot_of


def place_pod(
    pod: Pod,
    snapshot: Snapshot,
    settings: SchedulerProfile | None = None,
    promises: Any = None,
    observer: CycleObserver | None = None,
) -> Placement | FitError:
    pod_info = read_pod_info(pod, snapshot)
    assert isinstance(pod_info, PodInfo), pod_info
    numbers = itertools.count()
    ids = lambda: f"share-{next(numbers)}"  # noqa: E731
    profile = settings or SchedulerProfile.default()
    return schedule_one(pod_info, snapshot, profile, ids, promises, observer=observer)


def assume(pod: Pod, snapshot: Snapshot, settings: SchedulerProfile | None = None) -> str:
    found = place_pod(pod, snapshot, settings)
    assert isinstance(found, Placement), found
    snapshot.assume(found)
    return found.node


def reason_texts(found: Placement | FitError) -> dict[str, int]:
    assert isinstance(found, FitError), found
    return {render(reason): count for reason, count in found.reasons}


def kind(name: str) -> str:
    return f'device.attributes["{DRIVER}"].kind == "{name}"'


def test_every_node_is_accounted_for() -> None:
    snapshot = snapshot_of(
        node("full", cpu="1"), node("off", unschedulable=True), node("bare"), device_class(),
        claim("c", exactly()),
    )  # fmt: skip
    found = place_pod(pod("p", cpu="2", claims=["c"]), snapshot)
    assert reason_texts(found) == {
        "Insufficient cpu": 1,
        "node(s) were unschedulable": 1,
        "cannot allocate all claims": 1,
    }
    assert isinstance(found, FitError)
    assert found.resolvable is not None
    assert found.rules == {Rule.RESOURCES, Rule.UNSCHEDULABLE, Rule.DEVICES}
    names = {snapshot.node(row).metadata.name for row in np.flatnonzero(found.resolvable).tolist()}
    assert names == {"bare"}


def test_there_are_no_nodes() -> None:
    found = place_pod(pod("p"), snapshot_of())
    assert isinstance(found, FitError)
    assert (found.nodes, found.reasons) == (0, ())


def test_scores_include_what_claims_charge() -> None:
    """A node whose CPUs are allocated as devices is not an empty node."""
    snapshot = snapshot_of(
        node("a", cpu="16"), node("b", cpu="16"), device_class(), claim("c", exactly()),
        resource_slice([charging_device("d", cpu="8")], "a"),
    )  # fmt: skip
    assert assume(pod("p", claims=["c"]), snapshot) == "a"
    assert assume(pod("q", cpu="1"), snapshot) == "b"


def test_the_node_with_the_first_alternative_is_preferred() -> None:
    either = first_available("r", exactly("best", select=kind("gpu")), exactly("rest", select=kind("cpu")))
    nodes = [node(f"n{number}") for number in range(6)]
    slices = [
        resource_slice([device("d", kind="gpu" if number == 4 else "cpu")], f"n{number}")
        for number in range(6)
    ]
    claims = [claim(f"c{number}", either) for number in range(3)]
    snapshot = snapshot_of(*nodes, *slices, *claims, device_class())
    eager = SchedulerProfile(explore=10)
    assert assume(pod("p0", claims={"r": "c0"}), snapshot, eager) == "n4"
    second = place_pod(pod("p1", claims={"r": "c1"}), snapshot, eager)
    assert isinstance(second, Placement)
    assert second.allocations["c1"].devices.results[0].request == "r/rest"


class SearchCounter(CycleObserver):
    """Observer that counts the nodes searched for devices."""

    searches = 0

    def on_device_search(self, row: int, found: bool) -> None:
        self.searches += 1


def test_unavailable_alternatives_are_cached() -> None:
    either = first_available("r", exactly("best", select=kind("gpu")), exactly("rest", select=kind("cpu")))
    nodes = [node(f"n{number}") for number in range(4)]
    slices = [
        resource_slice([device(f"d{i}", kind="cpu") for i in range(8)], each.metadata.name) for each in nodes
    ]
    snapshot = snapshot_of(*nodes, *slices, *(claim(f"c{i}", either) for i in range(9)), device_class())
    searched = []  # number of nodes searched for devices, by pod
    for number in range(9):
        observer = SearchCounter()
        found = place_pod(
            pod(f"p{number}", claims={"r": f"c{number}"}),
            snapshot,
            SchedulerProfile(explore=10),
            observer=observer,
        )
        assert isinstance(found, Placement)
        searched.append(observer.searches)
        snapshot.assume(found)
    assert searched[0] == 4
    assert searched[-1] == 1


def test_small_devices_are_preferred() -> None:
    devices = {"a": "80Gi", "b": "20Gi", "c": "40Gi"}
    snapshot = snapshot_of(
        *(node(name) for name in devices), device_class(), claim("x", exactly()),
        *(resource_slice([device("d", capacity={"memory": size})], name) for name, size in devices.items()),
    )  # fmt: skip
    thrifty = SchedulerProfile(weights={"DeviceWaste": 10}, explore=10)
    assert assume(pod("p", claims=["x"]), snapshot, thrifty) == "b"


def test_sizes_are_compared_name_by_name() -> None:
    def fit(**sizes: int) -> NodeFit:
        return NodeFit(sizes=tuple(((DRIVER, name), size) for name, size in sizes.items()))

    assert score_sizes([fit(memory=80), fit(memory=20)]) == [25, 100]
    assert score_sizes([fit(memory=10, cores=4), fit(memory=20, cores=2)]) == [75, 75]
    assert score_sizes([fit(), fit()]) == [100, 100]
    assert score_sizes([fit(memory=0), fit(memory=5)]) == [100, 0]


class FakeNomination:
    """Nomination of another pod to a node."""

    def __init__(self, node: str) -> None:
        self.node = node

    def filter_node(self, pod_info: PodInfo, row: int, snapshot: Snapshot) -> tuple[NodeReason, ...]:
        if snapshot.node(row).metadata.name != self.node:
            return ()
        return (
            NodeReason(
                Rule.RESOURCES,
                NodeResourcesMessage.INSUFFICIENT,
                VerdictCode.UNSCHEDULABLE,
                {"resource": "cpu"},
            ),
        )


def test_capacity_of_nominated_pods_is_left_free() -> None:
    snapshot = snapshot_of(node("a"), node("b"))
    for number in range(4):
        found = place_pod(pod(f"p{number}"), snapshot, promises=FakeNomination("a"))
        assert isinstance(found, Placement)
        assert found.node == "b"
    alone = snapshot_of(node("a"))
    assert reason_texts(place_pod(pod("p"), alone, promises=FakeNomination("a"))) == {"Insufficient cpu": 1}
    assert isinstance(place_pod(pod("p"), alone), Placement)


def test_identical_unschedulable_pods_use_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = snapshot_of(node("n", cpu="4"), pod("there", cpu="3", node="n"))
    assert reason_texts(place_pod(pod("p0", cpu="2"), snapshot)) == {"Insufficient cpu": 1}
    reads: list[str] = []
    real = cycle.build_filters

    def read(*all: Any) -> Any:
        reads.append("read")
        return real(*all)

    monkeypatch.setattr(cycle, "build_filters", read)
    second = place_pod(pod("p1", cpu="2"), snapshot)
    assert reason_texts(second) == {"Insufficient cpu": 1}
    assert isinstance(second, FitError)
    assert second.pod_info.pod.metadata.name == "p1"
    assert not reads
    assert isinstance(place_pod(pod("p2", cpu="1"), snapshot), Placement)
    snapshot.remove(pod("there"))
    assert isinstance(place_pod(pod("p3", cpu="2"), snapshot), Placement)


class StepCounter(CycleObserver):
    """Observer that adds up the nodes that each rule excluded."""

    def __init__(self) -> None:
        self.excluded: dict[Rule, int] = {}
        self.scorers: list[str] = []

    def on_filter(self, rule: Filter, removed: Mask) -> None:
        self.excluded[rule.rule] = int(np.count_nonzero(removed))

    def on_node_excluded(self, row: int, reasons: tuple[NodeReason, ...]) -> None:
        self.excluded[Rule.DEVICES] += 1

    def on_score(self, scorer: str, weight: int, scores: Column) -> None:
        assert weight == SchedulerProfile.default().weights[scorer]
        self.scorers.append(scorer)


def test_an_observer_receives_every_excluded_node_and_every_score() -> None:
    snapshot = snapshot_of(
        node("small", cpu="1"), node("tainted", taints=[{"key": "t", "effect": "NoSchedule"}]), node("bare"),
        node("full"), resource_slice([device("d")], "full"), device_class(), claim("c", exactly()),
        claim("held", exactly(), results=[{"request": "r", "driver": DRIVER, "pool": "full", "device": "d"}]),
    )  # fmt: skip
    pod_info = read_pod_info(pod("p", cpu="2", claims=["c"]), snapshot)
    assert isinstance(pod_info, PodInfo)
    for _ in range(2):  # a cached result is not used
        observer = StepCounter()
        observed = schedule_one(pod_info, snapshot, SchedulerProfile.default(), str, observer=observer)
        excluded = {rule: count for rule, count in observer.excluded.items() if count}
        assert excluded == {Rule.TAINTS: 1, Rule.RESOURCES: 1, Rule.DEVICES: 2}
        assert reason_texts(observed) == reason_texts(place_pod(pod("p", cpu="2", claims=["c"]), snapshot))
    observer = StepCounter()
    alone = read_pod_info(pod("p", cpu="2"), snapshot)
    assert isinstance(alone, PodInfo)
    assert isinstance(
        schedule_one(alone, snapshot, SchedulerProfile.default(), str, observer=observer), Placement
    )
    assert observer.scorers == ["NodeResourcesFit", "NodeResourcesBalancedAllocation"]


def test_an_assigned_pod_invalidates_results_of_pods_with_affinity() -> None:
    term = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "host"}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    snapshot = snapshot_of(node("n", labels={"host": "n"}))
    assert isinstance(place_pod(pod("p", affinity=affinity), snapshot), FitError)
    snapshot.set(pod("db", node="n", labels={"app": "db"}))
    assert isinstance(place_pod(pod("p", affinity=affinity), snapshot), Placement)


def test_without_the_gate_claims_charge_nothing() -> None:
    objects = (
        node("n", cpu="8"), resource_slice([charging_device("d", cpu="6")], "n"), device_class(),
        claim("c", exactly()),
    )  # fmt: skip
    off = Gates.parse("DRANodeAllocatableResources=false")
    wanted = pod("p", cpu="4", claims=["c"])
    assert reason_texts(place_pod(wanted, snapshot_of(*objects))) == {"Insufficient cpu": 1}
    found = place_pod(wanted, snapshot_of(*objects, gates=off))
    assert isinstance(found, Placement)
    assert found.charged_claims == ()


@given(st.permutations(range(len(FILTERS))), st.integers(0, 5))
@settings(max_examples=examples(30), deadline=None)
def test_the_order_of_filters_does_not_change_placements(order: list[int], seed: int) -> None:
    def make_snapshot() -> Snapshot:
        return snapshot_of(
            node("a", cpu="4", labels={"zone": "x"}), node("b", cpu="8", taints=["k=v:NoSchedule"]),
            node("c", cpu="2"), node("d", cpu="8"), device_class(), claim("c1", exactly()),
            resource_slice([charging_device("d", cpu="4")], "d"), resource_slice([device("e")], "a"),
        )  # fmt: skip

    wishes = [
        pod("p", cpu=str(1 + seed), claims=["c1"]),
        pod("q", cpu="3", tolerations=[{"operator": "Exists"}]),
        pod("r", cpu="1", node_selector={"zone": "x"}),
        pod("s", host_ports=[80]),
    ]
    plain, mixed = make_snapshot(), make_snapshot()
    usual = [place_pod(each, plain) for each in wishes]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cycle, "FILTERS", tuple(FILTERS[number] for number in order))
        other = [place_pod(each, mixed) for each in wishes]
    for one, two in zip(usual, other, strict=True):
        assert type(one) is type(two)
        if isinstance(one, Placement) and isinstance(two, Placement):
            assert (one.node, one.charged_claims) == (two.node, two.charged_claims)


def test_verify_finds_differences() -> None:
    snapshot = snapshot_of(node("n", cpu="8"), pod("p", cpu="2", node="n"))
    assert verify(snapshot) == []
    snapshot.ledger(0).requested["cpu"] += 1
    assert any("cpu" in each.where or "requested" in each.where for each in verify(snapshot))


def test_overcommitment_by_other_components_is_found() -> None:
    twice = [{"request": "r", "driver": DRIVER, "pool": "n", "device": "d"}]
    snapshot = snapshot_of(
        node("n", cpu="2"), pod("p", cpu="4", node="n"), resource_slice([device("d")], "n"),
        claim("one", exactly(), results=twice), claim("two", exactly(), results=twice),
    )  # fmt: skip
    found = find_overdrafts(snapshot)
    assert found[0] == "node n: cpu -2000"
    assert "held 2 times" in found[1]


def test_a_small_pod_is_no_reason_to_prefer_a_node_in_use() -> None:
    snapshot = snapshot_of(*(node(f"n{number}", cpu="64", memory="256Gi") for number in range(4)))
    chosen = [assume(pod(f"p{number}", cpu="10m", memory="16Mi"), snapshot) for number in range(4)]
    assert sorted(chosen) == ["n0", "n1", "n2", "n3"]


def test_declared_features_invalidate_cached_results() -> None:
    """A change of any field that a rule reads invalidates its results."""
    before = node("n")
    after = replace(before, status=replace(before.status, declared_features=("F",)))
    snapshot = snapshot_of(before)
    stamp = snapshot.generations.last
    snapshot.set(after)
    assert snapshot.generations.last > stamp
    heartbeat = replace(after, status=replace(after.status, conditions=(Condition(type="Ready"),)))
    stamp = snapshot.generations.last
    snapshot.set(heartbeat)
    assert snapshot.generations.last == stamp
