"""Pods of kube-scheduler and of other schedulers: nothing is promised that these would not do."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from plimsoll.api.core import NodeSystemInfo, Pod
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.tools.cluster_state import Source, read_cluster_state
from plimsoll.tools.colors import PLAIN
from plimsoll.tools.explain import explain_pod
from plimsoll.tools.pod_schedulers import SCHEDULER_MODELS, recorded_message, schedulers_of
from plimsoll.tools.whatif import WhatifPlan, run_whatif
from tests.build import claim, device, device_class, exactly, node, pod, resource_slice, result
from tests.cases.cases import case_state
from tests.dumps import USECASES, usecase_dump
from tests.unit.tools.explain.symptoms import make_cluster_state

CASE = "small/kube-preemption.json"


def evicted(state: Any, *models: str) -> set[str]:
    report = run_whatif(state, WhatifPlan(versus=models))
    return {each.pod[1] for each in report.evicted}


def test_the_recorded_pod_of_kube_scheduler() -> None:
    state = case_state(CASE)
    found = explain_pod(state, state.pod("hi"))
    text = "\n".join(found.lines(PLAIN))
    assert "evict default" not in text
    assert "Preemption is not helpful for scheduling." in " ".join(found.notes)
    report = run_whatif(state, WhatifPlan())
    assert not report.evicted
    assert not report.all_placed
    assert "Preemption is not helpful for scheduling." in " ".join(report.lines(PLAIN, wide=True))
    assert report.as_json()["recorded"] == {"default/hi": recorded_message(state.pod("hi"))}


def test_the_models_of_as() -> None:
    state = case_state(CASE)
    report = run_whatif(state, WhatifPlan(versus=("plimsoll", "kube", "kube-1.36", "kube-1.36-default")))
    nodes = {each.name: each.state[("default", "hi")].node for each in report.predictions}
    assert nodes == {"plimsoll": "n1", "kube": "", "kube-1.36": "", "kube-1.36-default": ""}
    for name, evicts in (("plimsoll", True), ("kube", False), ("kube-1.36-default", False)):
        model = SCHEDULER_MODELS[name]
        other = model.cluster_state(state)
        found = explain_pod(other, other.pod("hi"), settings=model.settings())
        assert found.preemption.startswith("would evict") is evicts


def full_node(scheduler: str, *, devices: bool) -> Any:
    """Return a full node with a pod of low priority, and a pending pod of high priority."""
    held = claim("held", exactly(), results=[result("g", pool="n")], node="n", reserved=["low"])
    names = ("held", "wanted") if devices else ()
    return make_cluster_state(
        [
            *(node("n", cpu="4"), device_class(), resource_slice([device("g")], "n")),
            *(held, claim("wanted", exactly())),
            pod("low", cpu="1" if devices else "4", node="n", claims=names[:1], schedulerName=scheduler),
            pod("high", cpu="1", claims=names[1:], priority=5, schedulerName=scheduler),
        ]
    )


@pytest.mark.parametrize(
    ("scheduler", "devices", "evicts"),
    [
        ("default-scheduler", True, False),
        ("default-scheduler", False, True),
        ("plimsoll", True, True),
        ("plimsoll", False, True),
        ("volcano", True, False),
        ("volcano", False, False),
    ],
)
def test_evictions_by_scheduler(scheduler: str, devices: bool, evicts: bool) -> None:
    state = full_node(scheduler, devices=devices)
    found = explain_pod(state, state.pod("high"))
    assert found.preemption.startswith("would evict") is evicts
    assert (scheduler in " ".join(found.notes)) is (scheduler == "volcano")
    assert any("low" in fix.text for fix in found.fixes), "removing the pod by hand helps"
    assert evicted(state) == ({"low"} if evicts else set())


@pytest.mark.parametrize("evidence", ["node", "container", "annotation"])
def test_evidence_that_plimsoll_runs_as_default_scheduler(evidence: str) -> None:
    state = full_node("default-scheduler", devices=True)
    if evidence == "node":
        own = state.nodes[0]
        info = NodeSystemInfo(kubelet_version="v1.36.0+plimsoll.0.1.0")
        state.set(replace(own, status=replace(own.status, node_info=info)))
    elif evidence == "container":
        args = ["scheduler", "--scheduler-name=default-scheduler"]
        state.set(pod("s", {"name": "scheduler", "args": args}, node="n"))
    else:
        low = state.pod("low")
        state.set(
            replace(low, metadata=replace(low.metadata, annotations={"plimsoll.dev/claim-charges": "[]"}))
        )
    assert evicted(state) == {"low"}


def test_pods_without_a_scheduler_name_are_those_of_plimsoll() -> None:
    profiles = schedulers_of(make_cluster_state([]))
    assert profiles.for_pod(Pod()) == SchedulerProfile.default()


@pytest.mark.parametrize("name", USECASES or ["none"])
def test_preemption_agrees_with_what_kube_scheduler_recorded(name: str) -> None:
    state = read_cluster_state(Source((str(usecase_dump(name)),)))
    for each in state.pending:
        message = recorded_message(each)
        found = explain_pod(state, each)
        if "preemption: " not in message or not message.startswith(found.summary):
            continue
        assert "would evict" not in found.preemption
        if found.preemption:
            has_no_victims = "No preemption victims found" in message
            assert has_no_victims is found.preemption.startswith("no victims")
