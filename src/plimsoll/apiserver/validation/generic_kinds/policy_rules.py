"""Defaults and validation of PodDisruptionBudget, HorizontalPodAutoscaler and RuntimeClass.

Autoscalers and limit ranges are only checked against their schema.
"""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll.apiserver.registry.schema_view import View
from plimsoll.apiserver.validation.field_errors import (
    FieldErrors,
    FieldPath,
    invalid,
    not_supported,
    required,
)
from plimsoll.apiserver.validation.generic_kinds.kind_rules import KindRules, default_if_missing
from plimsoll.apiserver.validation.int_or_string import (
    validate_not_more_than_100_percent,
    validate_positive_int_or_percent,
)
from plimsoll.apiserver.validation.label_selectors import is_valid, validate_selector
from plimsoll.apiserver.validation.metadata import IMMUTABLE
from plimsoll.apiserver.validation.object_trees import Tree, copy_tree
from plimsoll.apiserver.validation.write_context import WriteContext

_SPEC = FieldPath("spec")
_EVICTION_POLICIES = ("AlwaysAllow", "IfHealthyBudget")


# -- PodDisruptionBudget


def _validate_budget(write: WriteContext[View]) -> FieldErrors:
    spec = write.new.spec
    amounts = (("minAvailable", spec.min_available), ("maxUnavailable", spec.max_unavailable))
    if None not in (spec.min_available, spec.max_unavailable):
        yield invalid(_SPEC, None, "minAvailable and maxUnavailable cannot be both set")
    for name, value in amounts:
        if value is not None:
            yield from validate_positive_int_or_percent(value, _SPEC.child(name))
            yield from validate_not_more_than_100_percent(value, _SPEC.child(name))
    allow_invalid_label_values = not write.is_create and not is_valid(write.old.spec.selector)
    yield from validate_selector(
        spec.selector, _SPEC.child("selector"), allow_invalid_label_values=allow_invalid_label_values
    )
    policy = spec.unhealthy_pod_eviction_policy
    if policy is not None and policy not in _EVICTION_POLICIES:
        yield not_supported(_SPEC.child("unhealthyPodEvictionPolicy"), policy, _EVICTION_POLICIES)


# -- HorizontalPodAutoscaler


_CPU_AT_80 = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
}
_DOUBLE_PODS = {"type": "Percent", "value": 100, "periodSeconds": 15}
_FOUR_PODS = {"type": "Pods", "value": 4, "periodSeconds": 15}
_UP = {"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": [_FOUR_PODS, _DOUBLE_PODS]}
_DOWN = {"selectPolicy": "Max", "policies": [_DOUBLE_PODS]}


def _set_autoscaler_defaults(tree: Tree) -> None:
    spec = tree["spec"]
    if not spec.get("metrics"):
        spec["metrics"] = [copy_tree(_CPU_AT_80)]
    if "behavior" in spec:
        for name, rules in (("scaleUp", _UP), ("scaleDown", _DOWN)):
            default_if_missing(spec["behavior"].setdefault(name, {}), **copy_tree(rules))
    if "status" in tree:
        default_if_missing(tree["status"], currentMetrics=None)  # null as long as there are none


# -- RuntimeClass


def _validate_runtime_class(write: WriteContext[View]) -> FieldErrors:
    handler = write.new.handler
    if not handler:
        yield required(FieldPath("handler"))
    if not write.is_create and handler != write.old.handler:
        yield invalid(FieldPath("handler"), handler, IMMUTABLE)


POLICY_RULES: Mapping[str, KindRules] = {
    "PodDisruptionBudget": KindRules("policy.v1", validate=_validate_budget),
    "HorizontalPodAutoscaler": KindRules(
        "autoscaling.v2",
        _set_autoscaler_defaults,
        initial_status={"currentMetrics": None},
    ),
    "RuntimeClass": KindRules("node.v1", validate=_validate_runtime_class),
}
