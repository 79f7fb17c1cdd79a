"""Node names, cordoned nodes, taints, selectors and affinity: reasons for each node."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.api.core import Pod
from plimsoll.ledger.verdict import VerdictCode
from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.filters.node_affinity import NodeAffinityFilter, NodeAffinityIndex
from plimsoll.scheduler.filters.node_name import NodeNameFilter
from plimsoll.scheduler.filters.node_unschedulable import NodeUnschedulableFilter
from plimsoll.scheduler.filters.static import SignatureIndex
from plimsoll.scheduler.filters.taint_toleration import NoScheduleTaints, TaintTolerationFilter
from plimsoll.scheduler.reasons import render
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from tests.build import node, pod
from tests.unit.scheduler.snapshots import pod_info_of, snapshot_of


def passing(kind: type[Filter], wanting: Pod, snapshot: Snapshot) -> list[str]:
    """Return the names of the nodes that pass, and check the reasons of the others."""
    rule = kind.pre_filter(pod_info_of(wanting, snapshot), snapshot)
    if rule is None:
        return [snapshot.node(row).metadata.name for row in snapshot.rows()]
    assert isinstance(rule, Filter)
    passed = rule.filter()
    for row in snapshot.rows():
        for reason in rule.filter_node(row):
            assert (reason.rule, reason.code) == (kind.rule, VerdictCode.UNRESOLVABLE)
    return [snapshot.node(row).metadata.name for row in snapshot.rows() if passed[row]]


def text(kind: type[Filter], wanting: Pod, snapshot: Snapshot, name: str) -> str:
    rule = kind.pre_filter(pod_info_of(wanting, snapshot), snapshot)
    assert isinstance(rule, Filter)
    row = snapshot.row_of(name)
    assert row is not None
    (reason,) = rule.filter_node(row)
    return render(reason)


# -- node names


def test_node_name() -> None:
    snapshot = snapshot_of(node("a"), node("b"))
    assert passing(NodeNameFilter, pod("p"), snapshot) == ["a", "b"]
    assert passing(NodeNameFilter, pod("p", node="b"), snapshot) == ["b"]
    assert passing(NodeNameFilter, pod("p", node="elsewhere"), snapshot) == []
    message = text(NodeNameFilter, pod("p", node="b"), snapshot, "a")
    assert message == "node(s) didn't match the requested node name"


# -- closed nodes


def test_unschedulable_nodes() -> None:
    snapshot = snapshot_of(node("open"), node("closed", unschedulable=True))
    assert passing(NodeUnschedulableFilter, pod("p"), snapshot) == ["open"]
    assert text(NodeUnschedulableFilter, pod("p"), snapshot, "closed") == "node(s) were unschedulable"
    tolerant = pod("p", tolerations=[{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}])
    assert passing(NodeUnschedulableFilter, tolerant, snapshot) == ["open", "closed"]
    snapshot.set(node("closed"))
    assert passing(NodeUnschedulableFilter, pod("p"), snapshot) == ["open", "closed"]
    assert NodeUnschedulableFilter.pre_filter(pod_info_of(pod("p"), snapshot), snapshot) is None


def test_removing_a_cordoned_node_resets_its_row() -> None:
    snapshot = snapshot_of(node("closed", unschedulable=True))
    assert passing(NodeUnschedulableFilter, pod("p"), snapshot) == []
    snapshot.remove(node("closed"))
    snapshot.set(node("other"))
    assert passing(NodeUnschedulableFilter, pod("p"), snapshot) == ["other"]


# -- taints


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({}, False),
        ({"operator": "Exists"}, True),
        ({"key": "gpu", "operator": "Exists"}, True),
        ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": "gpu", "value": "yes"}, True),
        ({"key": "gpu", "operator": "Equal", "value": "yes"}, True),
        ({"key": "gpu", "operator": "Equal", "value": "no"}, False),
        ({"key": "cpu", "operator": "Exists"}, False),
        ({"value": "yes"}, True),
        ({"key": "gpu", "operator": "Gt", "value": "1"}, False),
        ({"key": "gpu", "operator": "Near"}, False),
    ],
)
def test_tolerations(toleration: dict[str, str], tolerated: bool) -> None:
    snapshot = snapshot_of(node("plain"), node("tainted", taints=["gpu=yes:NoSchedule"]))
    wanting = pod("p", tolerations=[toleration])
    assert passing(TaintTolerationFilter, wanting, snapshot) == ["plain", *(["tainted"] if tolerated else [])]


def test_every_hard_taint_must_be_tolerated_and_no_soft_one() -> None:
    taints = ["a:NoSchedule", "b:NoExecute", "c:PreferNoSchedule"]
    snapshot = snapshot_of(node("n", taints=taints))
    one = [{"key": "a", "operator": "Exists"}]
    both = [*one, {"key": "b", "operator": "Exists"}]
    assert passing(TaintTolerationFilter, pod("p", tolerations=one), snapshot) == []
    assert passing(TaintTolerationFilter, pod("p", tolerations=both), snapshot) == ["n"]
    assert text(TaintTolerationFilter, pod("p"), snapshot, "n") == "node(s) had untolerated taint(s)"


def test_prefer_no_schedule_taints_skip_the_filter() -> None:
    snapshot = snapshot_of(node("n", taints=["c:PreferNoSchedule"]))
    assert TaintTolerationFilter.pre_filter(pod_info_of(pod("p"), snapshot), snapshot) is None


# -- selectors and affinity


def affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"nodeSelectorTerms": list(terms)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def labels(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def names(operator: str, *values: str) -> dict[str, Any]:
    return {"matchFields": [{"key": "metadata.name", "operator": operator, "values": list(values)}]}


@pytest.fixture
def zones() -> Snapshot:
    return snapshot_of(
        node("a1", labels={"zone": "a", "size": "4"}),
        node("a2", labels={"zone": "a", "size": "16"}),
        node("b1", labels={"zone": "b", "size": "16"}),
        node("none"),
    )


@pytest.mark.parametrize(
    ("spec", "passes"),
    [
        ({"node_selector": {"zone": "a"}}, ["a1", "a2"]),
        ({"node_selector": {"zone": "a", "size": "16"}}, ["a2"]),
        ({"node_selector": {"zone": "c"}}, []),
        ({"affinity": affinity(labels("zone", "In", "b", "c"))}, ["b1"]),
        ({"affinity": affinity(labels("zone", "NotIn", "a"))}, ["b1", "none"]),
        ({"affinity": affinity(labels("zone", "Exists"))}, ["a1", "a2", "b1"]),
        ({"affinity": affinity(labels("size", "Gt", "4"))}, ["a2", "b1"]),
        ({"affinity": affinity(labels("zone", "In", "b"), labels("size", "Lt", "5"))}, ["a1", "b1"]),
        ({"affinity": affinity(labels("zone", "Exists")), "node_selector": {"size": "16"}}, ["a2", "b1"]),
        ({"affinity": affinity({**labels("zone", "In", "a"), **names("NotIn", "a1")})}, ["a2"]),
        ({"affinity": affinity({})}, []),
        ({"affinity": affinity()}, []),
        # a term that cannot be read matches nothing, and does not spoil the others
        ({"affinity": affinity(labels("zone", "Near", "a"))}, []),
        ({"affinity": affinity(labels("zone", "Near", "a"), labels("zone", "In", "b"))}, ["b1"]),
    ],
)
def test_selectors_and_affinity(zones: Snapshot, spec: dict[str, Any], passes: list[str]) -> None:
    assert passing(NodeAffinityFilter, pod("p", **spec), zones) == passes
    if not passes:
        message = text(NodeAffinityFilter, pod("p", **spec), zones, "a1")
        assert message == "node(s) didn't match Pod's node affinity/selector"


def test_pods_without_selector_skip_the_filter(zones: Snapshot) -> None:
    prefers = [{"weight": 1, "preference": labels("zone", "In", "a")}]
    soft = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": prefers}}
    for wanting in (pod("p"), pod("p", affinity={}), pod("p", affinity=soft)):
        assert NodeAffinityFilter.pre_filter(pod_info_of(wanting, zones), zones) is None


# -- incremental updates


def count_answers(monkeypatch: pytest.MonkeyPatch, kind: type[SignatureIndex[Any, Any]]) -> list[str]:
    asked: list[str] = []
    answer = kind.evaluate

    def counting(self: Any, signature: Any, node: Any) -> Any:
        asked.append(node.metadata.name)
        return answer(self, signature, node)

    monkeypatch.setattr(kind, "evaluate", counting)
    return asked


def test_only_changed_nodes_are_filtered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = count_answers(monkeypatch, NodeAffinityIndex)
    snapshot = snapshot_of(*(node(f"n{number}", labels={"zone": "a"}) for number in range(20)))
    wanting = pod("p", affinity=affinity(labels("zone", "Exists")))
    assert len(passing(NodeAffinityFilter, wanting, snapshot)) == len(asked) == 20
    asked.clear()
    assert len(passing(NodeAffinityFilter, wanting, snapshot)) == 20
    snapshot.set(node("n3", cpu="4", labels={"zone": "a"}))  # what changed does not matter here
    assert len(passing(NodeAffinityFilter, wanting, snapshot)) == 20
    assert asked == []
    snapshot.set(node("n3", labels={}))
    assert len(passing(NodeAffinityFilter, wanting, snapshot)) == 19
    assert asked == ["n3"]


def test_a_host_name_is_looked_up_by_index(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = count_answers(monkeypatch, NodeAffinityIndex)
    snapshot = snapshot_of(*(node(f"n{number}", labels={"host": f"h{number}"}) for number in range(20)))
    assert passing(NodeAffinityFilter, pod("p", node_selector={"host": "h7"}), snapshot) == ["n7"]
    assert passing(NodeAffinityFilter, pod("p", affinity=affinity(labels("host", "In", "h8"))), snapshot) == [
        "n8"
    ]
    assert passing(NodeAffinityFilter, pod("p", affinity=affinity(names("In", "n9"))), snapshot) == ["n9"]
    assert asked == ["n7", "n8", "n9"]


def test_nodes_without_taints_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = count_answers(monkeypatch, NoScheduleTaints)
    snapshot = snapshot_of(node("a"), node("b", taints=["x:NoSchedule"]), node("c"))
    assert passing(TaintTolerationFilter, pod("p"), snapshot) == ["a", "c"]
    assert asked == ["b"]


def test_more_changes_than_the_change_log_keeps(zones: Snapshot) -> None:
    wanting = pod("p", node_selector={"zone": "a"})
    assert passing(NodeAffinityFilter, wanting, zones) == ["a1", "a2"]
    for number in range(10_000):
        zones.set(node("none", labels={"zone": "ab"[number % 2]}))
    zones.set(node("none", labels={"zone": "a"}))
    assert passing(NodeAffinityFilter, wanting, zones) == ["a1", "a2", "none"]
