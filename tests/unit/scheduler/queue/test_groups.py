"""Pods of a PodGroup in the scheduling queue: taken together, held and woken together."""

from __future__ import annotations

from plimsoll.scheduler.events import ClusterEvent, EventKind, classify_change
from plimsoll.scheduler.gang.members import GangMessage
from plimsoll.scheduler.queue import QueueState, SchedulingQueue
from plimsoll.scheduler.reasons import NodeReason, Rule
from tests.build import member, pod, pod_group

GROUP = ("default", "gang")
TOO_FEW = NodeReason.unresolvable(Rule.GANG, GangMessage.TOO_FEW_PODS)


def added(name: str, group: str = "gang") -> ClusterEvent:
    found = classify_change(None, member(name, group))
    assert found is not None
    return found


def names(queue: SchedulingQueue, now: int = 0) -> list[str]:
    return [each.pod.metadata.name for each in queue.pop_members(GROUP, now)]


def test_a_new_member_and_a_new_group_are_events() -> None:
    assert added("p").kind is EventKind.GROUP_CHANGED
    assert added("p").group == GROUP
    group = classify_change(None, pod_group())
    assert group is not None
    assert group.group == GROUP
    assert classify_change(None, pod("p")) is None


def test_members_that_can_be_attempted_are_taken_together() -> None:
    queue = SchedulingQueue()
    queue.add(member("active"), 0)
    queue.add(member("gated", schedulingGates=[{"name": "x"}]), 0)
    queue.add(member("other", "other"), 0)
    queue.add(pod("single"), 0)
    queue.add(member("waiting"), 0)
    for key in ("uid-waiting",):
        (first, *_) = [each for each in queue.pop_members(GROUP, 0) if each.key == key]
        assert first.attempts == 1
    queue.mark_unschedulable("uid-waiting", frozenset({Rule.RESOURCES}), 0)
    queue.retry("uid-active", 0)
    assert queue.members(GROUP) == {"uid-active", "uid-gated", "uid-waiting"}
    assert names(queue) == ["active", "waiting"]
    assert queue.is_in_flight("uid-active")
    queue.done("uid-active", 0)
    assert queue.members(GROUP) == {"uid-gated", "uid-waiting"}


def test_held_members_are_released_by_their_group_only() -> None:
    queue = SchedulingQueue()
    queue.add(member("p"), 0)
    assert queue.pop(0) is not None
    queue.hold(member("p"), TOO_FEW, 0)
    assert names(queue) == []
    assert queue.on_event(added("q", "other"), 0) == 0
    assert queue.on_event(added("q"), 0) == 1
    assert queue.state_of("uid-p") is QueueState.ACTIVE


def test_an_event_in_flight_prevents_a_hold() -> None:
    queue = SchedulingQueue()
    queue.add(member("p"), 0)
    assert queue.pop(0) is not None
    queue.on_event(added("q"), 0)
    queue.hold(member("p"), TOO_FEW, 0)
    assert queue.state_of("uid-p") is QueueState.ACTIVE


def test_members_that_wait_for_the_gang_are_woken_by_it() -> None:
    queue = SchedulingQueue()
    queue.add(member("p"), 0)
    assert queue.pop(0) is not None
    queue.mark_unschedulable("uid-p", frozenset({Rule.GANG}), 0)
    assert queue.on_event(added("q", "other"), 0) == 0
    assert queue.on_event(added("q"), 0) == 1
