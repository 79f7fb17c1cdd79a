"""Nearest fixes on the clusters of `../shared/cases`."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.api.core import Pod
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.result import Placement
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.explain import explain_node
from plimsoll.tools.fixes import Fix, FixFinder, FixKind, FixReport, apply_fix, find_fixes
from plimsoll.tools.fixes.harm import least_harmful_pods
from plimsoll.tools.whatif import WhatifPlan, run_whatif
from tests.cases.cases import case_path, case_state
from tests.unit.tools.fixes.clusters import schedule


def find(*names: str, pod: str = "p", namespace: str = "") -> tuple[ClusterState, FixReport]:
    state = case_state(*names)
    return state, find_fixes(state, state.pod(pod, namespace))


def kinds_of(fix: Fix) -> tuple[FixKind, ...]:
    return tuple(step.kind for step in fix.steps)


def works(state: ClusterState, pod: Pod, fix: Fix) -> bool:
    copy, changed = apply_fix(state, pod, fix)
    return not changed.spec.scheduling_gates and isinstance(schedule(copy, changed), Placement)


@pytest.mark.parametrize("names", [("small/min-align.yaml",), ("small/min-align.yaml", "small/nic.yaml")])
def test_devices_that_differ_need_no_constraint_or_a_lower_count(names: tuple[str, ...]) -> None:
    _, found = find(*names)
    first, second = found.fixes[:2]
    assert kinds_of(first) == (FixKind.DROP_CONSTRAINT,)
    assert first.steps[0].facts["attribute"] == "resource.kubernetes.io/pcieRoot"
    assert kinds_of(second) == (FixKind.LOWER_COUNT,)
    assert first.nodes == second.nodes == ("n1",)


def test_a_selector_gets_the_value_that_the_devices_have() -> None:
    _, found = find("small/min-sel.yaml")
    (step,) = found.fixes[0].steps
    assert step.kind is FixKind.CHANGE_SELECTOR
    facts = {name: step.facts[name] for name in ("attribute", "wanted", "had")}
    assert facts == {"attribute": "type", "wanted": "mig", "had": "gpu"}
    assert found.fixes[0].nodes == ("n1",)


def test_the_value_in_a_class_is_named_and_no_driver_is_missing() -> None:
    _, found = find("small/min-class.yaml")
    assert kinds_of(found.fixes[0]) == (FixKind.CHANGE_CLASS_SELECTOR,)
    assert found.fixes[0].steps[0].facts["had"] == "gpu"
    assert not found.hints


def test_a_pool_of_two_nodes_is_fixed_on_both() -> None:
    _, found = find("small/min-net.yaml")
    assert kinds_of(found.fixes[0]) == (FixKind.DROP_SELECTOR,)
    assert sorted(found.fixes[0].nodes) == ["n1", "n2"]


def test_an_incomplete_pool_of_another_driver_is_no_fix() -> None:
    state, found = find("small/newcomer-1.json")
    assert kinds_of(found.fixes[0]) == (FixKind.REMOVE_PODS,)
    for pending in (state, case_state("real/messy-cluster.json.gz")):
        finder = FixFinder(pending)
        fixes = [fix for pod in pending.pending for fix in finder.find(pod).fixes]
        assert fixes
        assert not [fix.text for fix in fixes if FixKind.COMPLETE_POOL in kinds_of(fix)]


def test_hardware_that_a_device_plugin_may_have_given_out_is_not_freed_by_a_guess() -> None:
    state, found = find("small/dual.yaml", pod="next", namespace="d")
    pod = state.pod("next", "d")
    assert found.fixes or found.note
    assert all(works(state, pod, fix) for fix in found.fixes)


@pytest.mark.parametrize("name", ["messy", "gpu"])
def test_every_fix_of_a_recorded_cluster_works_and_needs_each_step(name: str) -> None:
    state = case_state(f"real/{name}-cluster.json.gz")
    finder, checked = FixFinder(state), set[str]()
    for pod in sorted(state.pending, key=lambda pod: pod.metadata.key):
        fits = isinstance(schedule(state, pod), Placement) and not pod.spec.scheduling_gates
        found = finder.find(pod)
        assert not (fits and (found.fixes or found.note))
        for fix in found.fixes:
            if fix.text in checked:
                continue
            checked.add(fix.text)
            assert works(state, pod, fix), fix.text
            for step in fix.steps if len(fix.steps) > 1 else ():
                rest = Fix(tuple(each for each in fix.steps if each is not step))
                assert not works(state, pod, rest), f"{step.text} is not needed in: {fix.text}"
    assert len(checked) > 10


def test_no_class_of_another_device_replaces_one_that_is_missing() -> None:
    """gaudi.intel.com is no help for qat.intel.com; the extended resource of no class is said to be one."""
    state = case_state("real/gpu-cluster.json.gz")
    texts: dict[str, FixReport] = {}
    for pod in state.pending:
        if pod.metadata.namespace.startswith("intel-deployment"):
            texts[pod.metadata.name] = find_fixes(state, pod)
    qat = next(found for name, found in texts.items() if "qat" in name)
    assert not qat.fixes
    assert qat.note
    extended = next(found for name, found in texts.items() if "extended" in name)
    assert not extended.fixes
    assert any(hint.facts.get("resource") == "intel.com/gaudi" for hint in extended.hints)


@pytest.mark.parametrize("name", ["c33", "all"])
def test_more_devices_than_a_claim_may_have(name: str) -> None:
    plan = WhatifPlan(add=(case_path(f"small/{name}.yaml"),))
    report = run_whatif(case_state("real/gpu-cluster.json.gz"), plan)
    (found,) = report.fixes.values()
    assert kinds_of(found.fixes[0]) == (FixKind.LOWER_COUNT,)
    assert found.fixes[0].steps[0].facts["had"] == "32 devices"


def test_a_fix_for_a_node_works_there() -> None:
    state = case_state("real/messy-cluster.json.gz")
    pod = next(pod for pod in state.pending if pod.metadata.name == "p11-numa")
    for node in [node.metadata.name for node in state.nodes][::8]:
        for fix in find_fixes(state, pod, node=node).fixes:
            copy, changed = apply_fix(state, pod, fix)
            assert explain_node(copy, changed, node, settings=SchedulerProfile.default()).fits, fix.text


def test_the_pod_that_loses_least_is_removed_from_an_overcommitted_node() -> None:
    """Of pods that hold enough CPUs, one of a ReplicaSet, not one of a Job with GPUs."""
    state: Any = case_state("real/messy-cluster.json.gz")
    ledger = state.snapshot.ledger(state.snapshot.row_of("h100-05"))
    (pod,) = least_harmful_pods(state, "h100-05", {"cpu": -ledger.headroom()["cpu"]})
    assert pod.metadata.owner_references[0].kind == "ReplicaSet"
    assert pod.spec.node_name == "h100-05"
