"""Victim selection: enough and no more, lowest priority first; the fast path agrees with the naive one."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from plimsoll.api.core import Pod
from plimsoll.api.policy import PodDisruptionBudget
from plimsoll.scheduler.preemption.budgets import DisruptionBudgets
from plimsoll.scheduler.preemption.candidates import find_shortages
from plimsoll.scheduler.preemption.node_filter import POD_DEPENDENT_RULES, NodeFilter
from plimsoll.scheduler.preemption.plan import plan_preemption
from plimsoll.scheduler.preemption.result import NoPreemption, Preemption
from plimsoll.scheduler.preemption.simulated_node import NodeSimulation
from plimsoll.scheduler.preemption.victims import (
    NO_VICTIMS,
    Victims,
    lower_priority_pods,
    select_victims,
    select_victims_quickly,
)
from plimsoll.scheduler.reasons import Rule, render
from plimsoll.scheduler.result import FitError, Placement
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.scheduler.snapshot.verify import verify
from tests.build import node, pod
from tests.sizes import examples
from tests.unit.scheduler.preemption.clusters import (
    CLUSTERS,
    SETTINGS,
    WISHES,
    Cluster,
    NodeSpec,
    Preemptor,
    RunningPod,
    attempt,
    budget,
    ids,
    names_of,
    objects,
    pod_info_of,
    snapshot_of,
)
from tests.unit.scheduler.snapshots import snapshot_of as made_of

BUDGETS = st.lists(
    st.builds(
        lambda app, allowed, disrupted: budget(f"b-{app}-{allowed}", allowed, disrupted, app=app),
        st.sampled_from(["a", "b"]),
        st.integers(0, 2),
        st.sets(st.sampled_from(["p0", "p1", "p2"])),
    ),
    max_size=2,
)


@given(CLUSTERS, WISHES, BUDGETS, st.integers(0, 5))
@settings(max_examples=examples(150), deadline=None)
def test_victims_are_sufficient_and_minimal(
    cluster: Cluster, preemptor: Preemptor, budgets: list[PodDisruptionBudget], offset: int
) -> None:
    """Checked against new snapshots without the victims."""
    snapshot = snapshot_of(cluster)
    pod_info = pod_info_of(preemptor, snapshot)
    fit_error = attempt(pod_info, snapshot)
    if isinstance(fit_error, Placement):
        return
    plan = plan_preemption(fit_error, snapshot, SETTINGS, budgets, ids(), offset=offset)
    assert not verify(snapshot)
    below = {
        f"p{number}" for number, each in enumerate(cluster.residents) if each.priority < preemptor.priority
    }
    if isinstance(plan, NoPreemption):
        for machine in range(len(cluster.machines)):
            gone = {each for each in below if _machine_of(each, cluster) == machine}
            assert isinstance(_attempt_without(cluster, preemptor, gone), FitError), (machine, gone)
        return
    victims = names_of(plan.victims)
    assert victims
    assert set(victims) <= below
    assert {each.spec.node_name for each in plan.victims} == {plan.node}
    found = _attempt_without(cluster, preemptor, victims)
    assert isinstance(found, Placement)
    assert found.node == plan.node
    for spared in victims:
        rest = [each for each in victims if each != spared]
        assert isinstance(_attempt_without(cluster, preemptor, rest), FitError), spared


def _machine_of(name: str, cluster: Cluster) -> int:
    return cluster.residents[int(name[1:])].machine % len(cluster.machines)


def _attempt_without(
    cluster: Cluster, preemptor: Preemptor, gone: set[str] | list[str]
) -> Placement | FitError:
    snapshot = snapshot_of(cluster, gone)
    return attempt(pod_info_of(preemptor, snapshot), snapshot)


@given(CLUSTERS, WISHES, BUDGETS)
@settings(max_examples=examples(150), deadline=None)
def test_the_fast_path_agrees(
    cluster: Cluster, preemptor: Preemptor, budgets: list[PodDisruptionBudget]
) -> None:
    snapshot = snapshot_of(cluster)
    pod_info = pod_info_of(preemptor, snapshot)
    node_filter = NodeFilter(pod_info, snapshot, SETTINGS)
    read = DisruptionBudgets(budgets)
    for row in snapshot.rows():
        plain = select_victims(node_filter, row, read)
        quick = select_victims_quickly(node_filter, row, read)
        if isinstance(plain, Victims):
            assert quick == plain
        else:
            assert not isinstance(quick, Victims)
            assert list(map(render, quick)) == list(map(render, plain))
        short = find_shortages(node_filter, row)
        if short and not node_filter.applies(Rule.PORTS) and plain != (NO_VICTIMS,):
            assert not isinstance(plain, Victims)
            assert list(map(render, short)) == list(map(render, plain))
    assert not verify(snapshot)


@given(CLUSTERS, WISHES, st.sets(st.integers(0, 7)), st.sets(st.integers(0, 7)))
@example(
    # The pod that uses an allocated claim is observed after the first attempt was cached.
    cluster=Cluster(
        (NodeSpec(cpu=1, pods=2, devices=(0, 0, 2)),), (RunningPod(0, 0, priority=-1, device=1),)
    ),
    preemptor=Preemptor(cpu=0, priority=0, devices=2),
    late={0},
    gone=set(),
)
@settings(max_examples=examples(150), deadline=None)
def test_cached_results_stay_valid(
    cluster: Cluster, preemptor: Preemptor, late: set[int], gone: set[int]
) -> None:
    """Pods change between two plans; the second equals that of a restarted scheduler."""
    snapshot = snapshot_of(cluster)
    pods = {each.metadata.name: each for each in objects(cluster) if isinstance(each, Pod)}
    for number in late:
        if f"p{number}" in pods:
            snapshot.remove(pods[f"p{number}"])
    pod_info = pod_info_of(preemptor, snapshot)
    first = attempt(pod_info, snapshot)
    if isinstance(first, FitError):
        plan_preemption(first, snapshot, SETTINGS)
    for name, each in pods.items():
        snapshot.set(each)
        if int(name[1:]) in gone:
            snapshot.remove(each)
    second = attempt(pod_info, snapshot)
    if isinstance(second, Placement):
        return
    fresh = Snapshot()
    for each in objects(cluster):
        if not isinstance(each, Pod) or int(each.metadata.name[1:]) not in gone:
            fresh.set(each)
    found = plan_preemption(second, snapshot, SETTINGS)
    again = attempt(pod_info_of(preemptor, fresh), fresh)
    assert isinstance(again, FitError)
    wanted = plan_preemption(again, fresh, SETTINGS)
    assert isinstance(found, Preemption) == isinstance(wanted, Preemption)
    if isinstance(found, Preemption) and isinstance(wanted, Preemption):
        assert found.node == wanted.node
        assert [each.spec.priority for each in found.victims] == [p.spec.priority for p in wanted.victims]


@given(CLUSTERS, WISHES)
@settings(max_examples=examples(100), deadline=None)
def test_other_filters_do_not_depend_on_pods(cluster: Cluster, preemptor: Preemptor) -> None:
    """Results computed once stay valid when the pods of a node change."""
    snapshot = snapshot_of(cluster)
    pod_info = pod_info_of(preemptor, snapshot)
    node_filter = NodeFilter(pod_info, snapshot, SETTINGS)
    standing = [rule for rule in node_filter.rules if not isinstance(rule, type)]
    assert not {rule.rule for rule in standing} & POD_DEPENDENT_RULES
    for row in snapshot.rows():
        before = [rule.filter_node(row) for rule in standing]
        with NodeSimulation(snapshot, row) as simulation:
            simulation.remove_pods(lower_priority_pods(node_filter, row))
            again = [type(rule).pre_filter(pod_info, snapshot) for rule in standing]
            after = [() if rule is None else rule.filter_node(row) for rule in again]  # type: ignore[union-attr]
        assert after == before


def test_reprieve_order_of_kube_scheduler() -> None:
    """One CPU too few: pods that violate a budget are reprieved first, then by priority."""
    snapshot = made_of(
        node("a", cpu="4"),
        pod("covered", cpu="2", node="a", priority=1, labels={"app": "x"}),
        pod("plain", cpu="2", node="a", priority=2),
    )
    pod_info = pod_info_of(Preemptor(cpu=2, priority=5), snapshot)
    node_filter = NodeFilter(pod_info, snapshot, SETTINGS)
    for way in (select_victims, select_victims_quickly):
        kept = way(node_filter, 0, DisruptionBudgets([budget(app="x")]))
        assert isinstance(kept, Victims)
        assert names_of(kept.pods) == ["plain"]
        assert kept.pdb_violations == 0
        unkept = way(node_filter, 0, DisruptionBudgets([]))
        assert isinstance(unkept, Victims)
        assert names_of(unkept.pods) == ["covered"]


def test_budgets_are_violated_only_if_necessary() -> None:
    snapshot = made_of(
        node("a", cpu="4"),
        pod("covered", cpu="2", node="a", labels={"app": "x"}),
        pod("plain", cpu="2", node="a"),
    )
    fit_error = attempt(pod_info_of(Preemptor(cpu=4, priority=5), snapshot), snapshot)
    assert isinstance(fit_error, FitError)
    plan = plan_preemption(fit_error, snapshot, SETTINGS, [budget(app="x")])
    assert isinstance(plan, Preemption)
    assert sorted(names_of(plan.victims)) == ["covered", "plain"]
    assert plan.pdb_violations == 1
