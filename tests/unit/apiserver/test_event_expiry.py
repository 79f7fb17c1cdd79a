"""Tests of event expiry."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from plimsoll.apiserver.event_expiry import expire_events
from tests.coroutines import run_by
from tests.unit.apiserver.build import ApiHarness, run

EVENTS = "/api/v1/namespaces/default/events"


def event(name: str, **more: Any) -> dict[str, Any]:
    about = {"kind": "Pod", "name": "p", "namespace": "default"}
    return {"metadata": {"name": name}, "involvedObject": about, "reason": "R", "type": "Normal", **more}


@run_by(run)
async def test_old_events_expire_unless_they_are_seen_again(harness: ApiHarness) -> None:
    for number in range(450):
        assert (await harness.request("POST", EVENTS, event(f"old-{number}")))[0] == 201
    seen = (harness.now + timedelta(minutes=50)).strftime("%Y-%m-%dT%H:%M:%SZ")
    await harness.request("POST", EVENTS, event("seen-again", lastTimestamp=seen))
    harness.now += timedelta(minutes=59)
    await harness.request("POST", EVENTS, event("new"))
    assert await expire_events(harness.context) == 0
    harness.now += timedelta(minutes=2)
    assert await expire_events(harness.context) == 450
    _, left = await harness.request("GET", EVENTS)
    assert [item["metadata"]["name"] for item in left["items"]] == ["new", "seen-again"]
