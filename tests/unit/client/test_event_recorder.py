"""Recorder of events, with the rights of a node: it may write events but not read them."""

from __future__ import annotations

from typing import Any

from plimsoll.api import codec
from plimsoll.api.meta import ObjectReference
from plimsoll.apiserver.auth.users import node_user
from plimsoll.apiserver.process import ServerSettings, start_server
from plimsoll.client.endpoints import EVENTS
from plimsoll.client.event_recorder import EventRecord, EventRecorder
from plimsoll.common.clock import SystemClock

RECORD = EventRecord(
    ObjectReference(kind="Node", name="n1", uid="1"),
    "BackOff",
    "it fails",
    "kubelet",
    host="n1",
    annotations={"a": "b"},
)


async def test_events_are_counted_also_after_a_restart_and_when_they_have_expired() -> None:
    server = await start_server(ServerSettings(controllers=False))
    try:
        admin = server.client()

        async def events() -> list[dict[str, Any]]:
            return [codec.decode_tree(raw) for raw in (await admin.list(EVENTS)).items]

        async def record(recorder: EventRecorder, times: int) -> None:
            for _ in range(times):
                await recorder.record(RECORD)

        recorder = EventRecorder(server.client(node_user("n1")), SystemClock())
        await record(recorder, 3)
        assert [event["count"] for event in await events()] == [3]
        recorder = EventRecorder(server.client(node_user("n1")), SystemClock())
        await record(recorder, 2)
        (event,) = await events()
        assert event["count"] == 5
        assert event["metadata"]["annotations"] == {"a": "b"}
        await admin.delete(EVENTS, event["metadata"]["name"], "default")
        await record(recorder, 1)
        assert [event["count"] for event in await events()] == [1]
    finally:
        await server.stop()
