"""Watches: order, resumption, selectors, bookmarks, initial events, and compacted versions."""

from __future__ import annotations

import asyncio
import json

from plimsoll.client import Client, WatchEvent
from plimsoll.client.endpoints import CONFIG_MAPS
from plimsoll.errors import ApiError
from tests.cluster.calls import refused, seen, take
from tests.cluster.target import Target
from tests.coroutines import run_by
from tests.manifests import config_map
from tests.waiting import DEADLINE


@run_by(Target.run_scenario, "target")
async def test_events_are_in_the_order_of_the_writes(client: Client, namespace: str) -> None:
    start = (await client.list(CONFIG_MAPS, namespace)).revision
    watching = asyncio.create_task(take(client, namespace, 5, since=start))
    await asyncio.sleep(0.1)
    await client.create(CONFIG_MAPS, config_map("a", x="1"), namespace)
    await client.create(CONFIG_MAPS, config_map("b"), namespace)
    await client.patch(CONFIG_MAPS, "a", {"data": {"x": "2"}}, namespace)
    await client.delete(CONFIG_MAPS, "a", namespace)
    await client.delete(CONFIG_MAPS, "b", namespace)
    events = await watching
    assert [seen(event) for event in events] == [
        ("ADDED", "a"),
        ("ADDED", "b"),
        ("MODIFIED", "a"),
        ("DELETED", "a"),
        ("DELETED", "b"),
    ]
    revisions = [int(event.revision) for event in events]
    assert revisions == sorted(set(revisions))
    assert json.loads(events[2].raw)["data"] == {"x": "2"}
    last = json.loads(events[3].raw)
    assert last["data"] == {"x": "2"}
    assert last["metadata"]["resourceVersion"] == events[3].revision


@run_by(Target.run_scenario, "target")
async def test_a_watch_resumes_at_any_version(client: Client, namespace: str) -> None:
    start = (await client.list(CONFIG_MAPS, namespace)).revision
    for n in range(4):
        await client.create(CONFIG_MAPS, config_map(f"c{n}"), namespace)
    everything = await take(client, namespace, 4, since=start)
    assert [seen(event)[1] for event in everything] == ["c0", "c1", "c2", "c3"]
    for place, event in enumerate(everything[:-1]):
        rest = await take(client, namespace, 3 - place, since=event.revision)
        assert rest == everything[place + 1 :]


@run_by(Target.run_scenario, "target")
async def test_a_watch_without_a_version_begins_with_existing_objects(client: Client, namespace: str) -> None:
    await client.create(CONFIG_MAPS, config_map("a"), namespace)
    await client.create(CONFIG_MAPS, config_map("b"), namespace)
    for since in ("", "0"):
        events = await take(client, namespace, 2, since=since)
        assert {seen(event) for event in events} == {("ADDED", "a"), ("ADDED", "b")}


@run_by(Target.run_scenario, "target")
async def test_objects_enter_and_leave_a_selector(client: Client, namespace: str) -> None:
    start = (await client.list(CONFIG_MAPS, namespace)).revision
    await client.create(CONFIG_MAPS, config_map("a", labels={"x": "no"}), namespace)
    for value in ("yes", "yes", "no", "yes"):
        patch = {"metadata": {"labels": {"x": value}}, "data": {"n": value * 2}}
        await client.patch(CONFIG_MAPS, "a", patch, namespace)
    await client.patch(CONFIG_MAPS, "a", {"data": {"n": "3"}}, namespace)
    await client.delete(CONFIG_MAPS, "a", namespace)
    events = await take(client, namespace, 5, since=start, labels="x=yes")
    assert [event.type for event in events] == ["ADDED", "DELETED", "ADDED", "MODIFIED", "DELETED"]
    revisions = [int(event.revision) for event in events]
    assert revisions == sorted(set(revisions))
    named = await take(client, namespace, 2, since=start, fields="metadata.name=a")
    assert [seen(event) for event in named] == [("ADDED", "a"), ("MODIFIED", "a")]


@run_by(Target.run_scenario, "target")
async def test_initial_events_end_with_a_bookmark(client: Client, namespace: str) -> None:
    for name in ("a", "b"):
        await client.create(CONFIG_MAPS, config_map(name), namespace)
    events: list[WatchEvent] = []
    async for event in client.watch(CONFIG_MAPS, namespace, initial=True):
        events.append(event)
        if len(events) == 3:
            await client.create(CONFIG_MAPS, config_map("c"), namespace)
        if len(events) == 4:
            break
    assert {seen(event) for event in events[:2]} == {("ADDED", "a"), ("ADDED", "b")}
    assert events[2].type == "BOOKMARK"
    bookmark = json.loads(events[2].raw)
    assert bookmark["kind"] == "ConfigMap"
    assert bookmark["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert int(events[2].revision) >= max(int(event.revision) for event in events[:2])
    assert seen(events[3]) == ("ADDED", "c")


@run_by(Target.run_scenario, "target")
async def test_a_watch_ends_after_its_timeout(client: Client, namespace: str) -> None:
    start = (await client.list(CONFIG_MAPS, namespace)).revision
    began = asyncio.get_running_loop().time()
    async for event in client.watch(CONFIG_MAPS, namespace, since=start, seconds=1):
        assert event.type == "BOOKMARK"
    assert 0.5 < asyncio.get_running_loop().time() - began < DEADLINE


@run_by(Target.run_scenario, "target")
async def test_a_version_that_is_gone_is_410(client: Client, namespace: str, *, target: Target) -> None:
    await target.age(client)
    error = await refused(take(client, namespace, 1, since="1"))
    assert (error.code, error.reason) == (410, "Expired")


@run_by(Target.run_scenario, "target")
async def test_a_version_from_the_future_is_not_served(client: Client, namespace: str) -> None:
    """An error response or an error event, never a stream."""
    start = int((await client.list(CONFIG_MAPS, namespace)).revision)
    watching = asyncio.create_task(take(client, namespace, 1, since=str(start + 1_000_000), seconds=2))
    await client.create(CONFIG_MAPS, config_map("a"), namespace)
    try:
        assert await watching == []
    except ApiError as error:
        cause = error.details["causes"][0]["reason"]
        if (error.code, cause) != (504, "ResourceVersionTooLarge"):
            raise


@run_by(Target.run_scenario, "target")
async def test_invalid_watch_options_are_refused(client: Client, namespace: str) -> None:
    assert (await refused(take(client, namespace, 1, since="x"))).code >= 400
    assert (await refused(take(client, namespace, 1, labels="a in b"))).code == 400
    path = CONFIG_MAPS.path(namespace)
    query = [("watch", "true"), ("sendInitialEvents", "true")]
    assert (await refused(client.call("GET", path, query=query))).code == 422


@run_by(Target.run_scenario, "target")
async def test_many_watches_see_the_same_events(client: Client, namespace: str) -> None:
    start = (await client.list(CONFIG_MAPS, namespace)).revision
    watching = [asyncio.create_task(take(client, namespace, 20, since=start)) for _ in range(30)]
    await asyncio.sleep(0.1)
    for n in range(20):
        await client.create(CONFIG_MAPS, config_map(f"c{n}"), namespace)
    first, *others = await asyncio.gather(*watching)
    assert all(other == first for other in others)
