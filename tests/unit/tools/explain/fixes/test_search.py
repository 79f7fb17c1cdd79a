"""A proposed fix works: applied to a copy, the pod is scheduled."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from plimsoll.errors import InputError
from plimsoll.scheduler.result import Placement
from plimsoll.scheduler.snapshot.verify import verify
from plimsoll.tools.explain import ExplainVerdict, explain_pod
from plimsoll.tools.explain.fixes.apply import apply_fix
from plimsoll.tools.explain.fixes.fix import COSTS, Fix, FixStep
from plimsoll.tools.explain.text import FixKind
from tests.sizes import examples
from tests.unit.tools.explain.clusters import clusters, schedule
from tests.unit.tools.explain.symptoms import MAKERS, SUBJECT, make_cluster_state

#: Symptoms whose first fix only a cluster administrator can apply.
OTHERS = {
    "allocated-elsewhere": "",
    "claim-being-deleted": "wait",
    "claim-missing": "create",
    "claim-not-made": "controller",
    "claim-of-another": "delete",
    "class-missing": "use DeviceClass gpu.example.com",
    "no-driver": "publish",
    "pool-incomplete": "driver",
    "selector-broken": "correct",
    "selector-fails": "correct",
    "selector-fails-on-one-node": "correct",
    "features": "kubelet",
    "shared-claim": "wait",
    "template-missing": "create",
    "unknown-scheduler": "schedulerName",
    "volume-claim-missing": "create",
    "volume-elsewhere": "reached",
    "wrong-class": "class",
    "pod-affinity": "run a pod",
}

NOTHING_TO_DO = ("placed", "placed-plain", "fits", "node-gone", "ended")


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(clusters())
def test_a_proven_fix_makes_the_pod_schedulable(objects: list[Any]) -> None:
    cluster_state = make_cluster_state(objects)
    pod = cluster_state.pod(SUBJECT)
    explanation = explain_pod(cluster_state, pod)
    assert (explanation.verdict is ExplainVerdict.FITS) == isinstance(
        schedule(make_cluster_state(objects), pod), Placement
    )
    assert explanation.fixes or explanation.verdict is ExplainVerdict.FITS
    for fix in explanation.fixes:
        new = fix.steps[0].kind in (FixKind.ADD_NODE, FixKind.ADD_ANOTHER) and not pod.spec.resource_claims
        if not fix.proven and not new:
            continue
        copy, changed = apply_fix(make_cluster_state(objects), pod, fix)
        outcome = schedule(copy, changed)
        assert isinstance(outcome, Placement), fix.text


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(clusters())
def test_explaining_does_not_change_the_ledgers(objects: list[Any]) -> None:
    cluster_state = make_cluster_state(objects)
    before = [(ledger.requested, dict(ledger.entries)) for ledger in cluster_state.snapshot.ledgers if ledger]
    explain_pod(cluster_state, cluster_state.pod(SUBJECT))
    assert [
        (ledger.requested, dict(ledger.entries)) for ledger in cluster_state.snapshot.ledgers if ledger
    ] == before
    assert not list(verify(cluster_state.snapshot))


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(clusters())
def test_fixes_are_listed_cheapest_first(objects: list[Any]) -> None:
    cluster_state = make_cluster_state(objects)
    costs = [fix.cost for fix in explain_pod(cluster_state, cluster_state.pod(SUBJECT)).fixes]
    assert costs == sorted(costs)


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in MAKERS
        if name not in OTHERS and not name.startswith(("placed", "fits", "node-gone", "ended"))
    ],
)
def test_the_nearest_fix_of_a_symptom_works(name: str) -> None:
    cluster_state = make_cluster_state(MAKERS[name]())
    pod = cluster_state.pod(SUBJECT)
    if name == "gated-and-too-big":
        pod = apply_fix(cluster_state, pod, explain_pod(cluster_state, pod).fixes[0])[1]
    fix = explain_pod(cluster_state, pod).fixes[0]
    copy, changed = apply_fix(make_cluster_state(MAKERS[name]()), pod, fix)
    assert isinstance(schedule(copy, changed), Placement), fix.text


@pytest.mark.parametrize(("name", "word"), OTHERS.items())
def test_fixes_for_others_are_described(name: str, word: str) -> None:
    cluster_state = make_cluster_state(MAKERS[name]())
    assert word in explain_pod(cluster_state, cluster_state.pod(SUBJECT)).fix


def test_a_fix_for_others_cannot_be_applied() -> None:
    cluster_state = make_cluster_state(MAKERS["no-driver"]())
    pod = cluster_state.pod(SUBJECT)
    with pytest.raises(InputError, match="cannot be applied"):
        apply_fix(cluster_state, pod, explain_pod(cluster_state, pod).fixes[0])


def test_every_change_has_a_cost() -> None:
    assert {*COSTS} == {*FixKind}


def test_verified_fixes_come_first() -> None:
    step = FixStep(FixKind.UNCORDON, {"node": "n1"})
    assert Fix((step,), proven=True).cost < Fix((step,)).cost
