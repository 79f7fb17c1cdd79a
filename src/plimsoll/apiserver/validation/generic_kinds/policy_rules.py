"""Defaults and rules of policies about pods: disruption budgets, autoscalers, limit ranges, runtime classes.

Of autoscalers and limit ranges nothing is checked beyond their shape.
"""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll.apiserver.validation.field_errors import Path, Problems, invalid, not_supported, required
from plimsoll.apiserver.validation.generic_kinds.kind_rules import Rules, fill_missing
from plimsoll.apiserver.validation.generic_kinds.policy_view import (
    Autoscaler,
    Budget,
    LimitRange,
    RuntimeClass,
)
from plimsoll.apiserver.validation.int_or_string import (
    check_count_or_percentage,
    check_not_above_all,
    expect_int_or_string,
)
from plimsoll.apiserver.validation.label_selectors import check_selector, is_fine
from plimsoll.apiserver.validation.metadata import IMMUTABLE
from plimsoll.apiserver.validation.object_trees import Tree, copy_tree, part
from plimsoll.apiserver.validation.quantities import round_amounts
from plimsoll.apiserver.validation.write_context import Job

_SPEC = Path("spec")
_EVICTION_POLICIES = ("AlwaysAllow", "IfHealthyBudget")


# -- PodDisruptionBudget


def _fill_budget(tree: Tree) -> None:
    expect_int_or_string(tree.setdefault("spec", {}), "minAvailable", "maxUnavailable")


def _check_budget(job: Job[Budget]) -> Problems:
    spec = job.decode().spec
    amounts = (("minAvailable", spec.min_available), ("maxUnavailable", spec.max_unavailable))
    if None not in (spec.min_available, spec.max_unavailable):
        yield invalid(_SPEC, None, "minAvailable and maxUnavailable cannot be both set")
    for name, value in amounts:
        if value is not None:
            yield from check_count_or_percentage(value, _SPEC.child(name))
            yield from check_not_above_all(value, _SPEC.child(name))
    any_values = not job.creates and not is_fine(job.old.spec.selector)
    yield from check_selector(spec.selector, _SPEC.child("selector"), any_values=any_values)
    policy = spec.unhealthy_pod_eviction_policy
    if policy is not None and policy not in _EVICTION_POLICIES:
        yield not_supported(_SPEC.child("unhealthyPodEvictionPolicy"), policy, _EVICTION_POLICIES)


# -- HorizontalPodAutoscaler


_CPU_AT_80 = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
}
_DOUBLE = {"type": "Percent", "value": 100, "periodSeconds": 15}
_FOUR_PODS = {"type": "Pods", "value": 4, "periodSeconds": 15}
_UP = {"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": [_FOUR_PODS, _DOUBLE]}
_DOWN = {"selectPolicy": "Max", "policies": [_DOUBLE]}


def _fill_autoscaler(tree: Tree) -> None:
    spec = tree.setdefault("spec", {})
    fill_missing(spec, minReplicas=1)
    if not spec.get("metrics"):
        spec["metrics"] = [copy_tree(_CPU_AT_80)]
    if "behavior" in spec:
        for name, rules in (("scaleUp", _UP), ("scaleDown", _DOWN)):
            fill_missing(spec["behavior"].setdefault(name, {}), **copy_tree(rules))


# -- LimitRange


def _fill_limit_range(tree: Tree) -> None:
    """A container's default limit is the maximum, and its default request the limit or the minimum."""
    for item in part(tree, "spec").get("limits", ()):
        if item.get("type") == "Container":
            limits = {**item.get("max", {}), **item.get("default", {})}
            requests = {**item.get("min", {}), **limits, **item.get("defaultRequest", {})}
            item.update({k: v for k, v in (("default", limits), ("defaultRequest", requests)) if v})
        for name in ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio"):
            round_amounts(item.get(name))


# -- RuntimeClass


def _fill_runtime_class(tree: Tree) -> None:
    round_amounts(part(tree, "overhead").get("podFixed"))


def _check_runtime_class(job: Job[RuntimeClass]) -> Problems:
    handler = job.decode().handler
    if not handler:
        yield required(Path("handler"))
    if not job.creates and handler != job.old.handler:
        yield invalid(Path("handler"), handler, IMMUTABLE)


_NO_DISRUPTIONS = dict.fromkeys(("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"), 0)

POLICY_RULES: Mapping[str, Rules] = {
    "PodDisruptionBudget": Rules(Budget, _fill_budget, check=_check_budget, first_status=_NO_DISRUPTIONS),
    "HorizontalPodAutoscaler": Rules(
        Autoscaler,
        _fill_autoscaler,
        first_status={"desiredReplicas": 0, "currentMetrics": None},
    ),
    "LimitRange": Rules(LimitRange, _fill_limit_range),
    "RuntimeClass": Rules(RuntimeClass, _fill_runtime_class, check=_check_runtime_class),
}
