"""Events: written asynchronously, counted when repeated, dropped under load."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar

from plimsoll.api import codec
from plimsoll.client import Client
from plimsoll.client.endpoints import EVENTS, EVENTS_V1
from plimsoll.client.transport import Reply, Request
from plimsoll.errors import ApiError, UnreachableError
from plimsoll.scheduler.preemption.result import Preemption
from plimsoll.scheduler.process.event_recorder import SchedulerEventRecorder
from tests.build import pod, pod_group
from tests.coroutines import run_by
from tests.unit.apiserver.build import ApiHarness, run

T = TypeVar("T")


class RecorderFixture:
    """Recorder on an API in memory, with a manual clock."""

    def __init__(self, harness: ApiHarness, **options: Any) -> None:
        self.harness = harness
        self.time = 0.0
        self.recorder = SchedulerEventRecorder(
            harness.client,
            clock=lambda: self.time,
            now=lambda: harness.now + timedelta(seconds=self.time),
            **options,
        )

    async def events(self) -> list[Any]:
        await self.recorder.flush(5)
        listing = await self.harness.client.list(EVENTS_V1, "default")
        return [codec.decode_tree(raw) for raw in listing.items]


def run_scenario(scenario: Callable[[RecorderFixture], Awaitable[T]], **options: Any) -> T:
    async def on(harness: ApiHarness) -> T:
        return await scenario(RecorderFixture(harness, **options))

    return run(on)


POD = pod("p")


@run_by(run_scenario)
async def test_a_scheduled_pod_gets_an_event_naming_the_node(fixture: RecorderFixture) -> None:
    fixture.recorder.scheduled(POD, "node-1")
    (event,) = await fixture.events()
    assert event["note"] == "Successfully assigned default/p to node-1"
    assert (event["reason"], event["action"], event["type"]) == ("Scheduled", "Binding", "Normal")
    assert event["reportingController"] == "plimsoll"
    assert event["regarding"]["uid"] == "uid-p"
    assert "series" not in event
    (core,) = (await fixture.harness.client.list(EVENTS, "default")).items
    assert codec.decode_tree(core)["message"] == "Successfully assigned default/p to node-1"


@run_by(run_scenario)
async def test_repeated_events_are_counted(fixture: RecorderFixture) -> None:
    for _ in range(3):
        fixture.recorder.failed_scheduling(POD, "no room")
        await fixture.recorder.flush(5)
        fixture.time += 30
    (event,) = await fixture.events()
    assert event["series"]["count"] == 3
    assert (event["type"], event["reason"]) == ("Warning", "FailedScheduling")
    assert fixture.recorder.written == 2, "the second time it was too soon"


@run_by(run_scenario)
async def test_events_repeated_before_the_write_are_counted(fixture: RecorderFixture) -> None:
    for _ in range(5):
        fixture.recorder.failed_scheduling(POD, "no room")
    assert len(fixture.recorder) == 1
    (event,) = await fixture.events()
    assert event["series"]["count"] == 5


@run_by(run_scenario)
async def test_other_messages_and_other_pods_are_other_events(fixture: RecorderFixture) -> None:
    fixture.recorder.failed_scheduling(POD, "no room")
    fixture.recorder.failed_scheduling(POD, "no devices")
    fixture.recorder.failed_scheduling(pod("q"), "no room")
    fixture.recorder.awaiting_devices(POD, "n")
    fixture.recorder.preempted(POD, Preemption("n", 0, (POD,), 0, pod("q")))
    notes = sorted(event["note"] for event in await fixture.events())
    assert notes == [
        "Preempted by pod uid-q on node n",
        "no devices",
        "no room",
        "no room",
        "waiting for binding conditions for device on node n",
    ]


@run_by(run_scenario)
async def test_a_victim_of_a_pod_group_gets_an_event_about_the_group(fixture: RecorderFixture) -> None:
    fixture.recorder.preempted(POD, Preemption("n", 0, (POD,), 0, pod("q"), group=pod_group()))
    (event,) = await fixture.events()
    assert event["note"] == "Preempted by podgroup uid-gang on node n"
    assert (event["related"]["kind"], event["related"]["name"]) == ("PodGroup", "gang")
    assert event["related"]["apiVersion"] == "scheduling.k8s.io/v1alpha2"


@run_by(run_scenario)
async def test_an_old_event_is_not_continued(fixture: RecorderFixture) -> None:
    fixture.recorder.failed_scheduling(POD, "no room")
    assert len(await fixture.events()) == 1
    fixture.time += 3600
    fixture.recorder.failed_scheduling(POD, "no room")
    assert len(await fixture.events()) == 2


@run_by(run_scenario)
async def test_an_expired_event_is_created_again(fixture: RecorderFixture) -> None:
    fixture.recorder.failed_scheduling(POD, "no room")
    (event,) = await fixture.events()
    await fixture.harness.client.delete(EVENTS_V1, event["metadata"]["name"], "default")
    for _ in range(2):
        fixture.time += 61
        fixture.recorder.failed_scheduling(POD, "no room")
        await fixture.recorder.flush(5)
    (event,) = await fixture.events()
    assert event["series"]["count"] == 3
    assert fixture.recorder.failed == 1


@run_by(run_scenario, limit=4)
async def test_the_oldest_events_are_dropped(fixture: RecorderFixture) -> None:
    for number in range(10):
        fixture.recorder.failed_scheduling(POD, f"reason {number}")
    assert (len(fixture.recorder), fixture.recorder.dropped) == (4, 6)
    fixture.recorder.failed_scheduling(POD, "reason 0")  # was dropped: it is said again
    assert sorted(event["note"] for event in await fixture.events()) == [
        "reason 0", "reason 7", "reason 8", "reason 9",
    ]  # fmt: skip


@run_by(run_scenario)
async def test_long_texts_are_cut(fixture: RecorderFixture) -> None:
    fixture.recorder.failed_scheduling(POD, "x" * 5000)
    fixture.recorder.failed_scheduling(pod("y" * 253), "z")
    events = await fixture.events()
    assert sorted(len(event["note"]) for event in events) == [1, 1024]


@run_by(run_scenario)
async def test_event_names_are_unique(fixture: RecorderFixture) -> None:
    for number in range(20):
        fixture.recorder.failed_scheduling(POD, f"{number}")
    assert len({event["metadata"]["name"] for event in await fixture.events()}) == 20


class Refusing:
    """Transport that answers nothing, or with an error."""

    def __init__(self, code: int) -> None:
        self.code = code
        self.requests = 0

    async def send(self, request: Request) -> Reply:
        self.requests += 1
        if not self.code:
            raise UnreachableError("no answer", sent=True)
        return Reply(self.code, {}, b"")

    def stream(self, request: Request) -> Any:
        raise NotImplementedError

    async def renew(self) -> bool:
        return False

    async def close(self) -> None:
        return None


def test_failed_events_are_dropped() -> None:
    for code in (0, 403, 404, 422, 500):

        async def scenario(code: int = code) -> tuple[int, int]:
            recorder = SchedulerEventRecorder(Client(Refusing(code)))
            recorder.scheduled(POD, "n")
            await recorder.flush(5)
            return recorder.failed, recorder.written

        assert asyncio.run(scenario()) == (1, 0)


def test_recording_never_waits_and_bindings_go_first() -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(0)

    async def scenario(fixture: RecorderFixture) -> None:
        task = asyncio.create_task(fixture.recorder.run())
        for number in range(5):
            fixture.recorder.failed_scheduling(POD, f"{number}")
        for _ in range(200):
            await asyncio.sleep(0)
            if fixture.recorder.written == 5:
                break
        assert fixture.recorder.written == 5
        assert len(pauses) == 5, "one for each, while others are busy"
        fixture.recorder.failed_scheduling(POD, "later")
        while fixture.recorder.written < 6:
            await asyncio.sleep(0)
        task.cancel()

    run_scenario(scenario, is_busy=lambda: True, sleep=sleep)


@run_by(run)
async def test_a_lost_response_does_not_duplicate_an_event(harness: ApiHarness) -> None:
    recorder = SchedulerEventRecorder(harness.client, now=lambda: harness.now)
    send = harness.client.transport.send  # the wire itself
    lost = [True]

    async def lossy(request: Request) -> Reply:
        reply = await send(request)
        if lost and request.method == "POST":
            lost.clear()
            raise UnreachableError("no answer", sent=True)
        return reply

    harness.client.transport.send = lossy  # type: ignore[method-assign]
    for _ in range(2):
        recorder.failed_scheduling(POD, "no room")
        await recorder.flush(5)
    assert recorder.failed == 1
    assert len((await harness.client.list(EVENTS_V1, "default")).items) == 1


@run_by(run_scenario)
async def test_errors_of_events(fixture: RecorderFixture) -> None:
    fixture.recorder.failed_scheduling(pod("p", namespace="no-such"), "no room")
    await fixture.recorder.flush(5)
    assert fixture.recorder.failed == 1
    try:
        await fixture.harness.client.list(EVENTS_V1, "no-such")
    except ApiError:
        raise AssertionError from None
