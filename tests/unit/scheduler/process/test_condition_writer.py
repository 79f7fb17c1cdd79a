"""Pod conditions: the last one wins, and unanswered writes are retried."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from plimsoll.api.core import Pod
from plimsoll.errors import ApiError, UnreachableError
from plimsoll.scheduler.process.condition_writer import ConditionUpdate, ConditionWriter
from tests.build import pod


class Server:
    """Server that accepts patches, or fails a given number of times."""

    def __init__(self, *errors: ApiError) -> None:
        self.errors = list(errors)
        self.patches: list[tuple[str, str]] = []
        self.answered = asyncio.Event()
        self.fresh: Pod | None = None

    async def read_pod(self, each: Pod) -> Pod | None:
        return self.fresh

    async def patch_status(self, each: Pod, patch: dict[str, Any]) -> None:
        await asyncio.sleep(0)
        self.answered.set()
        if self.errors:
            raise self.errors.pop(0)
        condition = patch["status"]["conditions"][0]
        self.patches.append((each.metadata.name, condition["message"]))


def _notices(server: Server) -> ConditionWriter:
    return ConditionWriter(server, workers=2, pause=0.0)  # type: ignore[arg-type]


async def _finish(writer: ConditionWriter) -> None:
    while writer.tasks:
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    "error", [UnreachableError("broken", sent=True), ApiError(503, "Busy", "x"), ApiError(429, "Slow", "x")]
)
async def test_unanswered_writes_are_retried(error: ApiError) -> None:
    server = Server(error, error)
    writer = _notices(server)
    writer.enqueue(ConditionUpdate(pod("p"), "Unschedulable", "no room"))
    await _finish(writer)
    assert server.patches == [("p", "no room")]


@pytest.mark.parametrize(("node", "patches"), [("", [("p", "no room")]), ("n1", [])])
async def test_a_pod_bound_meanwhile_gets_no_condition(node: str, patches: list[tuple[str, str]]) -> None:
    server = Server(ApiError(409, "Conflict", "it has changed"))
    server.fresh = pod("p", node=node)
    writer = _notices(server)
    writer.enqueue(ConditionUpdate(pod("p"), "Unschedulable", "no room"))
    await _finish(writer)
    assert server.patches == patches


@pytest.mark.parametrize("error", [ApiError(404, "NotFound", "gone"), ApiError(403, "Forbidden", "no")])
async def test_a_refusal_is_final(error: ApiError) -> None:
    server = Server(error)
    writer = _notices(server)
    writer.enqueue(ConditionUpdate(pod("p"), "Unschedulable", "no room"))
    await _finish(writer)
    assert server.patches == []


async def test_dropped_pods_get_no_further_condition() -> None:
    server = Server(UnreachableError("broken", sent=True))
    writer = _notices(server)
    writer.enqueue(ConditionUpdate(pod("p"), "Unschedulable", "no room"))
    await server.answered.wait()
    writer.drop("uid-p")
    await _finish(writer)
    assert server.patches == []


async def test_the_last_condition_wins() -> None:
    server = Server(UnreachableError("broken", sent=True))
    writer = _notices(server)
    writer.enqueue(ConditionUpdate(pod("p"), "Unschedulable", "first"))
    await server.answered.wait()
    writer.enqueue(ConditionUpdate(pod("p"), "Unschedulable", "second"))
    writer.enqueue(ConditionUpdate(pod("p"), "Unschedulable", "third"))
    await _finish(writer)
    assert server.patches[-1] == ("p", "third")
    assert ("p", "first") not in server.patches
