"""Eviction of pods within disruption budgets."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from plimsoll.apiserver.validation import EvictionResult, evaluate_eviction
from plimsoll.errors import DecodeError
from tests.unit.apiserver.validation.objects import NOW, NOW_TEXT, Tree, edit

READY = {"type": "Ready", "status": "True"}


def _pod(**changes: Any) -> Tree:
    tree: Tree = {
        "metadata": {"name": "p", "namespace": "d", "uid": "u", "resourceVersion": "7"},
        "status": {"phase": "Running", "conditions": [READY]},
    }
    return edit(tree, {name.replace("__", "."): value for name, value in changes.items()})


def _budget(allowed: int = 1, **status: Any) -> Tree:
    return {
        "metadata": {"name": "b", "namespace": "d", "generation": 1},
        "spec": {},
        "status": {
            "observedGeneration": 1,
            "disruptionsAllowed": allowed,
            "currentHealthy": 3,
            "desiredHealthy": 2,
            **status,
        },
    }


def _compile(pod: Tree, *budgets: Tree, eviction: Any = None) -> EvictionResult:
    before = copy.deepcopy((pod, budgets))
    posted = {"metadata": {"name": "p"}} if eviction is None else eviction
    evicted = evaluate_eviction(pod, posted, budgets, NOW)
    assert (pod, budgets) == before
    return evicted


def test_without_a_budget_the_pod_is_evicted() -> None:
    evicted = _compile(_pod())
    assert evicted.refusal is None
    assert evicted.budget is None
    assert evicted.pod is not None
    condition = evicted.pod["status"]["conditions"][1]
    assert (condition["type"], condition["status"], condition["reason"]) == (
        "DisruptionTarget",
        "True",
        "EvictionByEvictionAPI",
    )


def test_a_budget_is_charged() -> None:
    budget = _compile(_pod(), _budget(2)).budget
    assert budget is not None
    assert budget["status"]["disruptionsAllowed"] == 1
    assert budget["status"]["disruptedPods"] == {"p": NOW_TEXT}
    budget = _compile(_pod(), _budget(1)).budget
    assert budget is not None
    (condition,) = budget["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == (
        "DisruptionAllowed",
        "False",
        "InsufficientPods",
    )
    assert "lastProbeTime" not in condition


@pytest.mark.parametrize(
    ("budget", "code", "cause"),
    [
        (
            _budget(0, currentHealthy=2),
            429,
            "The disruption budget b needs 2 healthy pods and has 2 currently",
        ),
        (_budget(0), 429, "The disruption budget b does not allow evicting pods currently"),
        (
            _budget(
                0,
                conditions=[
                    {
                        "type": "DisruptionAllowed",
                        "status": "False",
                        "reason": "SyncFailed",
                        "message": "oh",
                    }
                ],
            ),
            429,
            "The disruption budget b does not allow evicting pods currently because it failed sync: oh",
        ),
        (
            _budget(1, observedGeneration=0),
            429,
            "The disruption budget b is still being processed by the server.",
        ),
        (_budget(-1), 403, ""),
        (_budget(1, disruptedPods={str(number): NOW_TEXT for number in range(2001)}), 403, ""),
    ],
)
def test_a_budget_that_forbids_the_eviction(budget: Tree, code: int, cause: str) -> None:
    evicted = _compile(_pod(), budget)
    assert evicted.refusal is not None
    assert (evicted.refusal.code, evicted.refusal.cause) == (code, cause)
    assert evicted.pod is None


def test_multiple_budgets_are_an_error() -> None:
    refusal = _compile(_pod(), _budget(), _budget()).refusal
    assert refusal is not None
    assert refusal.code == 500


@pytest.mark.parametrize("phase", ["Pending", "Failed", "Succeeded"])
def test_terminal_pods_need_no_budget(phase: str) -> None:
    evicted = _compile(_pod(status__phase=phase), _budget(0))
    assert (evicted.refusal, evicted.budget) == (None, None)
    assert evicted.pod is not None


def test_pods_that_are_not_ready() -> None:
    idle = _pod(status__conditions=[])
    evicted = _compile(idle, _budget(0))
    assert (evicted.refusal, evicted.budget) == (None, None)
    assert _compile(idle, _budget(0, currentHealthy=1)).refusal is not None
    generous = edit(_budget(0, currentHealthy=1), {"spec.unhealthyPodEvictionPolicy": "AlwaysAllow"})
    assert _compile(idle, generous).refusal is None


def test_options() -> None:
    def evict(**options: Any) -> EvictionResult:
        return _compile(_pod(), eviction={"metadata": {"name": "p"}, "deleteOptions": options})

    assert evict(gracePeriodSeconds=5).options.grace_period_seconds == 5
    assert evict(preconditions={"uid": "u", "resourceVersion": "7"}).refusal is None
    for preconditions in ({"uid": "x"}, {"resourceVersion": "6"}):
        refusal = evict(preconditions=preconditions).refusal
        assert refusal is not None
        assert refusal.code == 409
    (error,) = evict(ignoreStoreReadErrorWithClusterBreakingPotential=True).errors
    assert error.field == "deleteOptions.ignoreStoreReadErrorWithClusterBreakingPotential"
    with pytest.raises(DecodeError):
        evict(gracePeriodSeconds="x")
