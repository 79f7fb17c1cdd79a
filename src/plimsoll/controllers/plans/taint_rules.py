"""What the status of a DeviceTaintRule tells: whether it evicts pods, and which it would evict.

Owns the condition EvictionInProgress (upstream's device taint eviction): with the effect NoExecute how many
pods have still to go, with None what the rule would do if it were NoExecute, with other effects that it
evicts nobody.
"""

from __future__ import annotations

from typing import NamedTuple

from plimsoll.api.resource import DeviceTaintRule
from plimsoll.api.timestamps import format_time, parse_time
from plimsoll.client.endpoints import DEVICE_TAINT_RULES
from plimsoll.controllers.actions import NOTHING, Patch, Plan
from plimsoll.controllers.plans.device_taints import COMPONENT, NO_EFFECT, NO_EXECUTE
from plimsoll.controllers.plans.pods import find_condition

CONDITION = "EvictionInProgress"
#: The shortest time between two updates of a rule's status, in seconds.
STATUS_PERIOD = 10.0


class Effects(NamedTuple):
    """What a rule does, or would do."""

    pods: int = 0  #: that have still to go
    namespaces: int = 0  #: that they are in
    evicted: int = 0  #: pods that went, since the controller started
    published: int = 0  #: devices that the rule is for
    allocated: int = 0  #: allocated devices that the rule is for


def wait_for_rule(rule: DeviceTaintRule, now: float) -> float:
    """How long to wait before a rule's status is worked out again; counting its pods is not cheap."""
    known = find_condition(rule.status.conditions, CONDITION)
    if known is None or known.observed_generation != rule.metadata.generation:
        return 0.0
    return max(0.0, STATUS_PERIOD - (now - (parse_time(known.last_transition_time) or 0.0)))


def plan_rule(rule: DeviceTaintRule, effects: Effects, now: float) -> Plan:
    """Bring a rule's status up to date."""
    status, reason, message = describe(rule, effects)
    known = find_condition(rule.status.conditions, CONDITION)
    generation = rule.metadata.generation
    if known is not None and (known.status, known.reason, known.message, known.observed_generation) == (
        status,
        reason,
        message,
        generation,
    ):
        return NOTHING
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
    patch = Patch(
        DEVICE_TAINT_RULES, rule.metadata.name, tree, subresource="status", type="apply", manager=COMPONENT
    )
    return Plan((patch,))


def describe(rule: DeviceTaintRule, effects: Effects) -> tuple[str, str, str]:
    """Status, reason and message of the condition."""
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
        told = f"{_count(effects.evicted, 'pod', 'pods')} evicted since starting the controller."
        message = f"{message} {told}" if message else told
    return status, reason, message


def _count(number: int, one: str, more: str) -> str:
    return f"{number} {one if number == 1 else more}"
