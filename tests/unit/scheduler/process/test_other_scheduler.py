"""Two schedulers of one name: noticed by bindings and conditions that this process has not written."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.core import Pod
from plimsoll.client.endpoints import EVENTS, PODS
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.scheduler.process.other_scheduler import OtherSchedulerDetector
from tests.build import pod
from tests.unit.scheduler.process.scheduler_cluster import NS, elected, scheduler_cluster
from tests.waiting import until


class DetectorFixture:
    """Detector with what it asks for as sets."""

    def __init__(self) -> None:
        self.leading = True
        self.placed: dict[str, str] = {}
        self.written: set[tuple[str, str]] = set()
        self.reports: list[str] = []
        self.detector = OtherSchedulerDetector(
            {"mine"},
            is_leading=lambda: self.leading,
            find_node=lambda key: self.placed.get(key, ""),
            has_written=lambda key, message: (key, message) in self.written,
            report=self.reports.append,
        )


def waiting(name: str = "p", message: str = "", scheduler: str = "mine", **fields: Any) -> Pod:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    status = {"conditions": [condition]} if message else {}
    return pod(name, scheduler_name=scheduler, status=status, **fields)


def test_a_binding_of_another_scheduler_is_reported_once() -> None:
    fixture = DetectorFixture()
    for name in ("a", "b"):
        fixture.detector.on_pod_event(None, waiting(name))
        fixture.detector.on_pod_event(waiting(name), waiting(name, node="n1"))
    assert fixture.reports == [
        "another scheduler handles pods with schedulerName mine: it bound pod default/a to node n1; "
        "stop one of the two, or give them different names"
    ]


@pytest.mark.parametrize("case", ["placed", "failed", "not leading", "other name", "created with a node"])
def test_other_bindings_are_not(case: str) -> None:
    fixture = DetectorFixture()
    old: Pod | None = waiting(scheduler="theirs" if case == "other name" else "mine")
    assert old is not None
    new = waiting(scheduler=old.spec.scheduler_name, node="n1")
    match case:
        case "placed":
            fixture.placed[pod_key(old)] = "n1"
        case "failed":
            for node in ("n1", "n2"):
                fixture.detector.on_binding_failed(pod_key(old), node)
            fixture.placed[pod_key(old)] = "n3"
        case "not leading":
            fixture.leading = False
        case "created with a node":
            old = None
    fixture.detector.on_pod_event(old, new)
    assert fixture.reports == []


@pytest.mark.parametrize("is_failed", [False, True])
def test_a_binding_to_another_node_than_ours_is_reported(is_failed: bool) -> None:
    """Both schedulers decide at the same time: ours is refused, or will be."""
    fixture = DetectorFixture()
    if is_failed:
        fixture.detector.on_binding_failed(pod_key(waiting()), "n2")
    else:
        fixture.placed[pod_key(waiting())] = "n2"
    fixture.detector.on_pod_event(waiting(), waiting(message="theirs"))
    assert fixture.reports == []
    fixture.detector.on_pod_event(waiting(), waiting(node="n1"))
    assert len(fixture.reports) == 1


@given(st.lists(st.tuples(st.booleans(), st.sampled_from("abc")), max_size=12))
def test_conditions_of_others_are_reported_from_the_third_on(writes: list[tuple[bool, str]]) -> None:
    """A condition without change, or one that this process has written, is not one of another."""
    fixture, current, foreign = DetectorFixture(), waiting(), 0
    for is_ours, text in writes:
        message = f"{'ours' if is_ours else 'theirs'} {text}"
        if is_ours:
            fixture.written.add((pod_key(current), message))
        changed = waiting(message=message)
        foreign += not is_ours and changed.status != current.status
        fixture.detector.on_pod_event(current, changed)
        current = changed
    assert len(fixture.reports) == (foreign >= 3)


async def test_a_scheduler_reports_another_one_and_no_leader_before_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with scheduler_cluster() as row:
        await row.node("n1", "64")
        await row.pod("before", "65")
        first = await row.start(elected(), "first")
        second = await row.start(elected(), "second")
        await until(lambda: first.scheduling.is_set())
        for number in range(5):
            await row.pod(f"p{number}")
        for number in range(5):
            await row.bound(f"p{number}")
        await row.stop(first)
        await until(lambda: second.scheduling.is_set())
        for number in range(5, 10):
            await row.pod(f"p{number}")
        for number in range(5, 10):
            await row.bound(f"p{number}")
        assert "another scheduler" not in caplog.text
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "before"}}
        with caplog.at_level(logging.ERROR):
            await row.admin.post(PODS, "before", "binding", {**binding, "target": {"name": "n1"}}, NS)
            await until(lambda: "another scheduler" in caplog.text)
        assert caplog.text.count("another scheduler") == 1

        async def reported() -> bool:
            events = await row.admin.list(EVENTS, "kube-system")
            return any(b'"OtherScheduler"' in each and b"plimsoll-scheduler" in each for each in events.items)

        await until(reported)
