"""Verdict of a what-if: about the pods that were asked about; everything else is a side effect."""

from __future__ import annotations

from typing import Any

from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.cluster_state.objects import ClusterObjects
from plimsoll.tools.colors import PLAIN
from plimsoll.tools.whatif import WhatifPlan, WhatifReport, run_whatif
from tests.build import container, node
from tests.build import pod as make_pod
from tests.unit.tools.whatif.workloads import owned


def pod(name: str, cpu: str, on: str = "", **spec: Any) -> Any:
    return make_pod(name, container("a", cpu=cpu), node=on, metadata=owned(), **spec)


def report_on(*objects: Any, **plan: Any) -> WhatifReport:
    return run_whatif(ClusterState(ClusterObjects(objects)), WhatifPlan(**plan))


def lines(report: WhatifReport) -> list[str]:
    return list(report.lines(PLAIN))


def verdict(report: WhatifReport) -> dict[str, Any]:
    return {
        name: value for name, value in report.as_json()["verdict"].items() if value or name == "allScheduled"
    }


def side_effects(report: WhatifReport) -> dict[str, list[str]]:
    return {name: pods for name, pods in report.as_json()["sideEffects"].items() if pods}


def added(name: str, cpu: str, priority: int = 0) -> dict[str, Any]:
    requests = {"requests": {"cpu": cpu}}
    spec = {"containers": [{"name": "a", "image": "i", "resources": requests}], "priority": priority}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def test_a_pod_that_was_pending_before_does_not_spoil_the_answer() -> None:
    report = report_on(node("n", cpu="2"), pod("huge", "50"), add=(added("new", "1"),))
    assert lines(report)[0] == "the added pod is scheduled"
    assert report.all_placed
    assert verdict(report) == {
        "about": "added",
        "text": "the added pod is scheduled",
        "allScheduled": True,
        "scheduled": ["default/new"],
    }
    assert side_effects(report) == {"stillPending": ["default/huge"]}
    text = "\n".join(lines(report))
    assert "PENDING\n" not in text
    assert "1 other pod is pending with and without the change" in text
    text = "\n".join(report.lines(PLAIN, wide=True))
    assert "SIDE EFFECTS\n  1 pod pending before and after:\n    default/huge\n      0/1 nodes are" in text


def test_an_added_pod_that_preempts_another() -> None:
    report = report_on(node("n", cpu="2"), pod("low", "2", "n", priority=-1), add=(added("new", "2", 5),))
    assert lines(report)[0] == "the added pod is scheduled"
    assert report.all_placed
    assert side_effects(report) == {"preempted": ["default/low"]}
    assert "  1 pod preempted: default/low" in lines(report)


def test_an_added_pod_that_takes_the_place_of_a_pending_one() -> None:
    report = report_on(node("n", cpu="2"), pod("waiting", "2"), add=(added("new", "2", 5),), preempt=False)
    assert lines(report)[0] == "the added pod is scheduled"
    assert side_effects(report) == {"newlyPending": ["default/waiting"]}


def test_an_added_pod_that_does_not_fit() -> None:
    report = report_on(node("n", cpu="2"), pod("waiting", "2"), add=(added("new", "3"),))
    assert lines(report)[0] == "the added pod is pending"
    assert not report.all_placed
    assert side_effects(report) == {}


def test_a_drain_is_about_the_evicted_pods() -> None:
    report = report_on(
        node("n1", cpu="2"), node("n2", cpu="2"), pod("web", "1", "n1"), pod("huge", "9"), drain=("n1",)
    )
    assert lines(report)[0] == "the evicted pod is scheduled"
    assert report.all_placed
    assert side_effects(report) == {"stillPending": ["default/huge"]}


def test_a_drain_of_an_empty_node() -> None:
    report = report_on(node("n1", cpu="2"), node("n2", cpu="2"), pod("huge", "9"), drain=("n1",))
    assert lines(report)[0] == "no pods evicted"
    assert report.all_placed


def test_added_and_evicted_pods() -> None:
    report = report_on(
        node("n1", cpu="2"),
        node("n2", cpu="2"),
        pod("web", "1", "n1"),
        drain=("n1",),
        add=(added("new", "2"),),
    )
    assert lines(report)[0] == "1 of 2 added and evicted pods scheduled, 1 pending"
    assert not report.all_placed


def test_pods_that_are_deleted_are_not_scheduled() -> None:
    bare = make_pod("bare", container("a", cpu="1"), node="n")
    report = report_on(node("n", cpu="2"), bare, taints=(("n", "broken=yes:NoExecute"),))
    assert lines(report)[0] == "the evicted pod is deleted"
    assert not report.all_placed


def test_without_added_or_evicted_pods_the_pending_ones_are_meant() -> None:
    objects = (node("n", cpu="2"), pod("one", "2"), pod("two", "2"))
    assert lines(report_on(*objects))[0] == "1 of 2 pods scheduled, 1 pending"
    assert not report_on(*objects).all_placed
    more = report_on(*objects, add_nodes=1)
    assert lines(more)[0] == "all 2 pods are scheduled; 1 scheduled without the change"
    assert more.all_placed


def test_pods_that_are_preempted_anyway_are_no_side_effect() -> None:
    report = report_on(
        node("n", cpu="2"), pod("low", "2", "n", priority=-1), pod("high", "2", priority=5),
        add=(added("new", "1"),),
    )  # fmt: skip
    assert lines(report)[0] == "the added pod is pending"
    assert side_effects(report) == {"stillPending": ["default/low"]}
