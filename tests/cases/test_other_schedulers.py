"""Pods of kube-scheduler and of other schedulers: nothing is promised that these would not do."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from plimsoll.api.core import NodeSystemInfo, Pod
from plimsoll.api.forms import CLASS_KEY
from plimsoll.scheduler.cycle import schedule_pod
from plimsoll.scheduler.devices import simulated_ids
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.result import Placement
from plimsoll.tools.cluster_state import ClusterState, Source, read_cluster_state
from plimsoll.tools.colors import PLAIN
from plimsoll.tools.explain import ExplainVerdict, explain_node, explain_pending, explain_pod
from plimsoll.tools.fixes import apply_fix
from plimsoll.tools.pod_schedulers import SCHEDULER_MODELS, recorded_message, schedulers_of
from plimsoll.tools.whatif import WhatifPlan, run_whatif
from tests.build import (
    charging_device,
    claim,
    device,
    device_class,
    exactly,
    node,
    pod,
    resource_slice,
    result,
)
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
    assert report.as_json()["recorded"] == {"default/hi": recorded_message(state, state.pod("hi"))}


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
        message = recorded_message(state, each)
        found = explain_pod(state, each)
        if "preemption: " not in message or not message.startswith(found.summary):
            continue
        assert "would evict" not in found.preemption
        if found.preemption:
            has_no_victims = "No preemption victims found" in message
            assert has_no_victims is found.preemption.startswith("no victims")


# -- placement by two schedulers


def two_devices(scheduler: str, *, first: int = 8, second: int = 2, cpu: int = 4) -> ClusterState:
    """Return a node whose devices charge CPUs, and a pod that needs one of them and one CPU."""
    offered = [charging_device("a", cpu=str(first)), charging_device("b", cpu=str(second))]
    return make_cluster_state(
        [
            *(node("n", cpu=str(cpu)), device_class(), resource_slice(offered, "n"), claim("c", exactly())),
            pod("p", cpu="1", claims=["c"], schedulerName=scheduler),
        ]
    )


def verdicts(state: ClusterState, name: str = "p") -> set[bool]:
    """Return whether a pod fits, as `explain`, its overview, `explain --node` and `whatif` say."""
    (group,) = explain_pending(state).groups
    return {
        explain_pod(state, state.pod(name)).verdict is ExplainVerdict.FITS,
        explain_node(state, state.pod(name), state.nodes[0].metadata.name).fits,
        group.fits,
        run_whatif(state, WhatifPlan()).all_placed,
    }


@pytest.mark.parametrize(("scheduler", "fits"), [("plimsoll", True), ("default-scheduler", False)])
def test_kube_scheduler_takes_the_first_device_only(scheduler: str, fits: bool) -> None:
    assert verdicts(two_devices(scheduler)) == {fits}


def test_the_reason_is_that_of_kube_scheduler_and_fixes_are_proven_by_its_rules() -> None:
    state = two_devices("default-scheduler", first=3)
    state.set(pod("low", cpu="1", node="n"))
    found = explain_pod(state, state.pod("p"))
    assert found.summary.endswith("0/1 nodes are available: 1 Insufficient cpu.")
    assert "kube-scheduler" in found.summary
    assert any("Plimsoll's scheduler would place it on node n" in note for note in found.notes)
    (group,) = explain_pending(state).groups
    report = run_whatif(state, WhatifPlan(versus=("plimsoll", "kube")))
    ours, kube = (each.state["default", "p"].node for each in report.predictions)
    assert (ours, kube) == ("n", "")
    assert report.states[1]["default", "p"].why == group.why == found.summary
    assert found.fixes
    for fix in found.fixes:
        after, changed = apply_fix(state, state.pod("p"), fix)
        assert explain_pod(after, changed).verdict is ExplainVerdict.FITS


@pytest.mark.parametrize("number", range(60))
def test_a_pod_of_kube_scheduler_fits_if_both_schedulers_place_it(number: int) -> None:
    random = Random(number)
    state = two_devices(
        "default-scheduler", first=random.randint(1, 5), second=random.randint(1, 5), cpu=random.randint(1, 6)
    )
    settings = SchedulerProfile.default(), SCHEDULER_MODELS["kube"].settings()
    outcomes = [
        schedule_pod(state.pod("p"), state.snapshot, each.for_pod(Pod()), simulated_ids())
        for each in settings
    ]
    assert verdicts(state) == {all(isinstance(each, Placement) for each in outcomes)}


def test_a_batch_for_kube_scheduler_ends_where_that_refuses_a_pod() -> None:
    state = two_devices("default-scheduler", first=2, second=6, cpu=8)
    state.set(claim("d", exactly()))
    state.set(pod("q", cpu="1", claims=["d"], schedulerName="default-scheduler"))
    assert explain_pending(state).fitting == 1
    assert len(run_whatif(state, WhatifPlan()).verdict.scheduled) == 1


@pytest.mark.parametrize("case", ["device plugin", "annotation"])
def test_what_kube_scheduler_would_place_although_it_does_not_fit(case: str) -> None:
    if case == "device plugin":
        state, name = case_state("small/dual.yaml"), "next"
    else:
        mappings = {"nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "6"}}}
        kind = device_class()
        annotations = {CLASS_KEY: json.dumps(mappings)}
        state, name = two_devices("default-scheduler"), "p"
        state.set(replace(kind, metadata=replace(kind.metadata, annotations=annotations)))
        state.set(resource_slice([device("a")], "n"))
    found = explain_pod(state, state.pod(name))
    assert found.verdict is ExplainVerdict.PENDING
    assert "kube-scheduler would place it on node n" in " ".join(found.notes)
    assert not run_whatif(state, WhatifPlan()).all_placed
    own = replace(state.pod(name), spec=replace(state.pod(name).spec, scheduler_name="plimsoll"))
    assert not any("would place it" in note for note in explain_pod(state, own).notes)


def test_the_numbers_of_a_refused_charge_are_those_of_the_resource() -> None:
    state = two_devices("plimsoll", first=6, second=7)
    busy = charging_device("a", cpu="6500m")
    state.set(resource_slice([busy, device("other")], "n"))
    state.set(claim("c", exactly(count=2)))
    text = "\n".join(explain_pod(state, state.pod("p")).lines(PLAIN))
    assert "6500000" not in text
    assert "6.5" in text


def test_the_latest_event_is_shown_if_the_condition_has_no_message() -> None:
    state = two_devices("default-scheduler")
    for hour, message in ((2, "the latest reason"), (1, "an earlier reason")):
        state.objects.related.add(
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": f"p.{hour}", "namespace": "default"},
                "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"},
                "reason": "FailedScheduling",
                "message": message,
                "lastTimestamp": f"2026-01-01T0{hour}:00:00Z",
            }
        )
    assert recorded_message(state, state.pod("p")) == "the latest reason"
    assert "the latest reason" in " ".join(explain_pod(state, state.pod("p")).notes)
    assert run_whatif(state, WhatifPlan()).as_json()["recorded"] == {"default/p": "the latest reason"}
