"""Conditions of a PodGroup, and the messages of its members: kube-scheduler's texts.

DIFF: a group that is preempted as a whole gets the condition DisruptionTarget that the API documents, until
it is scheduled again; kube-scheduler 1.36 writes it to pods only
(test_a_group_that_is_preempted_as_a_whole_gets_a_condition).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from plimsoll.api.scheduling import POD_GROUP_SCHEDULED, PodGroup
from plimsoll.scheduler.gang.members import GangMessage
from plimsoll.scheduler.preemption.plan import DISRUPTION_TARGET

SCHEDULED = "Scheduled"
UNSCHEDULABLE = "Unschedulable"
SCHEDULER_ERROR = "SchedulerError"
#: Message of a member that fits, in a group that does not.
WAITING_MEMBER = f"{GangMessage.UNSCHEDULABLE.value}, {GangMessage.WAITING.value}"
#: Message of a group, and of its other members, if a member fails with an error.
OTHER_POD_FAILED = "failed to schedule other pod from a pod group"
_PREEMPTING = "pod group is waiting for preemption to complete"
WAITING_FOR_PREEMPTION = f"{GangMessage.UNSCHEDULABLE.value}, {_PREEMPTING}"


def describe_min_count(min_count: int, scheduled: int, fits: Iterable[bool]) -> str:
    """Return why minCount cannot be satisfied, as kube-scheduler 1.37 does; it stops when that is certain.

    `scheduled` pods of the group have a node; `fits` is whether each of the other members fits, in order.
    """
    members = list(fits)
    remaining = len(members)
    for fit in members:
        if scheduled + remaining < min_count:
            break
        remaining -= 1
        scheduled += fit
    return f"minCount ({min_count}) cannot be satisfied: {scheduled} scheduled, {remaining} remaining"


@dataclass(frozen=True, slots=True)
class GroupCondition:
    """Status, reason and message of a condition."""

    status: str
    reason: str
    message: str = ""
    type: str = POD_GROUP_SCHEDULED


def is_disruption_target(group: PodGroup) -> bool:
    """Return whether a group has the condition of one that is preempted."""
    return any(each.type == DISRUPTION_TARGET and each.status == "True" for each in group.status.conditions)


def plan_group_condition(group: PodGroup, condition: GroupCondition, now: str) -> dict[str, Any] | None:
    """Build the strategic merge patch for a condition; None if nothing changes.

    A group that was scheduled once stays so: later attempts are about further pods.
    """
    known = next((each for each in group.status.conditions if each.type == condition.type), None)
    if known is not None:
        is_scheduled = known.type == POD_GROUP_SCHEDULED and known.status == "True"
        if is_scheduled and condition.status != "True":
            return None
        same = (known.status, known.reason, known.message) == (
            condition.status,
            condition.reason,
            condition.message,
        )
        if same and known.observed_generation == group.metadata.generation:
            return None
    since = known.last_transition_time if known is not None and known.status == condition.status else None
    tree: dict[str, Any] = {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "lastTransitionTime": since or now,
    }
    if group.metadata.generation:
        tree["observedGeneration"] = group.metadata.generation
    return {"metadata": {"uid": group.metadata.uid}, "status": {"conditions": [tree]}}
