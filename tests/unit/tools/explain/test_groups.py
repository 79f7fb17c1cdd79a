"""Groups have every node once, and agree with the rules on each node."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import HealthCheck, given, settings

from plimsoll.scheduler.cycle import build_filters
from plimsoll.scheduler.pod_claims import read_pod_info
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.reasons import NodeReason, render
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.colors import PLAIN
from plimsoll.tools.explain import (
    ExplainVerdict,
    explain_node,
    explain_pending,
    explain_pod,
    summarize_pending,
)
from plimsoll.tools.explain.attempt import record_attempt
from plimsoll.tools.explain.groups import group_nodes
from plimsoll.tools.explain.pod_view import PodView
from tests.build import node, pod
from tests.dumps import big_cluster
from tests.dumps import make_cluster_state as cluster_state_of_trees
from tests.sizes import examples
from tests.unit.tools.explain.symptoms import MAKERS, SUBJECT, make_cluster_state
from tests.unit.tools.fixes.clusters import clusters

QUICK = settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.too_slow])


def first_reasons(cluster_state: ClusterState) -> Counter[str] | None:
    """Return the first failing rule of each node; None if the pod fits, or if no node was evaluated."""
    snapshot, default = cluster_state.snapshot, SchedulerProfile.default()
    pod_info = read_pod_info(cluster_state.pod(SUBJECT), snapshot)
    assert not isinstance(pod_info, NodeReason)
    rules = build_filters(pod_info, snapshot, default, lambda: "share")
    assert not isinstance(rules, NodeReason)
    counts: Counter[str] = Counter()
    for row in snapshot.rows():
        reasons = next(filter(None, (rule.filter_node(row) for rule in rules)), ())
        if not reasons:
            return None
        counts[", ".join(map(render, reasons))] += 1
    return counts


@QUICK
@given(clusters())
def test_groups_agree_with_single_nodes(objects: list[Any]) -> None:
    expected = first_reasons(make_cluster_state(objects))
    cluster_state = make_cluster_state(objects)
    explanation = explain_pod(cluster_state, cluster_state.pod(SUBJECT))
    if expected is None:
        assert explanation.verdict is ExplainVerdict.FITS
        return
    found: Counter[str] = Counter()
    for group in explanation.groups:
        found[group.message] += group.count
    assert found == expected
    names = [name for group in explanation.groups for name in group.nodes]
    assert sorted(names) == sorted(each.metadata.name for each in cluster_state.nodes)


@QUICK
@given(clusters())
def test_one_node_agrees_with_all_nodes(objects: list[Any]) -> None:
    cluster_state = make_cluster_state(objects)
    waiting = cluster_state.pod(SUBJECT)
    fits = [explain_node(cluster_state, waiting, each.metadata.name).fits for each in cluster_state.nodes]
    assert any(fits) == (explain_pod(cluster_state, waiting).verdict is ExplainVerdict.FITS)


def test_too_many_states_are_reported() -> None:
    cluster_state = make_cluster_state([*MAKERS["none-left"](), *MAKERS["device-taint"]()[0:2]])
    pod_info = read_pod_info(cluster_state.pod(SUBJECT), cluster_state.snapshot)
    assert not isinstance(pod_info, NodeReason)
    view = PodView(cluster_state, pod_info)
    _, attempt = record_attempt(pod_info, cluster_state.snapshot, view.settings)
    (only,) = group_nodes(view, attempt, states=0)
    assert only.message == "cannot allocate all claims"
    assert "not evaluated in detail" in only.branches[0].text


def test_many_nodes_fit_one_screen() -> None:
    cluster_state = cluster_state_of_trees(big_cluster(120, pending=0))
    cluster_state.set(pod("p", cpu="1000"))
    lines = list(explain_pod(cluster_state, cluster_state.pod("p")).lines(PLAIN))
    assert len(lines) < 25
    unfolded = list(explain_pod(cluster_state, cluster_state.pod("p"), unfolded=True).lines(PLAIN))
    assert sum(line.count("node-") for line in unfolded) >= 120


# -- lists


@QUICK
@given(clusters())
def test_pending_pods_have_one_line_each(objects: list[Any]) -> None:
    twin = pod("q", cpu="3")
    cluster_state = make_cluster_state([*objects, twin])
    lines = {each.metadata.name: why for each, why in summarize_pending(cluster_state)}
    assert lines.keys() == {SUBJECT, "q"}
    for each in cluster_state.pending:
        explanation = explain_pod(make_cluster_state([*objects, twin]), each)
        if explanation.verdict is ExplainVerdict.FITS:
            assert lines[each.metadata.name].startswith(("fits now", "fits alone"))
        else:
            assert lines[each.metadata.name] in explanation.summary


def test_equal_pods_are_listed_together() -> None:
    objects = [
        node("n1", cpu="1"),
        *(pod(f"p{number}", cpu="2") for number in range(30)),
        pod("small", cpu="1"),
    ]
    report = explain_pending(make_cluster_state(objects))
    assert [len(group.pods) for group in report.groups] == [1, 30]
    assert report.count == 31
    text = "\n".join(report.lines(PLAIN))
    assert "and 20 more" in text
    assert "p9" in "\n".join(report.lines(PLAIN, wide=True))


def test_no_pending_pods() -> None:
    report = explain_pending(make_cluster_state([node("n1")]))
    assert list(report.lines(PLAIN)) == ["no pod is pending"]
    assert report.as_json() == {"count": 0, "fitTogether": 0, "groups": []}


def test_only_one_namespace() -> None:
    cluster_state = make_cluster_state([node("n1"), pod("a", namespace="one"), pod("b", namespace="two")])
    assert [each.metadata.name for each, _ in summarize_pending(cluster_state, namespace="two")] == ["b"]
