"""Settings of a profile in the scheduling cycle: each of them changes the result."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.core import Pod
from plimsoll.errors import InputError
from plimsoll.scheduler.cycle import schedule_one
from plimsoll.scheduler.events import classify_change
from plimsoll.scheduler.filter_result import FilterResult
from plimsoll.scheduler.filters.node_affinity import NodeAffinityFilter
from plimsoll.scheduler.plugin_args import ShapePoint
from plimsoll.scheduler.preemption import NoPreemption, Preemption, plan_preemption
from plimsoll.scheduler.profile import OPTIONAL_FILTERS, SchedulerProfile, Strategy
from plimsoll.scheduler.queue import SchedulingQueue
from plimsoll.scheduler.reasons import Rule, render
from plimsoll.scheduler.result import FitError, Placement
from plimsoll.scheduler.scores import score_nodes
from plimsoll.scheduler.scores.formulas import tabulate_shape
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from tests.build import node, pod
from tests.unit.scheduler.filters.agreement import check
from tests.unit.scheduler.samples import SEEDS, Draws
from tests.unit.scheduler.snapshots import pod_info_of, snapshot_of


def attempt(new: Pod, snapshot: Snapshot, **settings: Any) -> Placement | FitError:
    profile = SchedulerProfile.read(settings)
    return schedule_one(pod_info_of(new, snapshot), snapshot, profile, lambda: "")


def node_of(found: Placement | FitError) -> str:
    return found.node if isinstance(found, Placement) else "refused"


def reasons_of(found: Placement | FitError) -> list[str]:
    assert isinstance(found, FitError)
    return sorted(f"{count} {render(reason)}" for reason, count in found.reasons)


# -- disabled filters


@pytest.mark.parametrize(
    ("name", "here", "new"),
    [
        ("TaintToleration", node("n", taints=["k:NoSchedule"]), pod("p")),
        ("NodeUnschedulable", node("n", unschedulable=True), pod("p")),
        ("NodeAffinity", node("n"), pod("p", node_selector={"a": "b"})),
        ("NodeResourcesFit", node("n", cpu="1"), pod("p", cpu="2")),
    ],
)
def test_a_disabled_filter_rejects_nothing(name: str, here: Any, new: Pod) -> None:
    snapshot = snapshot_of(here)
    refused = attempt(new, snapshot)
    assert isinstance(refused, FitError)
    assert {rule.value for rule in refused.rules} == {name}
    assert node_of(attempt(new, snapshot, disabledFilters=[name])) == "n"


def test_only_plugins_that_are_safe_to_lose_can_be_disabled() -> None:
    assert {*OPTIONAL_FILTERS} == {rule.value for rule in Rule} - {
        "SchedulingGates",
        "GangScheduling",
        "DynamicResources",
        "MixedAdvertisers",
        "Unsupported",
        "DefaultPreemption",
    }


def test_preemption_does_not_look_at_disabled_filters() -> None:
    snapshot = snapshot_of(node("n", cpu="4"), pod("low", node="n", cpu="4", priority=1))
    new = pod("high", cpu="8", priority=5, node_selector={"a": "b"})
    settings = SchedulerProfile(disabled_filters=("NodeResourcesFit",))
    refused = schedule_one(pod_info_of(new, snapshot), snapshot, settings, lambda: "")
    assert isinstance(refused, FitError)
    assert refused.rules == {Rule.NODE_AFFINITY}
    assert isinstance(plan_preemption(refused, snapshot, settings), NoPreemption)


# -- preemption


def preempting(**settings: Any) -> Preemption | NoPreemption:
    snapshot = snapshot_of(node("n", cpu="4"), pod("low", node="n", cpu="4", priority=1))
    profile = SchedulerProfile.read(settings)
    new = pod(
        "high",
        cpu="4",
        priority=5,
        requests={"example.com/gpu": "1"} if settings.get("ignoredResources") else None,
    )
    refused = schedule_one(pod_info_of(new, snapshot), snapshot, profile, lambda: "")
    assert isinstance(refused, FitError)
    return plan_preemption(refused, snapshot, profile)


def test_preemption_can_be_disabled() -> None:
    assert isinstance(preempting(), Preemption)
    off = preempting(preemption=False)
    assert isinstance(off, NoPreemption)
    assert off.text == "preemption: disabled in the scheduler profile."


def test_preemption_ignores_what_the_filter_ignores() -> None:
    found = preempting(ignoredResources=["example.com/gpu"])
    assert isinstance(found, Preemption)
    assert [each.metadata.name for each in found.victims] == ["low"]


def test_the_number_of_preemption_candidates() -> None:
    nodes = [node(f"n{number}", cpu="1") for number in range(20)]
    # The last node would be the best choice: its victim has the lowest priority.
    low = [pod(f"p{number}", node=f"n{number}", cpu="1", priority=100 - number) for number in range(20)]
    snapshot = snapshot_of(*nodes, *low)
    chosen = {}
    for most in (1, 5, 20):
        profile = SchedulerProfile(min_candidate_nodes_percentage=0, min_candidate_nodes_absolute=most)
        refused = schedule_one(
            pod_info_of(pod("high", cpu="1", priority=1000), snapshot), snapshot, profile, lambda: ""
        )
        assert isinstance(refused, FitError)
        plan = plan_preemption(refused, snapshot, profile)
        assert isinstance(plan, Preemption)
        chosen[most] = plan.node
    assert chosen == {1: "n0", 5: "n4", 20: "n19"}


# -- ignored resources


@pytest.mark.parametrize(
    "settings", [{"ignoredResources": ["example.com/gpu"]}, {"ignoredResourceGroups": ["example.com"]}]
)
def test_ignored_extended_resources_are_not_checked(settings: dict[str, Any]) -> None:
    snapshot = snapshot_of(node("n"))
    new = pod("p", requests={"example.com/gpu": "1"})
    assert reasons_of(attempt(new, snapshot)) == ["1 Insufficient example.com/gpu"]
    assert node_of(attempt(new, snapshot, **settings)) == "n"


def test_standard_resources_are_never_ignored() -> None:
    found = attempt(pod("p", cpu="99"), snapshot_of(node("n")), ignoredResources=["cpu"])
    assert reasons_of(found) == ["1 Insufficient cpu"]


# -- added affinity

ADDED = {
    "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "pool", "operator": "In", "values": ["batch"]}]}]
    },
    "preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 10, "preference": {"matchExpressions": [{"key": "fast", "operator": "Exists"}]}}
    ],
}


def test_added_affinity_is_required_of_every_node() -> None:
    snapshot = snapshot_of(
        node("a"),
        node("b", labels={"pool": "batch", "disk": "y"}),
        node("c", labels={"pool": "batch", "fast": "1"}),
        node("d", labels={"disk": "x"}),
    )
    assert node_of(attempt(pod("p"), snapshot, addedAffinity=ADDED)) == "c"
    refused = attempt(pod("p", node_selector={"disk": "x"}), snapshot, addedAffinity=ADDED)
    assert reasons_of(refused) == [
        "2 node(s) didn't match Pod's node affinity/selector",
        "2 node(s) didn't match scheduler-enforced node affinity",
    ]


@given(seed=SEEDS)
def test_added_affinity_in_bulk_and_one_by_one(seed: int) -> None:
    draws = Draws(seed)
    snapshot, new = draws.snapshot(), draws.pod("p")
    rule = {"key": draws.one("zone", "disk"), "operator": draws.one("In", "NotIn"), "values": ["a"]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": required}
    profile = SchedulerProfile.read({"addedAffinity": affinity})
    check(NodeAffinityFilter, new, snapshot, profile)


def test_a_pod_rejected_by_added_affinity_is_woken_by_the_label() -> None:
    profile = SchedulerProfile.read({"schedulerName": "batch", "addedAffinity": ADDED})
    queue = SchedulingQueue(profiles={"batch": profile})
    new = pod("p", scheduler_name="batch")
    queue.add(new, 0)
    entry = queue.pop(0)
    assert entry is not None
    queue.mark_unschedulable(entry.key, frozenset({Rule.NODE_AFFINITY}), 0)
    other = classify_change(node("n"), node("n", labels={"pool": "web"}))
    helpful = classify_change(node("n"), node("n", labels={"pool": "batch"}))
    assert other is not None
    assert helpful is not None
    assert queue.on_event(other, 1) == 0
    assert queue.on_event(helpful, 2) == 1


# -- inter-pod affinity


def affinity_scores(new: Pod, **settings: Any) -> list[int]:
    near = {"labelSelector": {"matchLabels": {"app": "new"}}, "topologyKey": "host"}
    required = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [near]}}
    preferred = {
        "podAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 4, "podAffinityTerm": near}]
        }
    }
    snapshot = snapshot_of(
        *(node(name, labels={"host": name}) for name in "abc"),
        pod("first", node="a", affinity=required),
        pod("second", node="b", affinity=preferred),
    )
    profile = SchedulerProfile.read(
        {
            "weights": {name: 0 for name in SchedulerProfile.default().weights if name != "InterPodAffinity"},
            **settings,
        }
    )
    column = score_nodes(pod_info_of(new, snapshot), snapshot, profile, snapshot.alive)
    return [int(column[row]) // 2 for row in snapshot.rows()]


def test_the_weight_of_required_affinity_of_existing_pods() -> None:
    new = pod("new", labels={"app": "new"})
    assert affinity_scores(new) == [25, 100, 0]
    assert affinity_scores(new, hardPodAffinityWeight=0) == [0, 100, 0]
    assert affinity_scores(new, hardPodAffinityWeight=100) == [100, 4, 0]


def test_preferred_terms_of_existing_pods_can_be_ignored() -> None:
    new = pod("new", labels={"app": "new"})
    assert affinity_scores(new, ignorePreferredTermsOfExistingPods=True) == [0, 0, 0]


# -- RequestedToCapacityRatio


def naive_shape(shape: list[ShapePoint], used: int) -> int:
    """Evaluate a function as kube-scheduler does: linear between points, in Go's integers."""
    for index, point in enumerate(shape):
        if used <= point.utilization:
            if index == 0:
                return point.score * 10
            before = shape[index - 1]
            rise = (point.score - before.score) * 10 * (used - before.utilization)
            return before.score * 10 + int(rise / (point.utilization - before.utilization))
    return shape[-1].score * 10


@given(st.sets(st.integers(0, 100), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_shapes_are_linear_between_their_points(used: set[int], random: Random) -> None:
    shape = [ShapePoint(utilization=each, score=random.randint(0, 10)) for each in sorted(used)]
    assert list(tabulate_shape(shape)) == [naive_shape(shape, each) for each in range(101)]


def test_requested_to_capacity_ratio_packs_by_shape() -> None:
    snapshot = snapshot_of(
        node("a", cpu="10", extended={"example.com/gpu": "4"}),
        node("b", cpu="10", extended={"example.com/gpu": "8"}),
        pod("p", node="a", cpu="1", requests={"example.com/gpu": "2"}),
    )
    shape = (ShapePoint(utilization=0, score=0), ShapePoint(utilization=100, score=10))
    profile = SchedulerProfile(
        strategy=Strategy.REQUESTED_TO_CAPACITY_RATIO,
        shape=shape,
        resources={"example.com/gpu": 3, "cpu": 1},
        weights={name: 0 for name in SchedulerProfile.default().weights if name != "NodeResourcesFit"},
    )
    new = pod("new", cpu="1", requests={"example.com/gpu": "1"})
    column = score_nodes(pod_info_of(new, snapshot), snapshot, profile, snapshot.alive)
    # a: gpu 75, cpu 20; b: gpu 12, cpu 10
    assert [int(column[row]) for row in snapshot.rows()] == [
        round((75 * 3 + 20) / 4),
        round((12 * 3 + 10) / 4),
    ]


# -- percentage of nodes


@pytest.mark.parametrize(
    ("percentage", "nodes", "wanted"),
    [
        (100, 5000, 5000),
        (0, 99, 99),
        (0, 100, 100),
        (0, 1000, 420),
        (0, 5000, 500),
        (0, 6000, 300),
        (30, 500, 150),
        (1, 500, 100),
        (50, 50, 50),
    ],
)
def test_the_number_of_nodes_to_score(percentage: int, nodes: int, wanted: int) -> None:
    assert SchedulerProfile(percentage_of_nodes_to_score=percentage).nodes_to_score(nodes) == wanted


def test_only_a_share_of_the_nodes_is_scored_in_turns() -> None:
    sizes = {99: "2", 199: "3", 299: "4"}
    nodes = [node(f"n{number:03}", cpu=sizes.get(number, "1")) for number in range(300)]
    snapshot = snapshot_of(*nodes)
    few = SchedulerProfile(percentage_of_nodes_to_score=10, balanced=())
    all_nodes = SchedulerProfile(balanced=())
    new = pod("p", cpu="1", memory="1")
    best = schedule_one(pod_info_of(new, snapshot), snapshot, all_nodes, lambda: "")
    first = schedule_one(pod_info_of(new, snapshot), snapshot, few, lambda: "")
    assert isinstance(best, Placement)
    assert isinstance(first, Placement)
    assert (best.row, first.row) == (299, 99)
    assert first.feasible_nodes == 300
    snapshot.next_start_row = 100
    second = schedule_one(pod_info_of(new, snapshot), snapshot, few, lambda: "")
    assert isinstance(second, Placement)
    assert second.row == 199
    snapshot.next_start_row = 250
    last = schedule_one(pod_info_of(new, snapshot), snapshot, few, lambda: "")
    assert isinstance(last, Placement)
    assert last.row == 299


def test_nodes_outside_the_sample_are_tried_if_none_of_it_fits() -> None:
    snapshot = snapshot_of(*(node(f"n{number}") for number in range(10)))
    result = FilterResult(pod_info_of(pod("p"), snapshot), snapshot)
    seen: list[int] = []
    while (sample := result.sample(4)) is not None:
        rows = np.flatnonzero(sample).tolist()
        assert len(rows) <= 4
        assert not {*rows} & {*seen}
        seen += rows
        for row in rows:
            result.exclude(row, ())
    assert sorted(seen) == list(snapshot.rows())


# -- errors


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        (
            {"disabledFilters": ["DynamicResources"]},
            "disabledFilters[0]: 'DynamicResources' cannot be disabled",
        ),
        ({"strategy": "RequestedToCapacityRatio"}, "shape: at least one point must be specified"),
        ({"shape": [{"score": 1}]}, "shape: must be empty unless the strategy is RequestedToCapacityRatio"),
        ({"percentageOfNodesToScore": 101}, "percentageOfNodesToScore: must be a whole number from 0 to 100"),
        (
            {"ignoredResourceGroups": ["a/b"]},
            "ignoredResourceGroups[0]: 'a/b': resource group name can't contain '/'",
        ),
        ({"ignoredResources": ["-"]}, "ignoredResources[0]: '-'"),
        ({"addedAffinity": {"required": 1}}, "addedAffinity.required: unknown field"),
        (
            {"defaultConstraints": [{"topologyKey": "a", "whenUnsatisfiable": "ScheduleAnyway"}]},
            "defaultConstraints[0].maxSkew: not in valid range (0, inf), got 0",
        ),
        (
            {"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 0},
            "cannot be zero at the same time",
        ),
    ],
)
def test_invalid_settings_are_refused(tree: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        SchedulerProfile.read(tree)
    assert message in str(caught.value)
