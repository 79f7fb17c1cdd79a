"""Scheduling queue: order, back-off, gates, holds, events in flight, updates and removals."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from plimsoll.api.core import Pod
from plimsoll.ledger.verdict import VerdictCode
from plimsoll.scheduler.events import (
    ClusterEvent,
    EventKind,
    classify_change,
    make_release_event,
)
from plimsoll.scheduler.pod_claims import ClaimMessage
from plimsoll.scheduler.queue import QueuedPodInfo, QueueSettings, QueueState, SchedulingQueue
from plimsoll.scheduler.queue.backoff import backoff_ms
from plimsoll.scheduler.queue.in_flight_events import InFlightEvents
from plimsoll.scheduler.reasons import NodeReason, Rule
from tests.build import claim, node, pod

RESOURCES = frozenset({Rule.RESOURCES})
DEVICES = frozenset({Rule.DEVICES})
#: No attempt before its time, unless a test is about that.
PATIENT = QueueSettings(eager_failures=0)


def named(attempt: QueuedPodInfo | None) -> str | None:
    return None if attempt is None else attempt.pod.metadata.name


def drain(queue: SchedulingQueue, now: int) -> list[str]:
    """Pop all pods, each done at once."""
    found = []
    while (attempt := queue.pop(now)) is not None:
        found.append(attempt.pod.metadata.name)
        queue.done(attempt.key, now)
    return found


def missing(name: str) -> NodeReason:
    return NodeReason(Rule.DEVICES, ClaimMessage.MISSING, VerdictCode.UNRESOLVABLE, {"claim": name})


NOT_MADE = NodeReason(Rule.DEVICES, ClaimMessage.NOT_CREATED, VerdictCode.UNRESOLVABLE, {"pod": "p"})


def gone(name: str = "other", **fields: Any) -> ClusterEvent:
    found = classify_change(pod(name, node="n", **fields), None)
    assert found is not None
    return found


# -- order


def test_pods_are_ordered_by_priority_then_age() -> None:
    queue = SchedulingQueue()
    for number, (name, priority) in enumerate([("a", 0), ("b", 5), ("c", None), ("d", 5), ("e", -1)]):
        queue.add(pod(name, priority=priority), number)
    assert drain(queue, 10) == ["b", "d", "a", "c", "e"]


def test_pods_added_at_the_same_time_keep_their_order() -> None:
    queue = SchedulingQueue()
    names = [f"p{number}" for number in (3, 1, 2, 9, 7)]
    for name in names:
        queue.add(pod(name), 0)
    assert drain(queue, 0) == names


def test_popped_pods_have_attempts_and_times() -> None:
    queue = SchedulingQueue(PATIENT)
    queue.add(pod("p"), 5)
    assert queue.pop(7) == QueuedPodInfo(pod("p"), "uid-p", 1, 5, 7)
    queue.retry("uid-p", 8)
    assert queue.pop(1008) == QueuedPodInfo(pod("p"), "uid-p", 2, 5, 7)


def test_adding_a_pod_twice_updates_it() -> None:
    queue = SchedulingQueue()
    queue.add(pod("p"), 0)
    queue.add(pod("p", priority=3), 1)
    assert len(queue) == 1
    assert queue.lengths()["active"] == 1
    assert drain(queue, 1) == ["p"]


# -- back-off


@pytest.mark.parametrize(
    ("failures", "wait"), [(0, 0), (1, 1000), (2, 2000), (3, 4000), (4, 8000), (5, 10_000), (90_000, 10_000)]
)
def test_each_failure_doubles_the_wait(failures: int, wait: int) -> None:
    assert backoff_ms(QueueSettings(), failures) == wait


def test_no_backoff_at_all() -> None:
    assert backoff_ms(QueueSettings(max_backoff_ms=0), 3) == 0


def test_errors_back_off_and_come_back_by_time() -> None:
    queue = SchedulingQueue()
    queue.add(pod("p"), 0)
    now = 0
    for wait in (1000, 2000, 4000, 8000, 10_000):
        assert named(queue.pop(now)) == "p"
        queue.retry("uid-p", now)
        assert queue.next_due(now) == wait
        assert queue.pop(now + wait - 1) is None
        assert queue.lengths()["backoff"] == 1
        now += wait
    assert named(queue.pop(now)) == "p"


def test_a_rejection_resets_the_error_count() -> None:
    queue = SchedulingQueue(PATIENT)
    queue.add(pod("p"), 0)
    for now in (0, 1000):
        assert queue.pop(now) is not None
        queue.retry("uid-p", now)
    assert queue.pop(3000) is not None
    queue.mark_unschedulable("uid-p", RESOURCES, 3000)
    assert queue.on_event(gone(), 3000) == 1
    assert queue.next_due(3000) == 1000, "its first failure"
    assert queue.pop(4000) is not None
    queue.retry("uid-p", 4000)
    assert queue.next_due(4000) == 1000, "its first error since"


def test_a_pod_that_is_woken_waits_for_the_end_of_its_backoff() -> None:
    queue = SchedulingQueue(PATIENT)
    queue.add(pod("p"), 0)
    queue.pop(0)
    queue.mark_unschedulable("uid-p", RESOURCES, 0)
    assert queue.state_of("uid-p") is QueueState.UNSCHEDULABLE
    assert queue.pop(5000) is None, "time alone does not help it"
    assert queue.on_event(gone(), 5000) == 1
    assert named(queue.pop(5000)) == "p"
    queue.mark_unschedulable("uid-p", RESOURCES, 5000)
    assert queue.on_event(gone(), 5001) == 1
    assert queue.state_of("uid-p") is QueueState.BACKOFF
    assert queue.next_due(5001) == 1999
    assert queue.pop(6999) is None
    assert named(queue.pop(7000)) == "p"


def test_a_woken_pod_skips_backoff_if_the_queue_is_empty() -> None:
    queue = SchedulingQueue(QueueSettings(eager_tries=2))
    queue.add(pod("p"), 0)
    assert named(queue.pop(0)) == "p"
    for now in (1, 2):
        queue.mark_unschedulable("uid-p", RESOURCES, now)
        queue.on_event(gone(), now)
        queue.add(pod("new"), now)
        assert named(queue.pop(now)) == "new"
        queue.done("uid-new", now)
        assert queue.next_due(now) == 0
        assert named(queue.pop(now)) == "p"
    queue.mark_unschedulable("uid-p", RESOURCES, 3)
    queue.on_event(gone(), 3)
    assert queue.pop(3) is None, "that is enough for one back-off"
    assert queue.next_due(3) == 998, "which has not become longer"
    assert named(queue.pop(1001)) == "p"
    queue.mark_unschedulable("uid-p", RESOURCES, 1001)
    queue.on_event(gone(), 1002)
    assert named(queue.pop(1002)) == "p", "and again in the next"
    queue.mark_unschedulable("uid-p", RESOURCES, 1002)
    assert queue.pop(4000) is None


def test_pods_that_failed_often_wait_for_their_backoff() -> None:
    queue = SchedulingQueue(QueueSettings(eager_failures=2))
    queue.add(pod("p"), 0)
    for now in (0, 5000, 10_000):
        queue.on_event(gone(), now)
        assert named(queue.pop(now)) == "p"
        queue.mark_unschedulable("uid-p", RESOURCES, now)
    queue.on_event(gone(), 10_001)
    assert queue.pop(13_999) is None
    assert queue.next_due(13_000) == 1000


def test_backoff_resets_after_a_long_wait() -> None:
    queue = SchedulingQueue(PATIENT)
    queue.add(pod("p"), 0)
    now = 0
    for wait in (1000, 2000, 4000, 8000, 10_000):
        assert queue.pop(now) is not None
        queue.mark_unschedulable("uid-p", RESOURCES, now)
        queue.on_event(gone(), now)
        assert queue.next_due(now) == wait
        now += 20_000 if wait == 10_000 else wait
    assert queue.pop(now) is not None
    queue.mark_unschedulable("uid-p", RESOURCES, now)
    queue.on_event(gone(), now)
    assert queue.next_due(now) == 10_000, "twenty seconds are not long"
    now += 20_001
    assert queue.pop(now) is not None
    queue.mark_unschedulable("uid-p", RESOURCES, now)
    queue.on_event(gone(), now)
    assert queue.next_due(now) == 1000


def test_a_pod_after_an_error_is_never_early() -> None:
    queue = SchedulingQueue()
    queue.add(pod("p"), 0)
    queue.pop(0)
    queue.retry("uid-p", 0)
    queue.on_event(gone(), 1)
    assert queue.pop(1) is None
    assert queue.next_due(1) == 999


def test_unschedulable_pods_are_flushed_after_a_timeout() -> None:
    queue = SchedulingQueue()
    queue.add(pod("p"), 0)
    queue.pop(0)
    queue.mark_unschedulable("uid-p", RESOURCES, 10)
    assert queue.next_due(10) == 300_000
    assert queue.pop(300_009) is None
    assert named(queue.pop(300_010)) == "p"


def test_without_rejecting_plugins_every_event_wakes_the_pod() -> None:
    queue = SchedulingQueue(PATIENT)
    queue.add(pod("p"), 0)
    queue.pop(0)
    queue.mark_unschedulable("uid-p", frozenset(), 0)
    assert queue.state_of("uid-p") is QueueState.UNSCHEDULABLE
    event = classify_change(None, node("n"))
    assert event is not None
    assert queue.on_event(event, 2000) == 1
    assert named(queue.pop(2000)) == "p"


# -- gates and holds


def test_a_gated_pod_waits_until_its_gates_are_gone() -> None:
    queue = SchedulingQueue()
    queue.add(pod("p", scheduling_gates=[{"name": "one"}, {"name": "two"}]), 0)
    assert queue.pop(0) is None
    assert queue.lengths()["gated"] == 1
    queue.update(pod("p", scheduling_gates=[{"name": "two"}]), 1)
    queue.activate(["uid-p"], 1)
    assert queue.pop(1_000_000) is None
    assert queue.next_due(1) is None
    queue.update(pod("p"), 2)
    assert named(queue.pop(2)) == "p"
    assert queue.lengths()["gated"] == 0


def test_a_pod_waiting_for_a_claim_is_woken_by_that_claim_only() -> None:
    queue = SchedulingQueue()
    queue.add(pod("p", claims=["mine", "also"]), 0)
    attempt = queue.pop(0)
    assert attempt is not None
    queue.hold(attempt.pod, missing("mine"), 0)
    assert queue.state_of("uid-p") is QueueState.HELD
    assert queue.lengths()["gated"] == 1
    assert queue.next_due(0) is None
    assert queue.pop(1_000_000) is None
    for other in ("also", "else"):
        event = classify_change(None, claim(other))
        assert event is not None
        assert queue.on_event(event, 1) == 0
    elsewhere = classify_change(None, claim("mine", namespace="away"))
    assert elsewhere is not None
    assert queue.on_event(elsewhere, 1) == 0
    mine = classify_change(None, claim("mine"))
    assert mine is not None
    assert queue.on_event(mine, 2) == 1
    again = queue.pop(2)
    assert again is not None
    assert again.attempts == 1, "being held is no attempt"
    assert again.first_tried_at == 2


def test_a_pod_held_for_a_generated_claim_comes_back_by_its_own_status() -> None:
    queue = SchedulingQueue()
    template: dict[str, Any] = {"resource_claims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]}
    waiting = pod("p", **template)
    queue.hold(waiting, NOT_MADE, 0)
    assert queue.pop(0) is None
    queue.update(msgspec.structs.replace(waiting, status=pod("p", status={"phase": "Pending"}).status), 1)
    assert queue.pop(1) is None, "that is not what it waits for"
    made = pod(
        "p", status={"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "p-gpu"}]}, **template
    )
    queue.update(made, 2)
    assert named(queue.pop(2)) == "p"


def test_a_claim_that_comes_while_its_pod_is_looked_at_is_not_missed() -> None:
    queue = SchedulingQueue()
    queue.add(pod("p", claims=["mine"]), 0)
    attempt = queue.pop(0)
    assert attempt is not None
    mine = classify_change(None, claim("mine"))
    assert mine is not None
    queue.on_event(mine, 0)
    queue.hold(attempt.pod, missing("mine"), 0)
    assert named(queue.pop(0)) == "p"


def test_a_pod_held_for_an_assumed_claim_is_released_with_it() -> None:
    """Two pods share a claim; the binding of the first fails."""
    queue, pending = SchedulingQueue(), ClaimMessage.PENDING
    queue.add(pod("second", claims=["mine"]), 0)
    attempt = queue.pop(0)
    assert attempt is not None
    why = NodeReason(Rule.DEVICES, pending, VerdictCode.UNRESOLVABLE, {"claim": "default/mine"})
    queue.hold(attempt.pod, why, 0)
    assert queue.on_event(make_release_event(pod("else", claims=["yours"])), 1) == 0
    assert queue.on_event(make_release_event(pod("first", claims=["mine"])), 1) == 1
    assert named(queue.pop(1)) == "second"
    queue.hold(attempt.pod, why, 1)
    written = classify_change(claim("mine"), claim("mine", reserved=["first"]))
    assert written is not None
    assert queue.on_event(written, 2) == 1


# -- events in flight


def test_events_during_an_attempt_are_not_lost() -> None:
    queue = SchedulingQueue(PATIENT)
    queue.add(pod("p"), 0)
    queue.pop(0)
    assert queue.on_event(gone(), 1) == 0
    queue.mark_unschedulable("uid-p", RESOURCES, 2)
    assert queue.state_of("uid-p") is QueueState.BACKOFF
    assert named(queue.pop(1002)) == "p"


def test_events_in_flight_that_cannot_help_are_ignored() -> None:
    queue = SchedulingQueue(PATIENT)
    queue.add(pod("p"), 0)
    queue.pop(0)
    queue.on_event(ClusterEvent(EventKind.TAINT_RULE_CHANGED), 1)
    queue.mark_unschedulable("uid-p", RESOURCES, 2)
    assert queue.state_of("uid-p") is QueueState.UNSCHEDULABLE


def test_events_before_the_attempt_are_ignored() -> None:
    queue = SchedulingQueue(PATIENT)
    queue.add(pod("early"), 0)
    queue.add(pod("late"), 0)
    queue.pop(0)
    queue.on_event(gone(), 1)
    queue.pop(2)
    queue.mark_unschedulable("uid-late", RESOURCES, 3)
    queue.mark_unschedulable("uid-early", RESOURCES, 3)
    assert queue.state_of("uid-late") is QueueState.UNSCHEDULABLE
    assert queue.state_of("uid-early") is QueueState.BACKOFF


def test_in_flight_events_are_bounded() -> None:
    log = InFlightEvents(kept=3)
    log.begin("long")
    for _ in range(3):
        log.add(gone())
    log.begin("short")
    assert len(log.since("long") or ()) == 3
    assert log.since("short") == []
    log.add(gone())
    assert log.since("long") is None
    assert len(log.since("short") or ()) == 1
    log.end("long")
    assert len(log.since("short") or ()) == 1
    log.end("short")
    assert log.since("short") == []
    assert len(log) == 0


def test_a_pod_whose_missed_events_were_dropped_is_retried() -> None:
    queue = SchedulingQueue(PATIENT)
    queue.log = InFlightEvents(kept=2)
    queue.add(pod("p"), 0)
    queue.pop(0)
    for _ in range(3):
        queue.on_event(ClusterEvent(EventKind.TAINT_RULE_CHANGED), 1)
    queue.mark_unschedulable("uid-p", RESOURCES, 2)
    assert queue.state_of("uid-p") is QueueState.BACKOFF


def test_an_update_in_flight_counts_after_it() -> None:
    queue = SchedulingQueue(PATIENT)
    queue.add(pod("p"), 0)
    queue.pop(0)
    queue.update(pod("p", tolerations=[{"operator": "Exists"}]), 1)
    queue.mark_unschedulable("uid-p", frozenset({Rule.TAINTS}), 2)
    assert queue.state_of("uid-p") is QueueState.BACKOFF
    again = queue.pop(1002)
    assert again is not None
    assert again.pod.spec.tolerations, "the pod as it is now"


# -- pods that change


def test_conditions_do_not_wake_a_pod() -> None:
    queue = SchedulingQueue()
    queue.add(pod("p"), 0)
    queue.pop(0)
    queue.mark_unschedulable("uid-p", RESOURCES, 0)
    unschedulable_status = {
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    }
    queue.update(pod("p", status=unschedulable_status, metadata={"resourceVersion": "7"}), 60_000)
    assert queue.state_of("uid-p") is QueueState.UNSCHEDULABLE
    assert queue.pod("uid-p") == pod("p", status=unschedulable_status, metadata={"resourceVersion": "7"})


@pytest.mark.parametrize(
    ("rule", "change", "woken"),
    [
        (Rule.TAINTS, {"tolerations": [{"operator": "Exists"}]}, True),
        (Rule.RESOURCES, {"tolerations": [{"operator": "Exists"}]}, False),
        (Rule.INTER_POD, {"labels": {"a": "b"}}, True),
        (Rule.TAINTS, {"labels": {"a": "b"}}, False),
        (Rule.NODE_AFFINITY, {"node_selector": {"a": "b"}}, True),
        (Rule.RESOURCES, {"cpu": "1"}, True),
        (Rule.DEVICES, {"status": {"resourceClaimStatuses": [{"name": "x"}]}}, True),
        (Rule.RESOURCES, {"priority": 7}, True),
        (Rule.DEVICES, {"restart_policy": "Never"}, False),
    ],
)
def test_a_change_of_the_pod_itself(rule: Rule, change: dict[str, Any], woken: bool) -> None:
    queue = SchedulingQueue()
    queue.add(pod("p"), 0)
    queue.pop(0)
    queue.mark_unschedulable("uid-p", frozenset({rule}), 0)
    queue.update(pod("p", **change), 5000)
    assert (queue.state_of("uid-p") is QueueState.ACTIVE) is woken


def test_a_priority_that_changes_changes_the_order() -> None:
    queue = SchedulingQueue()
    for name in ("a", "b", "c"):
        queue.add(pod(name, priority=1), 0)
    queue.update(pod("c", priority=2), 1)
    queue.update(pod("a", priority=0), 1)
    assert drain(queue, 1) == ["c", "b", "a"]


@pytest.mark.parametrize(
    "end",
    [
        pod("p", node="n"),
        pod("p", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
        pod("p", status={"phase": "Failed"}),
    ],
)
@pytest.mark.parametrize("where", [each for each in QueueState if each is not QueueState.IN_FLIGHT])
def test_a_bound_pod_is_removed_from_every_queue(end: Pod, where: QueueState) -> None:
    queue = _with_pod_in(where)
    queue.update(end, 1)
    assert "uid-p" not in queue
    assert not len(queue)
    assert not any(queue.lengths().values())
    assert queue.pop(10_000_000) is None


@pytest.mark.parametrize("where", [each for each in QueueState if each is not QueueState.IN_FLIGHT])
def test_a_deleted_pod_is_removed_from_every_queue(where: QueueState) -> None:
    queue = _with_pod_in(where)
    queue.remove("uid-p")
    queue.remove("uid-p")
    assert not len(queue)
    assert not any(queue.lengths().values())
    event = classify_change(None, claim("mine"))
    assert event is not None
    assert queue.on_event(event, 2) == 0


def _with_pod_in(where: QueueState) -> SchedulingQueue:
    queue = SchedulingQueue(PATIENT)
    gates = [{"name": "gate"}] if where is QueueState.GATED else []
    queue.add(pod("p", claims=["mine"], scheduling_gates=gates), 0)
    if where is QueueState.HELD:
        queue.hold(pod("p", claims=["mine"]), missing("mine"), 0)
    elif where in (QueueState.BACKOFF, QueueState.UNSCHEDULABLE):
        queue.pop(0)
        if where is QueueState.BACKOFF:
            queue.retry("uid-p", 0)
        else:
            queue.mark_unschedulable("uid-p", DEVICES, 0)
    assert queue.state_of("uid-p") is where
    return queue


@pytest.mark.parametrize("how", ["done", "fail", "retry", "hold"])
@pytest.mark.parametrize("back", [False, True])
def test_a_pod_deleted_in_flight(how: str, back: bool) -> None:
    queue = SchedulingQueue()
    queue.add(pod("p"), 0)
    queue.pop(0)
    queue.remove("uid-p")
    if back:
        queue.add(pod("p", priority=4), 1)
    if how == "done":
        queue.done("uid-p", 2)
    elif how == "fail":
        queue.mark_unschedulable("uid-p", RESOURCES, 2)
    elif how == "retry":
        queue.retry("uid-p", 2)
    else:
        queue.hold(pod("p"), missing("x"), 2)
    assert queue.in_flight() == 0
    found = queue.pop(2)
    assert (found is not None) is back
    if found is not None:
        assert found.attempts == 1, "it is as if it were new"
        assert found.pod.spec.priority == 4


def test_results_of_pods_that_are_not_in_flight_are_ignored() -> None:
    queue = SchedulingQueue()
    queue.add(pod("p"), 0)
    queue.done("uid-p", 0)
    queue.mark_unschedulable("uid-p", RESOURCES, 0)
    queue.retry("uid-p", 0)
    queue.mark_unschedulable("uid-unknown", RESOURCES, 0)
    assert queue.state_of("uid-p") is QueueState.ACTIVE
    assert len(queue) == 1


# -- activation


def test_an_activated_pod_does_not_back_off() -> None:
    queue = SchedulingQueue(PATIENT)
    for name in ("slept", "backed", "flew"):
        queue.add(pod(name), 0)
    for _ in range(3):
        queue.pop(0)
    queue.mark_unschedulable("uid-slept", RESOURCES, 0)
    queue.retry("uid-backed", 0)
    assert queue.activate(["uid-slept", "uid-backed", "uid-flew", "uid-unknown"], 1) == 3
    queue.mark_unschedulable("uid-flew", RESOURCES, 2)
    assert drain(queue, 2) == ["slept", "backed", "flew"]


def test_a_released_placement_wakes_others() -> None:
    queue = SchedulingQueue()
    queue.add(pod("p", cpu="1"), 0)
    queue.pop(0)
    queue.mark_unschedulable("uid-p", RESOURCES, 0)
    assert queue.on_event(make_release_event(pod("assumed", cpu="1")), 1) == 1


def test_lengths_for_metrics() -> None:
    queue = SchedulingQueue()
    for name in ("a", "b", "c"):
        queue.add(pod(name), 0)
        queue.pop(0)
    queue.mark_unschedulable("uid-a", RESOURCES, 0)
    queue.mark_unschedulable("uid-b", RESOURCES | DEVICES, 0)
    assert queue.in_flight() == 1
    assert len(queue) == 3
    assert queue.unschedulable_by_rule() == {Rule.RESOURCES: 2, Rule.DEVICES: 1}
    assert queue.lengths() == {"active": 0, "backoff": 0, "unschedulable": 2, "gated": 0}
    queue.on_event(gone(), 1)
    assert queue.unschedulable_by_rule() == {}
    assert {each.metadata.name for each in queue} == {"a", "b", "c"}
