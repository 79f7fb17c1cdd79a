"""A fix works: applied to a copy, the pod is scheduled, and without any of its steps it is not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from plimsoll.api.codec import convert, to_tree, view_type
from plimsoll.api.core import Pod
from plimsoll.scheduler.result import Placement
from plimsoll.scheduler.snapshot.verify import verify
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.explain import ExplainVerdict, explain_node, explain_pod
from plimsoll.tools.fixes import Fix, FixReport, apply_fix, find_fixes
from tests.sizes import examples
from tests.unit.tools.explain.symptoms import MAKERS, SUBJECT, make_cluster_state
from tests.unit.tools.fixes.clusters import clusters, schedule
from tests.unit.tools.fixes.json_edits import apply_json

#: Symptoms for which only a hint is known, with a word of it.
HINTS = {
    "claim-being-deleted": "wait",
    "claim-missing": "training-gpu",
    "class-missing": "gpu.example.com",
    "claim-not-made": "controller",
    "claim-of-another": "delete",
    "no-driver": "publish",
    "features": "kubelet",
    "template-missing": "create",
    "unknown-scheduler": "schedulerName",
    "volume-claim-missing": "create",
    "volume-elsewhere": "reached",
    "wrong-class": "install",
    "extended-resource": "extendedResourceName",
    "no-nodes": "",
}
FITTING = ("placed", "placed-plain", "fits", "node-gone", "ended")
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


def fits_after(objects: list[Any], fix: Fix) -> bool:
    cluster_state = make_cluster_state(objects)
    copy, pod = apply_fix(cluster_state, cluster_state.pod(SUBJECT), fix)
    return not pod.spec.scheduling_gates and isinstance(schedule(copy, pod), Placement)


def check_fixes(objects: list[Any], found: FixReport) -> None:
    for fix in found.fixes:
        assert fits_after(objects, fix), fix.text
        for step in fix.steps:
            rest = tuple(each for each in fix.steps if each is not step)
            assert not fits_after(objects, Fix(rest)), f"{step.text} is not needed in: {fix.text}"


@settings(max_examples=examples(25), deadline=None, suppress_health_check=SLOW)
@given(clusters())
def test_searching_changes_nothing(objects: list[Any]) -> None:
    def facts(state: ClusterState) -> Any:
        ledgers = [each for each in state.snapshot.ledgers if each]
        return {ledger.name: (ledger.requested, dict(ledger.entries)) for ledger in ledgers}

    cluster_state = make_cluster_state(objects)
    before, things = facts(cluster_state), sorted(map(repr, cluster_state.objects.all(Pod)))
    first = find_fixes(cluster_state, cluster_state.pod(SUBJECT))
    assert facts(cluster_state) == before
    assert sorted(map(repr, cluster_state.objects.all(Pod))) == things
    assert not list(verify(cluster_state.snapshot))
    again = find_fixes(cluster_state, cluster_state.pod(SUBJECT))
    assert [fix.text for fix in again.fixes] == [fix.text for fix in first.fixes]


@settings(max_examples=examples(25), deadline=None, suppress_health_check=SLOW)
@given(clusters())
def test_fixes_for_one_node_work_there(objects: list[Any]) -> None:
    cluster_state = make_cluster_state(objects)
    pod, node = cluster_state.pod(SUBJECT), cluster_state.nodes[0].metadata.name
    found = find_fixes(cluster_state, pod, node=node)
    for fix in found.fixes:
        copy, changed = apply_fix(make_cluster_state(objects), pod, fix)
        assert explain_node(copy, changed, node).fits, fix.text
        assert fix.nodes == (node,)


@pytest.mark.parametrize("name", [each for each in MAKERS if each not in HINTS and each not in FITTING])
def test_the_fixes_of_a_symptom_work(name: str) -> None:
    objects = MAKERS[name]()
    cluster_state = make_cluster_state(objects)
    explanation = explain_pod(cluster_state, cluster_state.pod(SUBJECT))
    assert explanation.fixes
    check_fixes(objects, explanation.found)
    for fix in explanation.fixes:
        trees = apply_json([to_tree(each) for each in objects if each.kind], fix.as_json())
        things = [convert(tree, view_type(tree["apiVersion"], tree["kind"])) for tree in trees]
        state = make_cluster_state([*things, *(each for each in objects if not each.kind)])
        assert isinstance(schedule(state, state.pod(SUBJECT)), Placement), fix.text


@pytest.mark.parametrize(("name", "word"), HINTS.items())
def test_what_cannot_be_tried_is_a_hint(name: str, word: str) -> None:
    objects = MAKERS[name]()
    cluster_state = make_cluster_state(objects)
    found = explain_pod(cluster_state, cluster_state.pod(SUBJECT)).found
    check_fixes(objects, found)
    assert not word or any(word in hint.text for hint in found.hints)


@pytest.mark.parametrize("name", FITTING)
def test_pods_that_fit_need_no_fix(name: str) -> None:
    cluster_state = make_cluster_state(MAKERS[name]())
    explanation = explain_pod(cluster_state, cluster_state.pod(SUBJECT))
    assert explanation.verdict is not ExplainVerdict.PENDING
    assert not explanation.fixes
    assert not explanation.found.note
