"""Status of a DeviceTaintRule: the condition EvictionInProgress.

With the effect NoExecute it counts the pods still to be evicted; with None it previews what NoExecute would
do; with other effects it states that nothing is evicted.
"""

from __future__ import annotations

from typing import NamedTuple

from plimsoll.api.resource import DeviceTaintRule
from plimsoll.api.timestamps import format_time, parse_time
from plimsoll.client.endpoints import DEVICE_TAINT_RULES
from plimsoll.controllers.actions import EMPTY_PLAN, ActionPlan, PatchAction
from plimsoll.controllers.device_taint_eviction.plan import COMPONENT, NO_EFFECT, NO_EXECUTE
from plimsoll.controllers.pod_utils import find_condition

CONDITION = "EvictionInProgress"
#: Shortest time between two updates of a rule's status, in seconds.
STATUS_PERIOD = 10.0


class RuleEffects(NamedTuple):
    """Effects of a rule, actual or previewed."""

    pods: int = 0  #: pods still to be evicted
    namespaces: int = 0  #: namespaces of these pods
    evicted: int = 0  #: pods evicted since the controller started
    published: int = 0  #: published devices that the rule selects
    allocated: int = 0  #: allocated devices that the rule selects


def next_status_update(rule: DeviceTaintRule, now: float) -> float:
    """Return the seconds until a rule's status may be computed again; counting its pods is expensive."""
    known = find_condition(rule.status.conditions, CONDITION)
    if known is None or known.observed_generation != rule.metadata.generation:
        return 0.0
    return max(0.0, STATUS_PERIOD - (now - (parse_time(known.last_transition_time) or 0.0)))


def plan_rule(rule: DeviceTaintRule, effects: RuleEffects, now: float) -> ActionPlan:
    """Plan the update of a rule's status."""
    status, reason, message = describe_progress(rule, effects)
    known = find_condition(rule.status.conditions, CONDITION)
    generation = rule.metadata.generation
    if known is not None and (known.status, known.reason, known.message, known.observed_generation) == (
        status,
        reason,
        message,
        generation,
    ):
        return EMPTY_PLAN
    condition = {
        "type": CONDITION,
        "status": status,
        "reason": reason,
        "message": message,
        "observedGeneration": generation,
        "lastTransitionTime": format_time(now),
    }
    tree = {
        "apiVersion": DEVICE_TAINT_RULES.api_version,
        "kind": DEVICE_TAINT_RULES.kind,
        "metadata": {"name": rule.metadata.name, "uid": rule.metadata.uid},
        "status": {"conditions": [condition]},
    }
    patch = PatchAction(
        DEVICE_TAINT_RULES,
        rule.metadata.name,
        tree,
        subresource="status",
        type="apply",
        field_manager=COMPONENT,
    )
    return ActionPlan((patch,))


def describe_progress(rule: DeviceTaintRule, effects: RuleEffects) -> tuple[str, str, str]:
    """Return status, reason and message of the condition."""
    status, message = "False", ""
    pods = _count(effects.pods, "pod", "pods")
    namespaces = "1 namespace" if effects.namespaces == 1 else f"{effects.namespaces} different namespaces"
    effect = rule.spec.taint.effect
    if effect == NO_EXECUTE:
        if effects.pods:
            status, reason = "True", "PodsPendingEviction"
            message = f"{pods} {'needs' if effects.pods == 1 else 'need'} to be evicted in {namespaces}."
        else:
            reason = "Completed" if effects.evicted else "NotStarted"
    elif effect == NO_EFFECT:
        reason = "NoEffect"
        message = (
            f"{_count(effects.published, 'published device', 'published devices')} selected. "
            f"{_count(effects.allocated, 'allocated device', 'allocated devices')} selected. "
            f"{pods} would be evicted in {namespaces} if the effect was NoExecute. "
            "This information will not be updated again. Recreate the DeviceTaintRule to trigger an update."
        )
    else:
        reason, message = "OtherEffect", "Eviction only happens for the NoExecute effect."
    if effects.evicted:
        evicted = f"{_count(effects.evicted, 'pod', 'pods')} evicted since starting the controller."
        message = f"{message} {evicted}" if message else evicted
    return status, reason, message


def _count(number: int, one: str, more: str) -> str:
    return f"{number} {one if number == 1 else more}"
