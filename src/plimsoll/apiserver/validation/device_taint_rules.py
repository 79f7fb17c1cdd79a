"""Validation of DeviceTaintRule.

Every field of a rule is mutable; a taint whose effect changes counts as new (`update_taint_time`).
"""

from __future__ import annotations

from plimsoll.api.resource import DeviceTaintRuleSpec, DeviceTaintRuleStatus
from plimsoll.apiserver.validation.conditions import validate_conditions
from plimsoll.apiserver.validation.device_taints import validate_taint
from plimsoll.apiserver.validation.field_errors import FieldErrors, FieldPath
from plimsoll.apiserver.validation.name_formats import validate_driver, validate_label, validate_pool
from plimsoll.apiserver.validation.object_trees import Tree, subtree

CONDITIONS_MAX = 8

_SPEC = FieldPath("spec")


def validate_taint_rule_spec(spec: DeviceTaintRuleSpec, old: DeviceTaintRuleSpec | None) -> FieldErrors:
    selector, path = spec.device_selector, _SPEC.child("deviceSelector")
    if selector is not None:
        if selector.driver is not None:
            yield from validate_driver(selector.driver, path.child("driver"))
        if selector.pool is not None:
            yield from validate_pool(selector.pool, path.child("pool"))
        if selector.device is not None:
            yield from validate_label(selector.device, path.child("device"))
    yield from validate_taint(spec.taint, _SPEC.child("taint"), old.taint if old is not None else None)


def validate_taint_rule_status(status: DeviceTaintRuleStatus) -> FieldErrors:
    return validate_conditions(status.conditions, CONDITIONS_MAX, FieldPath("status").child("conditions"))


def update_taint_time(tree: Tree, old: Tree, now: str) -> None:
    """Set timeAdded when the effect of a taint changes and the writer kept the old time; modifies `tree`."""
    taint, before = subtree(tree, "spec", "taint"), subtree(old, "spec", "taint")
    changed = taint.get("effect", "") != before.get("effect", "")
    if changed and taint.get("timeAdded") == before.get("timeAdded"):
        taint["timeAdded"] = now
