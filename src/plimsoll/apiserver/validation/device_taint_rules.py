"""DeviceTaintRule: taints put on devices from outside.

Owns the checks of spec and status. Everything in a rule may change; a taint whose effect changes counts
as new (`renew_taint`).
"""

from __future__ import annotations

from plimsoll.api.resource import DeviceTaintRuleSpec, DeviceTaintRuleStatus
from plimsoll.apiserver.validation.conditions import check_conditions
from plimsoll.apiserver.validation.device_taints import check_taint
from plimsoll.apiserver.validation.field_errors import Path, Problems
from plimsoll.apiserver.validation.name_formats import check_driver, check_label, check_pool
from plimsoll.apiserver.validation.object_trees import Tree, part

CONDITIONS_MAX = 8

_SPEC = Path("spec")


def check_taint_rule_spec(spec: DeviceTaintRuleSpec, old: DeviceTaintRuleSpec | None) -> Problems:
    selector, path = spec.device_selector, _SPEC.child("deviceSelector")
    if selector is not None:
        if selector.driver is not None:
            yield from check_driver(selector.driver, path.child("driver"))
        if selector.pool is not None:
            yield from check_pool(selector.pool, path.child("pool"))
        if selector.device is not None:
            yield from check_label(selector.device, path.child("device"))
    yield from check_taint(spec.taint, _SPEC.child("taint"), old.taint if old is not None else None)


def check_taint_rule_status(status: DeviceTaintRuleStatus) -> Problems:
    return check_conditions(status.conditions, CONDITIONS_MAX, Path("status").child("conditions"))


def renew_taint(tree: Tree, old: Tree, now: str) -> None:
    """Date a taint anew when its effect changes and the writer kept the old date; changes `tree`."""
    taint, before = part(tree, "spec", "taint"), part(old, "spec", "taint")
    changed = taint.get("effect", "") != before.get("effect", "")
    if changed and taint.get("timeAdded") == before.get("timeAdded"):
        taint["timeAdded"] = now
