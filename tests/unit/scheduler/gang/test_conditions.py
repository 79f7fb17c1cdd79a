"""PodGroupScheduled condition of a PodGroup."""

from __future__ import annotations

from msgspec.structs import replace

from plimsoll.api.meta import Condition
from plimsoll.api.scheduling import PodGroup, PodGroupStatus
from plimsoll.scheduler.gang.conditions import GroupCondition, plan_group_condition
from tests.build import pod_group

NOW, BEFORE = "2025-02-01T00:00:00Z", "2025-01-01T00:00:00Z"
SCHEDULED = GroupCondition("True", "Scheduled")
REFUSED = GroupCondition("False", "Unschedulable", "pod group is unschedulable")


def having(condition: GroupCondition) -> PodGroup:
    known = Condition(
        type="PodGroupScheduled",
        status=condition.status,
        reason=condition.reason,
        message=condition.message,
        last_transition_time=BEFORE,
    )
    return replace(pod_group(), status=PodGroupStatus(conditions=(known,)))


def test_a_new_condition() -> None:
    patch = plan_group_condition(pod_group(), REFUSED, NOW)
    assert patch == {
        "metadata": {"uid": "uid-gang"},
        "status": {
            "conditions": [
                {
                    "type": "PodGroupScheduled",
                    "status": "False",
                    "reason": "Unschedulable",
                    "message": "pod group is unschedulable",
                    "lastTransitionTime": NOW,
                }
            ]
        },
    }


def test_the_transition_time_changes_with_the_status() -> None:
    other = replace_message(REFUSED, "pod group is unschedulable, other")
    patch = plan_group_condition(having(REFUSED), other, NOW)
    assert patch is not None
    assert patch["status"]["conditions"][0]["lastTransitionTime"] == BEFORE
    patch = plan_group_condition(having(REFUSED), SCHEDULED, NOW)
    assert patch is not None
    assert patch["status"]["conditions"][0]["lastTransitionTime"] == NOW


def replace_message(condition: GroupCondition, message: str) -> GroupCondition:
    return GroupCondition(condition.status, condition.reason, message)


def test_unchanged_conditions_are_not_written_and_scheduled_groups_stay_scheduled() -> None:
    assert plan_group_condition(having(REFUSED), REFUSED, NOW) is None
    assert plan_group_condition(having(SCHEDULED), REFUSED, NOW) is None
