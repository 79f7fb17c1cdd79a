"""Time slices of long reads: they yield to other requests, and chunked lists are complete."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import pytest

from plimsoll.api import codec
from plimsoll.apiserver.handlers import chunked_response as pieces
from plimsoll.apiserver.protobuf import encode_body
from plimsoll.apiserver.request import ApiRequest, ApiResponse
from plimsoll.apiserver.time_slices import REQUEST_SECONDS, SLICE_SECONDS, EventLoopShare
from plimsoll.errors import ApiError
from tests.coroutines import run_by
from tests.unit.apiserver.build import ADMIN, MAPS, PODS, ApiHarness, config_map, pod, run
from tests.waiting import DEADLINE

TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
PARTIAL = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


class Clock:
    """Clock that advances by a part of a slice with every reading."""

    def __init__(self, step: float = SLICE_SECONDS / 4) -> None:
        self.step = step
        self.now = 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


async def test_work_yields_after_each_slice() -> None:
    clock = Clock(0.0)
    loop_share = EventLoopShare(clock)
    seen: list[str] = []

    async def others() -> None:
        for _ in range(3):
            seen.append("other")
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    with loop_share.start_slice("u") as turn:
        await turn.pause()
        assert seen == []  # the slice is not used up
        for _ in range(3):
            clock.now += SLICE_SECONDS
            assert turn.is_expired
            await turn.pause()
            seen.append("work")
    await task
    assert loop_share.pauses == 3
    assert seen == ["other", "work"] * 3


async def test_many_long_requests_continue_one_at_a_time_and_users_in_turn() -> None:
    clock = Clock(0.0)
    loop_share = EventLoopShare(clock)
    order: list[str] = []

    async def work(user: str) -> None:
        with loop_share.start_slice(user) as turn:
            for _ in range(4):
                clock.now += SLICE_SECONDS
                await turn.pause()
                order.append(user)

    rounds = 0

    async def count() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await asyncio.gather(*(work(user) for user in ("a", "a", "a", "a", "b")))
    counting.cancel()
    assert order.index("b") < 5
    assert [user for user in order if user == "b"] == ["b"] * 4
    assert rounds >= len(order)  # others had a step between any two of these


async def test_a_read_that_takes_too_long_is_a_timeout() -> None:
    clock = Clock(0.0)
    with EventLoopShare(clock).start_slice("u") as turn:
        clock.now += REQUEST_SECONDS + 1
        with pytest.raises(ApiError) as refusal:
            await turn.pause()
    assert (refusal.value.code, refusal.value.reason) == (504, "Timeout")


async def whole(answer: ApiResponse) -> bytes:
    if isinstance(answer.body, bytes):
        return answer.body
    body = b"".join([piece async for piece in answer.body])
    assert len(body) == answer.length
    return body


async def ask(harness: ApiHarness, path: str, accept: str, *query: tuple[str, str]) -> ApiResponse:
    return await harness.api.handle(ApiRequest("GET", path, ADMIN, query, {"accept": accept}))


def with_pods(scenario: Callable[[ApiHarness], Awaitable[None]], count: int = 40) -> None:
    async def run_scenario(harness: ApiHarness) -> None:
        harness.api.loop_share.clock = Clock()
        for number in range(count):
            tree = pod(f"p{number}")
            tree["metadata"]["annotations"] = {"a": "x" * 2000}
            await harness.client.call("POST", PODS, tree=tree)
        await scenario(harness)

    run(run_scenario)


@run_by(with_pods)
async def test_long_reads_yield_to_others(harness: ApiHarness) -> None:
    """Each of these reads the clock at least once per object, which uses at least ten slices."""
    loop_share = harness.api.loop_share
    watch: tuple[tuple[str, str], ...] = (("watch", "1"), ("timeoutSeconds", "1"))
    for accept, query in (
        (PARTIAL, ()),
        ("application/vnd.kubernetes.protobuf", ()),
        ("application/json", (("labelSelector", "app!=none"),)),
        ("application/json", (("fieldSelector", "spec.nodeName=nowhere"),)),
        (TABLE, watch),
        ("application/json", (*watch, ("labelSelector", "app=none"))),
    ):
        before = loop_share.pauses
        answer = await ask(harness, PODS, accept, *query)
        assert answer.status == 200
        await drain(answer)
        assert loop_share.pauses >= before + 8, (accept, query)
    before = loop_share.pauses
    answer = await harness.api.handle(ApiRequest("DELETE", PODS, ADMIN))
    assert answer.status == 200
    assert loop_share.pauses >= before + 16
    assert harness.store.counts()["pods"][0] == 0


async def drain(answer: ApiResponse) -> None:
    if not isinstance(answer.body, bytes):
        async for _ in answer.body:
            pass


@pytest.mark.parametrize("accept", ["application/json", "application/yaml", TABLE, PARTIAL])
@run_by(with_pods)
async def test_a_chunked_list_equals_the_list(
    harness: ApiHarness, *, accept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = await ask(harness, PODS, accept)
    assert isinstance(short.body, bytes)
    monkeypatch.setattr(pieces, "UNCHUNKED_BYTES", 100)
    monkeypatch.setattr(pieces, "CHUNK_BYTES", 1000)
    long = await ask(harness, PODS, accept)
    assert not isinstance(long.body, bytes)
    body = await whole(long)
    assert long.content_type == short.content_type
    if accept == "application/yaml":
        assert json.loads(body)["kind"] == "PodList"  # JSON is YAML too
    else:
        assert body == short.body


def test_a_protobuf_list_is_the_one_encoded_at_once() -> None:
    async def scenario(harness: ApiHarness) -> None:
        plain = codec.decode_tree(await whole(await ask(harness, PODS, "application/json")))
        for path in (PODS, MAPS):
            plain = codec.decode_tree(await whole(await ask(harness, path, "application/json")))
            listed = await whole(await ask(harness, path, "application/vnd.kubernetes.protobuf"))
            assert listed == encode_body(plain)

    with_pods(scenario, 3)


@run_by(run)
async def test_delete_collection_keeps_objects_recreated_meanwhile(harness: ApiHarness) -> None:
    names = [f"m{number}" for number in range(20)]
    for name in names:
        await harness.request("POST", MAPS, config_map(name))
    harness.api.loop_share.clock = Clock(SLICE_SECONDS)
    deleting = asyncio.create_task(harness.request("DELETE", MAPS))
    while harness.store.counts()["configmaps"][0] > 15:
        await asyncio.sleep(0)
    assert (await harness.request("DELETE", f"{MAPS}/m9"))[0] == 200
    assert (await harness.request("POST", MAPS, config_map("m9")))[0] == 201
    assert (await deleting)[0] == 200
    _, left = await harness.request("GET", MAPS)
    assert [item["metadata"]["name"] for item in left["items"] if item["metadata"]["name"] in names] == ["m9"]


@run_by(run)
async def test_a_watch_ends_in_time_although_events_never_stop(harness: ApiHarness) -> None:
    answer = await ask(harness, MAPS, "application/json", ("watch", "1"), ("timeoutSeconds", "1"))
    frames = answer.body
    assert not isinstance(frames, bytes)
    numbers = itertools.count()

    async def write() -> None:
        while True:
            await harness.request("POST", MAPS, config_map(f"w{next(numbers)}"))
            await asyncio.sleep(0)

    writing = asyncio.create_task(write())
    async with asyncio.timeout(DEADLINE):
        await consume(frames)
    writing.cancel()


async def consume(frames: AsyncGenerator[bytes, None]) -> list[Any]:
    return [frame async for frame in frames]
