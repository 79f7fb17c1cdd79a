"""PodGroupScheduled condition of a PodGroup, and the messages of its members: kube-scheduler's texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from plimsoll.api.scheduling import POD_GROUP_SCHEDULED, PodGroup
from plimsoll.scheduler.gang.members import GangMessage

SCHEDULED = "Scheduled"
UNSCHEDULABLE = "Unschedulable"
SCHEDULER_ERROR = "SchedulerError"
#: Message of a member that fits, in a group that does not.
WAITING_MEMBER = f"{GangMessage.UNSCHEDULABLE.value}, {GangMessage.WAITING.value}"
_PREEMPTING = "pod group is waiting for preemption to complete"
WAITING_FOR_PREEMPTION = f"{GangMessage.UNSCHEDULABLE.value}, {_PREEMPTING}"


@dataclass(frozen=True, slots=True)
class GroupCondition:
    """Status, reason and message of PodGroupScheduled."""

    status: str
    reason: str
    message: str = ""


def plan_group_condition(group: PodGroup, condition: GroupCondition, now: str) -> dict[str, Any] | None:
    """Build the strategic merge patch for PodGroupScheduled; None if nothing changes.

    A group that was scheduled once stays so: later attempts are about further pods.
    """
    known = next((each for each in group.status.conditions if each.type == POD_GROUP_SCHEDULED), None)
    if known is not None:
        if known.status == "True" and condition.status != "True":
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
        "type": POD_GROUP_SCHEDULED,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "lastTransitionTime": since or now,
    }
    if group.metadata.generation:
        tree["observedGeneration"] = group.metadata.generation
    return {"metadata": {"uid": group.metadata.uid}, "status": {"conditions": [tree]}}
