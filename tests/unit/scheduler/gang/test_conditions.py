"""PodGroupScheduled condition of a PodGroup."""

from __future__ import annotations

from msgspec.structs import replace

from plimsoll.api.meta import Condition
from plimsoll.api.scheduling import PodGroup, PodGroupStatus
from plimsoll.scheduler.gang.conditions import GroupCondition, describe_min_count, plan_group_condition
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


def test_members_are_counted_until_min_count_is_out_of_reach() -> None:
    """As `PlacementFeasible` of kube-scheduler 1.37."""
    text = "minCount ({}) cannot be satisfied: {} scheduled, {} remaining"
    assert describe_min_count(2, 0, [True, False]) == text.format(2, 1, 0)
    assert describe_min_count(3, 0, [False, True, True]) == text.format(3, 0, 2)
    assert describe_min_count(4, 1, [False, False, True, True]) == text.format(4, 1, 2)
    assert describe_min_count(5, 1, [True, True, True]) == text.format(5, 1, 3), "no member is tried"
