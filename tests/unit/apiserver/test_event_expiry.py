"""Tests of event expiry."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from plimsoll.apiserver.event_expiry import expire_events
from tests.unit.apiserver.build import Bench, run

EVENTS = "/api/v1/namespaces/default/events"


def event(name: str, **more: Any) -> dict[str, Any]:
    about = {"kind": "Pod", "name": "p", "namespace": "default"}
    return {"metadata": {"name": name}, "involvedObject": about, "reason": "R", "type": "Normal", **more}


def test_old_events_go_and_those_seen_again_stay() -> None:
    async def scenario(bench: Bench) -> None:
        for number in range(450):
            assert (await bench.request("POST", EVENTS, event(f"old-{number}")))[0] == 201
        seen = (bench.now + timedelta(minutes=50)).strftime("%Y-%m-%dT%H:%M:%SZ")
        await bench.request("POST", EVENTS, event("seen-again", lastTimestamp=seen))
        bench.now += timedelta(minutes=59)
        await bench.request("POST", EVENTS, event("new"))
        assert await expire_events(bench.context) == 0
        bench.now += timedelta(minutes=2)
        assert await expire_events(bench.context) == 450
        _, left = await bench.request("GET", EVENTS)
        assert [item["metadata"]["name"] for item in left["items"]] == ["new", "seen-again"]

    run(scenario)
