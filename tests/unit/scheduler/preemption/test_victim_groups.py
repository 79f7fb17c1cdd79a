"""Preemption by a single pod of groups whose pods are preempted together."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import structs

from plimsoll.api.core import Pod
from plimsoll.api.gates import Gates
from plimsoll.api.policy import PodDisruptionBudget
from plimsoll.scheduler.cycle import schedule_pod
from plimsoll.scheduler.preemption import NoPreemption, Preemption, plan_preemption
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.result import FitError, Placement
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.scheduler.snapshot.verify import verify
from tests.build import (
    claim,
    device,
    device_class,
    exactly,
    member,
    node,
    pod,
    pod_group,
    resource_slice,
    result,
)
from tests.sizes import examples
from tests.unit.scheduler.preemption.clusters import budget
from tests.unit.scheduler.snapshots import snapshot_of

SETTINGS = SchedulerProfile.default()
WHOLE: dict[str, Any] = {"disruption_mode": "PodGroup"}


def plan(
    preemptor: Pod, snapshot: Snapshot, budgets: Sequence[PodDisruptionBudget] = ()
) -> Preemption | NoPreemption:
    ids = (f"share-{i}" for i in itertools.count())
    tried = schedule_pod(preemptor, snapshot, SETTINGS, lambda: next(ids))
    assert isinstance(tried, FitError), tried
    before = snapshot.pod_keys()
    found = plan_preemption(tried, snapshot, SETTINGS, budgets, lambda: next(ids))
    assert snapshot.pod_keys() == before
    assert verify(snapshot) == []
    return found


def victims(found: Preemption | NoPreemption) -> list[str]:
    assert isinstance(found, Preemption), found
    return sorted(each.metadata.name for each in found.victims)


def important(cpu: str = "1", **fields: Any) -> Pod:
    return pod("important", cpu=cpu, priority=10, **fields)


def test_a_pod_preempts_a_group_as_a_whole() -> None:
    group = pod_group("other", 2, priority=1, **WHOLE)
    running = [member(f"m{where}", "other", cpu="1", node=where) for where in "ab"]
    snapshot = snapshot_of(node("a", cpu="1"), node("b", cpu="1"), group, *running)
    found = plan(important(), snapshot)
    assert victims(found) == ["ma", "mb"]
    assert isinstance(found, Preemption)
    assert [each.metadata.name for each in found.groups] == ["other"]


@pytest.mark.parametrize("mode", ["Pod", None])
def test_pods_of_other_groups_are_preempted_one_by_one(mode: str | None) -> None:
    group = pod_group("other", 2, priority=1, disruption_mode=mode)
    running = [member(f"m{where}", "other", cpu="1", node=where) for where in "ab"]
    snapshot = snapshot_of(node("a", cpu="1"), node("b", cpu="1"), group, *running)
    found = plan(important(), snapshot)
    assert len(victims(found)) == 1
    assert isinstance(found, Preemption)
    assert found.groups == ()


def test_without_the_gate_the_disruption_mode_is_ignored() -> None:
    group = pod_group("other", 2, priority=1, **WHOLE)
    running = [member(f"m{where}", "other", cpu="1", node=where) for where in "ab"]
    objects = [node("a", cpu="1"), node("b", cpu="1"), group, *running]
    snapshot = snapshot_of(*objects, gates=Gates.of({"WorkloadAwarePreemption": False}))
    assert len(victims(plan(important(), snapshot))) == 1


@pytest.mark.parametrize(("own", "of_group", "is_victim"), [(5, 10, False), (10, 5, True), (20, 5, True)])
def test_the_priority_of_the_group_counts(own: int, of_group: int, is_victim: bool) -> None:
    group = pod_group("other", 1, priority=of_group, **WHOLE)
    running = member("m", "other", cpu="1", node="a", priority=own)
    found = plan(important(), snapshot_of(node("a", cpu="1"), group, running))
    assert isinstance(found, Preemption) == is_victim


def test_a_single_victim_is_preferred_to_a_group() -> None:
    group = pod_group("other", 2, **WHOLE)
    running = [member(f"m{where}", "other", cpu="1", node=where) for where in "ab"]
    alone = pod("alone", cpu="1", node="c")
    snapshot = snapshot_of(*(node(name, cpu="1") for name in "abc"), group, *running, alone)
    assert victims(plan(important(), snapshot)) == ["alone"]


def test_pods_of_a_node_are_spared_before_its_groups_if_they_are_more_important() -> None:
    group = pod_group("other", 2, priority=1, **WHOLE)
    running = [member("ma", "other", cpu="1", node="a"), member("mb", "other", cpu="1", node="b")]
    better = pod("better", cpu="1", node="a", priority=2)
    full = pod("full", cpu="7", node="b", priority=20)
    snapshot = snapshot_of(node("a", cpu="2"), node("b", cpu="8"), group, *running, better, full)
    found = plan(important(), snapshot)
    assert victims(found) == ["ma", "mb"]


def test_violations_of_budgets_are_counted_on_all_nodes() -> None:
    group = pod_group("other", 2, **WHOLE)
    labels = {"app": "x"}
    running = [member(f"m{where}", "other", cpu="1", node=where, labels=labels) for where in "ab"]
    snapshot = snapshot_of(node("a", cpu="1"), node("b", cpu="1"), group, *running)
    found = plan(important(), snapshot, [budget(app="x")])
    assert isinstance(found, Preemption)
    assert found.pdb_violations == 2


def test_a_claim_shared_across_nodes_is_free_once_the_group_is_gone() -> None:
    group = pod_group("other", 2, **WHOLE)
    shared = claim("shared", exactly(), results=[result("gpu-0", pool="pool")], reserved=["ma", "mb"])
    running = [member(f"m{where}", "other", node=where, claims=["shared"]) for where in "ab"]
    devices = resource_slice([device("gpu-0")], pool="pool", allNodes=True)
    snapshot = snapshot_of(
        node("a"), node("b"), device_class(), devices, group, shared, claim("own", exactly()), *running
    )
    found = plan(important(claims=["own"]), snapshot)
    assert victims(found) == ["ma", "mb"]


# -- random clusters

RUNNING = st.lists(
    st.tuples(
        st.integers(0, 2),  # node
        st.integers(1, 2),  # CPUs
        st.integers(0, 12),  # priority
        st.sampled_from(["", "x", "y", "z"]),  # group
    ),
    max_size=6,
)
GROUPS = st.fixed_dictionaries(
    {name: st.tuples(st.sampled_from(["Pod", "PodGroup"]), st.integers(0, 12)) for name in "xyz"}
)


def cluster(
    running: Sequence[tuple[int, int, int, str]], groups: Any, gone: Collection[str] = ()
) -> Snapshot:
    names = [f"n{number}" for number in range(3)]
    made: list[Any] = [node(name, cpu="3", labels={"kubernetes.io/hostname": name}) for name in names]
    made += [
        pod_group(name, disruption_mode=mode, priority=priority) for name, (mode, priority) in groups.items()
    ]
    used = [0, 0, 0]
    for number, (where, cpu, priority, group) in enumerate(running):
        if used[where] + cpu > 3:
            continue
        used[where] += cpu
        fields: dict[str, Any] = {"cpu": str(cpu), "priority": priority, "node": f"n{where}"}
        name = f"p{number}"
        if name not in gone:
            made.append(member(name, group, **fields) if group else pod(name, **fields))
    return snapshot_of(*made)


def fits(snapshot: Snapshot, preemptor: Pod) -> bool:
    return isinstance(schedule_pod(preemptor, snapshot, SETTINGS, str), Placement)


def fits_on(name: str, snapshot: Snapshot, preemptor: Pod) -> bool:
    """Report whether the pod fits on one of the nodes."""
    spec = structs.replace(preemptor.spec, node_selector={"kubernetes.io/hostname": name})
    return fits(snapshot, structs.replace(preemptor, spec=spec))


@given(RUNNING, GROUPS, st.integers(1, 3))
@settings(max_examples=examples(300), deadline=None)
@example(
    [(0, 1, 0, "z"), (0, 1, 1, ""), (1, 1, 0, ""), (1, 1, 0, ""), (1, 1, 0, ""), (2, 2, 0, "z")],
    {"x": ("Pod", 0), "y": ("Pod", 0), "z": ("PodGroup", 0)},
    2,
)
def test_units_are_evicted_whole_and_only_if_necessary(
    running: list[tuple[int, int, int, str]], groups: dict[str, tuple[str, int]], cpu: int
) -> None:
    preemptor, snapshot = important(str(cpu)), cluster(running, groups)
    if fits(snapshot, preemptor):
        return

    def unit(each: Pod) -> str:
        group = each.spec.scheduling_group.pod_group_name if each.spec.scheduling_group else ""
        return group if group and groups[group][0] == "PodGroup" else each.metadata.name

    pods = [snapshot.find_pod(key)[1] for key in snapshot.pod_keys()]  # type: ignore[index]
    units: dict[str, list[Pod]] = {}
    for each in pods:
        units.setdefault(unit(each), []).append(each)
    lower = {
        name
        for name, members in units.items()
        if (groups[name][1] if name in groups else members[0].priority) < preemptor.priority
    }
    found = plan(preemptor, snapshot)
    if isinstance(found, NoPreemption):
        gone = {each.metadata.name for name in lower for each in units[name]}
        assert not fits(cluster(running, groups, gone), preemptor)
        return
    names = {unit(each) for each in found.victims}
    assert names <= lower
    assert sorted(victims(found)) == sorted(each.metadata.name for name in names for each in units[name])
    assert {each.metadata.name for each in found.groups} == names & groups.keys()
    for spared in ["", *names]:
        gone = {each.metadata.name for name in names if name != spared for each in units[name]}
        left = cluster(running, groups, gone)
        # A group may free other nodes as well, so the node itself is checked.
        assert fits_on(found.node, left, preemptor) == (not spared)
