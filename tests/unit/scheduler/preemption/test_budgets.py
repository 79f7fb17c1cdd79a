"""Disruption budgets: covered pods and violations."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.api.codec import convert
from plimsoll.api.policy import PodDisruptionBudget
from plimsoll.scheduler.preemption.budgets import DisruptionBudgets
from tests.build import pod
from tests.unit.scheduler.preemption.clusters import budget, names_of

PODS = [
    pod("p0", labels={"app": "a"}),
    pod("p1", labels={"app": "a"}),
    pod("p2", labels={"app": "b"}),
    pod("p3"),
]


def breaking(*budgets: PodDisruptionBudget) -> list[str]:
    found, others = DisruptionBudgets(budgets).split_violating(PODS)
    assert sorted(names_of(found) + names_of(others)) == ["p0", "p1", "p2", "p3"]
    return names_of(found)


def test_without_budgets_there_are_no_violations() -> None:
    assert breaking() == []


@pytest.mark.parametrize(("allowed", "broken"), [(0, ["p0", "p1"]), (1, ["p1"]), (2, []), (-1, ["p0", "p1"])])
def test_disruptions_up_to_the_budget_are_allowed(allowed: int, broken: list[str]) -> None:
    assert breaking(budget(allowed=allowed, app="a")) == broken


def test_disrupted_pods_are_not_counted_again() -> None:
    assert breaking(budget(allowed=1, disrupted=["p0"], app="a")) == []
    assert breaking(budget(allowed=0, disrupted=["p0"], app="a")) == ["p1"]


def test_every_budget_counts() -> None:
    assert breaking(budget("one", 2, app="a"), budget("two", 0, app="a")) == ["p0", "p1"]


def test_a_budget_of_another_namespace_does_not_apply() -> None:
    tree = {"metadata": {"namespace": "other"}, "spec": {"selector": {"matchLabels": {"app": "a"}}}}
    assert breaking(convert(tree, PodDisruptionBudget)) == []


@pytest.mark.parametrize(
    "selector",
    [None, {}, {"matchExpressions": [{"key": "app", "operator": "Near", "values": ["a"]}]}],
    ids=["none", "everything", "unreadable"],
)
def test_budgets_that_select_no_pod(selector: Any) -> None:
    tree: dict[str, Any] = {"metadata": {"namespace": "default"}, "spec": {"selector": selector}}
    assert breaking(convert(tree, PodDisruptionBudget)) == []


def test_a_pod_without_labels_has_no_budget() -> None:
    absent = {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}
    tree = {"metadata": {"namespace": "default"}, "spec": {"selector": absent}}
    assert breaking(convert(tree, PodDisruptionBudget)) == []
