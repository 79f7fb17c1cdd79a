"""Informers under broken connections, expired histories and failed requests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.client import Client, Endpoint
from plimsoll.client.cache import Keep
from plimsoll.client.endpoints import CONFIG_MAPS
from plimsoll.client.informer import EventHandler, Informer
from plimsoll.errors import ApiError, ConfigError, DecodeError, UnreachableError
from tests.unit.client.fake_api_server import FakeApiServer
from tests.waiting import DEADLINE, until

Tree: TypeAlias = dict[str, Any]


class Mirror(EventHandler[Tree]):
    """Copy built from events; an event that does not fit is an error."""

    def __init__(self) -> None:
        self.objects: dict[str, Tree] = {}
        self.log: list[tuple[str, str, str]] = []

    def on_added(self, new: Tree) -> None:
        name = new["metadata"]["name"]
        assert name not in self.objects
        self.objects[name] = new
        self.log.append(("ADDED", name, new["data"]["v"]))

    def on_changed(self, old: Tree, new: Tree) -> None:
        name = new["metadata"]["name"]
        assert self.objects[name] == old
        assert old["metadata"]["uid"] == new["metadata"]["uid"]
        assert old["metadata"]["resourceVersion"] != new["metadata"]["resourceVersion"]
        self.objects[name] = new
        self.log.append(("MODIFIED", name, new["data"]["v"]))

    def on_removed(self, old: Tree) -> None:
        name = old["metadata"]["name"]
        assert self.objects.pop(name) == old
        self.log.append(("DELETED", name, old["data"]["v"]))


def decode(raw: bytes) -> Tree:
    tree: Tree = json.loads(raw)
    if tree["data"]["v"] == "unreadable":
        raise DecodeError("is not readable", "data.v")
    return tree


async def no_wait(seconds: float) -> None:
    await asyncio.sleep(0)


async def settle() -> None:
    """Run all ready tasks."""
    for _ in range(60):
        await asyncio.sleep(0)


def problem(informer: Informer[Tree]) -> str:
    return str(informer.error or "")


def make(server: FakeApiServer, endpoint: Endpoint = CONFIG_MAPS, **options: Any) -> Informer[Tree]:
    client = Client(server, sleep=no_wait, attempts=2)
    return Informer(client, endpoint, decode, namespace="ns", sleep=no_wait, **options)


@asynccontextmanager
async def running(informer: Informer[Tree]) -> AsyncIterator[None]:
    task = asyncio.create_task(informer.run())
    await settle()
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


names = st.sampled_from(["a", "b", "c", "d", "e"])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), names),
        st.tuples(st.just("remove"), names),
        st.tuples(st.just("cut"), st.integers(0, 400)),
        st.tuples(st.just("end"), st.just(0)),
        st.tuples(st.just("forget"), st.just(0)),
        st.tuples(st.just("fail"), st.integers(1, 4)),
        st.tuples(st.just("settle"), st.just(0)),
        st.tuples(st.just("step"), st.integers(1, 6)),
    ),
    max_size=40,
)


@given(steps, st.integers(1, 3), st.booleans(), st.booleans(), st.integers(0, 3))
def test_events_match_the_changes(
    script: list[tuple[str, Any]], page: int, bookmarks: bool, streamed: bool, early: int
) -> None:
    """Despite all faults the copy is correct and every event fits; without gaps all events are delivered."""

    async def scenario() -> None:
        server = FakeApiServer()
        server.bookmarks = bookmarks
        server.early = early
        server.put("a", "0")
        server.put("e", "0")
        informer = make(server, page=page, streamed=streamed)
        mirror = Mirror()
        informer.add_handler(mirror)
        async with running(informer):
            gaps = False
            for number, (action, value) in enumerate(script, 1):
                if action == "put":
                    server.put(value, str(number))
                elif action == "remove":
                    server.remove(value)
                elif action == "cut":
                    server.cut(value)
                elif action == "end":
                    server.end()
                elif action == "forget":
                    server.forget()
                    gaps = True
                elif action == "fail":
                    server.failures += [UnreachableError("gone", sent=bool(value % 2))] * value
                elif action == "settle":
                    await settle()
                else:
                    for _ in range(value):
                        await asyncio.sleep(0)
            for _ in range(5):
                await settle()
            assert informer.faults == 0
            assert mirror.objects == server.objects
            assert {tree["metadata"]["name"]: tree for tree in informer.items()} == server.objects
            happened = [
                (kind, tree["metadata"]["name"], tree["data"]["v"]) for _, kind, tree in server.history
            ]
            if not gaps:
                assert mirror.log == happened
            assert len(set(mirror.log)) == len(mirror.log)
            if not gaps:
                assert informer.listings == 1

    asyncio.run(scenario())


async def test_an_unknown_resource_version_triggers_a_new_list() -> None:
    """A restarted server may not know the version."""
    server = FakeApiServer()
    server.put("a", "1")
    informer = make(server)
    async with running(informer):
        details = {"causes": [{"reason": "ResourceVersionTooLarge"}]}
        server.failures.append(ApiError(504, "Timeout", "too large", details))
        server.cut()
        await settle()
        assert informer.listings == 2


async def test_a_recreated_object_is_removed_and_added() -> None:
    server = FakeApiServer()
    server.put("a", "1")
    informer = make(server)
    mirror = Mirror()
    informer.add_handler(mirror)
    async with running(informer):
        server.remove("a")
        server.put("a", "2")
        server.forget()
        await settle()
        assert mirror.log == [("ADDED", "a", "1"), ("DELETED", "a", "1"), ("ADDED", "a", "2")]


async def test_an_unreadable_object_keeps_its_last_state() -> None:
    server = FakeApiServer()
    server.put("a", "1")
    server.put("b", "unreadable")
    informer = make(server)
    mirror = Mirror()
    informer.add_handler(mirror)
    async with running(informer):
        server.put("a", "unreadable")
        server.put("c", "1")
        await settle()
        assert informer.faults == 2
        assert mirror.log == [("ADDED", "a", "1"), ("ADDED", "c", "1")]
        server.put("a", "2")
        server.put("b", "2")
        server.remove("b")
        await settle()
        assert mirror.log[2:] == [("MODIFIED", "a", "2"), ("ADDED", "b", "2"), ("DELETED", "b", "2")]


async def test_a_late_handler_receives_the_current_objects() -> None:
    server = FakeApiServer()
    server.put("a", "1")
    server.put("b", "1")
    informer = make(server)
    async with running(informer):
        server.put("a", "2")
        await settle()
        late = Mirror()
        informer.add_handler(late)
        assert late.objects == server.objects
        server.remove("b")
        await settle()
        assert late.log == [("ADDED", "a", "2"), ("ADDED", "b", "1"), ("DELETED", "b", "1")]


async def test_a_failing_handler_is_reported_and_isolated(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(EventHandler[Tree]):
        def on_added(self, new: Tree) -> None:
            raise ValueError("no such luck")

    server = FakeApiServer()
    informer = make(server)
    mirror = Mirror()
    informer.add_handler(Failing())
    informer.add_handler(mirror)
    async with running(informer):
        server.put("a", "1")
        server.put("a", "2")
        await settle()
        assert mirror.objects == server.objects
        assert informer.faults == 1
    assert "configmaps: Failing failed on ns/a: ValueError: no such luck" in caplog.text


async def test_a_slow_async_handler_receives_everything_in_order() -> None:
    class Slow(EventHandler[Tree]):
        def __init__(self) -> None:
            self.received: list[str] = []
            self.gate = asyncio.Event()

        async def on_added(self, new: Tree) -> None:
            await self.gate.wait()
            self.received.append(new["metadata"]["name"])

        async def on_removed(self, old: Tree) -> None:
            raise ValueError(old["metadata"]["name"])

    server = FakeApiServer()
    informer = make(server)
    slow, mirror = Slow(), Mirror()
    informer.add_handler(slow)
    informer.add_handler(mirror)
    async with running(informer):
        for n in range(50):
            server.put(f"c{n:02}")
        server.remove("c00")
        await settle()
        assert len(mirror.objects) == 49
        assert slow.received == []
        slow.gate.set()
        await settle()
        await settle()
        assert slow.received == [f"c{n:02}" for n in range(50)]
        assert informer.faults == 1


async def test_a_lagging_handler_slows_the_informer_down() -> None:
    """The queue of a handler is bounded; the informer continues when the handler has caught up."""

    class Stuck(EventHandler[Tree]):
        def __init__(self) -> None:
            self.gate = asyncio.Event()
            self.received = 0

        async def on_added(self, new: Tree) -> None:
            await self.gate.wait()
            self.received += 1

    server = FakeApiServer()
    informer = make(server)
    stuck = Stuck()
    informer.add_handler(stuck)
    async with running(informer):
        for n in range(1500):
            server.put(f"c{n:04}")
        await settle()
        assert len(informer) < 1100
        stuck.gate.set()
        await until(lambda: stuck.received >= 1500)
        assert len(informer) == 1500


@pytest.mark.parametrize(
    ("keep", "raw_kept"), [("view", False), ("raw", True), ("both", True)], ids=["view", "raw", "both"]
)
async def test_cached_objects(keep: Keep, raw_kept: bool) -> None:
    server = FakeApiServer()
    server.put("a", "1")
    informer = make(server, keep=keep)
    async with running(informer):
        first = informer.get("ns", "a")
        assert first == server.objects["a"]
        assert (first is informer.get("ns", "a")) == (keep != "raw")
        raw = informer.raw("ns", "a")
        assert (raw is not None) == raw_kept
        if raw is not None:
            assert json.loads(raw) == server.objects["a"]


async def test_waiting_for_the_first_listing() -> None:
    server = FakeApiServer()
    server.put("a", "1")
    server.failures += [ApiError(403, "Forbidden", "you may not")] * 50
    informer = make(server)
    async with running(informer):
        with pytest.raises(ApiError, match="you may not"):
            await informer.synced(0.001)
        server.failures.clear()
        await informer.synced(5)
        assert len(informer) == 1
        assert informer.error is None


async def test_a_kind_without_changes_recovers_with_its_watch() -> None:
    server = FakeApiServer()
    server.put("a", "1")
    gate = asyncio.Event()

    async def wait(seconds: float) -> None:
        await gate.wait()

    informer = Informer(Client(server, sleep=no_wait, attempts=1), CONFIG_MAPS, decode, sleep=wait)
    async with running(informer):
        server.failures += [ApiError(503, "ServiceUnavailable", "not now")]
        server.end()
        await settle()
        assert "not now" in problem(informer)
        gate.set()
        await settle()
        assert informer.error is None  # nothing has changed, and nothing was said
        assert informer.listings == 1


async def test_a_wrong_configuration_ends_an_informer_that_never_worked() -> None:
    server = FakeApiServer()
    informer = make(server)
    server.failures.append(ConfigError("the certificate is not trusted"))
    task = asyncio.create_task(informer.run())
    with pytest.raises(ConfigError, match="not trusted"):
        await informer.synced(5)
    with pytest.raises(ConfigError, match="not trusted"):
        await task


async def test_a_kind_that_is_not_served_may_be_optional() -> None:
    server = FakeApiServer()
    waits: list[float] = []

    async def wait(seconds: float) -> None:
        waits.append(seconds)
        await asyncio.sleep(0)

    server.failures += [ApiError(404, "NotFound", "no such kind")] * 3
    server.put("a", "1")
    informer = Informer(Client(server), CONFIG_MAPS, decode, namespace="ns", optional=True, sleep=wait)
    async with running(informer):
        await informer.synced(5)
        assert len(waits) == 3
        assert all(seconds > 10 for seconds in waits)
        assert informer.get("ns", "a") is not None
        assert informer.error is None


async def test_failures_back_off() -> None:
    server = FakeApiServer()
    server.failures += [ApiError(500, "InternalError", "broken")] * 12
    waits: list[float] = []

    async def wait(seconds: float) -> None:
        waits.append(seconds)
        await asyncio.sleep(0)

    informer = Informer(Client(server, attempts=1), CONFIG_MAPS, decode, sleep=wait)
    async with running(informer):
        await informer.synced(5)
        assert len(waits) == 12
        assert waits[0] <= 0.5
        assert 15 <= waits[-1] <= 30
        server.put("a")
        await settle()
        server.cut()
        await settle()
        assert waits[12] <= 0.5
        assert problem(informer) == ""  # it is followed again
        server.put("a")
        await settle()
        assert problem(informer) == ""
        server.end()
        await settle()
        assert len(waits) == 13
        server.end()
        await settle()
        assert len(waits) == 14  # a watch that ends as soon as it begins is not begun again at once


@pytest.mark.parametrize("offered", [True, False])
async def test_a_watch_list_replaces_the_first_list(offered: bool) -> None:
    server = FakeApiServer()
    server.streams = offered
    server.put("a", "1")
    informer = make(server, streamed=True)
    async with running(informer):
        assert informer.get("ns", "a") == server.objects["a"]
        lists = [request for request in server.requests if "watch" not in dict(request.query)]
        assert bool(lists) != offered
        server.put("b", "1")
        server.remove("a")
        await settle()
        assert [tree["metadata"]["name"] for tree in informer.items()] == ["b"]


async def test_watch_parameters() -> None:
    server = FakeApiServer()
    server.put("a", "1")
    async with running(make(server, labels="x=y", fields="metadata.name=a")):
        query = dict(server.requests[-1].query)
        assert query.pop("allowWatchBookmarks") == "true"
        assert 300 <= int(query.pop("timeoutSeconds")) <= 600
        assert query == {
            "watch": "true",
            "resourceVersion": "11",
            "labelSelector": "x=y",
            "fieldSelector": "metadata.name=a",
        }


async def test_a_handler_added_during_sync_gets_no_duplicates() -> None:
    """It is added from within another handler, while a change is being delivered."""

    class Inviting(EventHandler[Tree]):
        def __init__(self, informer: Informer[Tree]) -> None:
            self.informer = informer
            self.guests: list[Mirror] = []

        def on_added(self, new: Tree) -> None:
            guest = Mirror()
            self.guests.append(guest)
            self.informer.add_handler(guest)

    server = FakeApiServer()
    server.put("a", "1")
    informer = make(server)
    inviting = Inviting(informer)
    informer.add_handler(inviting)
    async with running(informer):
        server.put("b", "1")
        server.put("a", "2")
        await settle()
        assert len(inviting.guests) == 2
        assert informer.faults == 0
        assert all(guest.objects == server.objects for guest in inviting.guests)


async def test_an_informer_stopped_during_a_list_starts_it_again() -> None:
    server = FakeApiServer()
    for n in range(1500):
        server.put(f"c{n:04}")
    informer = make(server, page=0)
    mirror, gate = Mirror(), asyncio.Event()

    class Stuck(EventHandler[Tree]):
        async def on_added(self, new: Tree) -> None:
            await gate.wait()

    informer.add_handler(mirror)
    informer.add_handler(Stuck())
    async with running(informer):
        assert 900 < len(mirror.objects) < 1100
    server.put("c0000", "changed")
    server.remove("c1400")
    gate.set()
    async with running(informer):
        await until(lambda: len(mirror.objects) >= 1499)
        await settle()
        assert mirror.objects == server.objects
        assert informer.faults == 0
        assert informer.listings == 2


async def test_a_handler_that_hangs_is_reported(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plimsoll.client.informer.SLOW_HANDLER_SECONDS", 0.02)

    class Stuck(EventHandler[Tree]):
        async def on_added(self, new: Tree) -> None:
            await asyncio.Event().wait()

    server = FakeApiServer()
    for n in range(1500):
        server.put(f"c{n:04}")
    informer = make(server)
    informer.add_handler(Stuck())
    async with running(informer):
        await until(lambda: "Stuck is 1000 changes behind" in caplog.text)


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_refresh_delivers_events_missed_by_a_stalled_watch(streamed: bool) -> None:
    server = FakeApiServer()
    server.put("a", "1")
    informer = make(server, streamed=streamed)
    mirror = Mirror()
    informer.add_handler(mirror)
    async with running(informer):
        with server.stalled():
            server.put("a", "2")
            server.put("b", "1")
            await settle()
            assert mirror.log == [("ADDED", "a", "1")]
            await asyncio.wait_for(informer.refresh(), DEADLINE)
            assert mirror.log == [("ADDED", "a", "1"), ("MODIFIED", "a", "2"), ("ADDED", "b", "1")]
            assert informer.listings == 2
        server.put("c", "1")
        await settle()
        assert mirror.log[3:] == [("ADDED", "c", "1")], "it is followed on"


async def test_a_refresh_does_not_wait_for_a_back_off() -> None:
    server = FakeApiServer()
    server.put("a", "1")
    waiting = asyncio.Event()

    async def wait(seconds: float) -> None:
        waiting.set()
        await asyncio.Event().wait()

    informer = Informer(Client(server, sleep=no_wait, attempts=1), CONFIG_MAPS, decode, sleep=wait)
    async with running(informer):
        server.failures += [ApiError(503, "ServiceUnavailable", "not now")]
        server.end()
        await asyncio.wait_for(waiting.wait(), DEADLINE)
        server.put("b", "1")
        await asyncio.wait_for(informer.refresh(), DEADLINE)
        assert len(informer) == 2


async def test_a_refresh_needs_a_list_that_starts_after_it() -> None:
    server = FakeApiServer()
    server.put("a", "1")
    informer = make(server)
    begun, gate = asyncio.Event(), asyncio.Event()
    pages = informer.client.pages

    async def slow_pages(*arguments: Any, **options: Any) -> AsyncIterator[Any]:
        async for page in pages(*arguments, **options):
            begun.set()
            await gate.wait()
            yield page

    informer.client.pages = slow_pages  # type: ignore[assignment,method-assign]
    async with running(informer):
        await begun.wait()
        server.put("b", "1")  # after the page was read
        refreshed = asyncio.create_task(informer.refresh())
        await settle()
        assert not refreshed.done()
        gate.set()
        await asyncio.wait_for(refreshed, DEADLINE)
        assert len(informer) == 2
        assert informer.listings == 2
