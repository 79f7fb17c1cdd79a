"""Fairness: floods of unschedulable pods do not starve others, and new pods do not starve retries."""

from __future__ import annotations

from typing import Any

from plimsoll.scheduler.events import ClusterEvent, EventKind, classify_change
from plimsoll.scheduler.queue import QueueSettings, SchedulingQueue
from plimsoll.scheduler.reasons import Rule
from tests.build import node, pod

RESOURCES = frozenset({Rule.RESOURCES})
GONE = ClusterEvent(EventKind.POD_DELETED, old=pod("gone", node="n"))


def _flood(queue: SchedulingQueue, count: int, **fields: Any) -> None:
    """Return a queue with unschedulable pods that were tried once."""
    for number in range(count):
        queue.add(pod(f"unschedulable-{number}", **fields), 0)
    for _ in range(count):
        attempt = queue.pop(0)
        assert attempt is not None
        queue.mark_unschedulable(attempt.key, RESOURCES, 0)


def _pops_until(queue: SchedulingQueue, name: str, now: int, limit: int) -> int:
    """Return the number of pops until a pod is tried; the others fail and are woken again."""
    for count in range(1, limit):
        attempt = queue.pop(now)
        assert attempt is not None
        if attempt.pod.metadata.name == name:
            return count
        queue.mark_unschedulable(attempt.key, RESOURCES, now)
        queue.on_event(GONE, now)
    raise AssertionError(f"{name} was not tried in {limit} attempts")


def test_unschedulable_pods_do_not_slow_events_down() -> None:
    queue = SchedulingQueue()
    _flood(queue, 500, cpu="64", priority=1000)
    queue.add(pod("placeable", cpu="1"), 1)
    assert _pops_until(queue, "placeable", 1, 3) == 1


def test_a_flood_of_unschedulable_high_priority_pods_does_not_starve_others() -> None:
    """Ten thousand high-priority pods are woken over and over, without back-off."""
    queue = SchedulingQueue(QueueSettings(max_backoff_ms=0))
    _flood(queue, 10_000, priority=1000)
    assert queue.on_event(GONE, 1) == 10_000
    queue.add(pod("placeable"), 2)
    assert _pops_until(queue, "placeable", 2, 20) == 9


def test_a_lower_priority_retry_is_not_starved() -> None:
    queue = SchedulingQueue(QueueSettings(max_backoff_ms=0, retries_in_a_row=4))
    _flood(queue, 300, priority=1000)
    for now in (1, 2):
        assert queue.on_event(GONE, now) == 300
        for _ in range(300):
            attempt = queue.pop(now)
            assert attempt is not None
            queue.mark_unschedulable(attempt.key, RESOURCES, now)
    queue.add(pod("placeable"), 3)
    assert queue.pop(3) is not None
    queue.mark_unschedulable("uid-placeable", RESOURCES, 3)
    assert queue.on_event(GONE, 4) == 301
    assert _pops_until(queue, "placeable", 4, 12) == 5


def test_first_attempts_come_before_retries() -> None:
    queue = SchedulingQueue(QueueSettings(max_backoff_ms=0))
    _flood(queue, 50)
    queue.on_event(GONE, 1)
    queue.add(pod("new"), 2)
    queue.add(pod("important", priority=1), 2)
    assert _pops_until(queue, "important", 2, 5) == 1
    assert _pops_until(queue, "new", 2, 5) == 1


def test_more_important_retries_come_before_first_attempts() -> None:
    queue = SchedulingQueue(QueueSettings(max_backoff_ms=0))
    _flood(queue, 3, priority=1)
    queue.on_event(GONE, 1)
    queue.add(pod("new"), 2)
    found = [queue.pop(2) for _ in range(4)]
    assert [each.pod.spec.priority for each in found if each is not None] == [1, 1, 1, None]


def test_new_pods_do_not_starve_retries() -> None:
    queue = SchedulingQueue(QueueSettings(max_backoff_ms=0, retries_in_a_row=8))
    queue.add(pod("again"), 0)
    assert queue.pop(0) is not None
    queue.mark_unschedulable("uid-again", RESOURCES, 0)
    queue.on_event(GONE, 1)
    for number in range(20):
        queue.add(pod(f"new-{number}"), 1)
        attempt = queue.pop(1)
        assert attempt is not None
        if attempt.pod.metadata.name == "again":
            break
        queue.done(attempt.key, 1)
    assert number == 8


def test_a_new_pod_is_never_passed_by_a_less_important_one() -> None:
    queue = SchedulingQueue(QueueSettings(max_backoff_ms=0, retries_in_a_row=2))
    _flood(queue, 40, priority=9)
    _flood(queue, 40, priority=-9)
    queue.on_event(GONE, 1)
    for number in range(20):
        queue.add(pod(f"new-{number}", priority=0), 1)
    seen, waiting = list[int](), 20
    while waiting:
        attempt = queue.pop(1)
        assert attempt is not None
        priority = attempt.pod.spec.priority or 0
        seen.append(priority)
        waiting -= priority == 0
        queue.done(attempt.key, 1)
    assert -9 not in seen, "while new pods are waiting"


def test_pods_that_keep_failing_are_tried_less_often() -> None:
    """An unschedulable pod that keeps being woken for an hour is tried every ten seconds."""
    queue, tries = SchedulingQueue(), 0
    queue.add(pod("unschedulable"), 0)
    for now in range(0, 3_600_000, 250):
        attempt = queue.pop(now)
        if attempt is not None:
            tries += 1
            queue.mark_unschedulable(attempt.key, RESOURCES, now)
        queue.on_event(GONE, now)
    assert 355 <= tries <= 380


def test_a_node_wakes_the_pods_that_fit() -> None:
    queue = SchedulingQueue(QueueSettings(max_backoff_ms=0))
    _flood(queue, 100, cpu="64")
    queue.add(pod("modest", cpu="2"), 0)
    assert queue.pop(0) is not None
    queue.mark_unschedulable("uid-modest", RESOURCES, 0)
    added = classify_change(None, node("n", cpu="8"))
    assert added is not None
    assert queue.on_event(added, 1) == 1
    found = queue.pop(1)
    assert found is not None
    assert found.pod.metadata.name == "modest"
